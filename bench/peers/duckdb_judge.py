"""The core of G1 to G3 in DuckDB: `python -m bench.peers.duckdb_judge RUN/parquet` prints how many
violations it finds, as JSON.

It looks at numbered messages: is each batch covered by deliveries at each receiver, is none
delivered twice, does each delivery follow the last. That is a part of what `stormcast verify` does:
no other guarantee, no lives of connections, no views, no applications, no witnesses.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

QUERY: Final = """
with events as (
    select short_id, peer, number, kind, lo, hi,
           protocol in ('NAKACK2', 'MCAST') as is_multicast,
           case when protocol in ('NAKACK2', 'MCAST') then 0 else conn end as conn
    from read_parquet(?) where protocol is not null and kind in ('sent', 'delivered')
),
arrived as (
    select peer as sender, short_id as receiver, conn, is_multicast, number, lo, hi,
           max(hi) over by_seqno as covered, max(hi) over by_turn as reached
    from events where kind = 'delivered'
    window by_seqno as (partition by sender, receiver, conn, is_multicast order by lo, hi
                        rows between unbounded preceding and 1 preceding),
           by_turn as (partition by sender, receiver, conn, is_multicast order by number
                       rows between unbounded preceding and 1 preceding)
),
left_behind as (
    select short_id as sender, conn, is_multicast,
           case when is_multicast then 0 else peer end as dest,
           min(lo) as first, max(hi) as last
    from events where kind = 'sent' group by all
),
members as (select distinct receiver from arrived),
owed as (
    select sender, receiver, conn, is_multicast, first, last from left_behind, members
    where is_multicast or receiver = dest
),
had as (
    select sender, receiver, conn, is_multicast, min(lo) as first, max(hi) as last,
           count_if(lo > covered + 1) as gaps, count_if(lo <= covered) as again,
           count_if(lo != reached + 1) as astray
    from arrived group by all
)
select count_if(had.first is null or had.first > owed.first or had.last < owed.last)
       + coalesce(sum(gaps), 0) as G1, coalesce(sum(again), 0) as G2, coalesce(sum(astray), 0) as G3
from owed left join had using (sender, receiver, conn, is_multicast)
"""


def judge(directory: Path) -> dict[str, int]:
    """Return the number of violations of each guarantee."""
    duckdb: Any = import_module("duckdb")
    found = duckdb.execute(QUERY, [str(directory / "*.parquet")])
    names = [column[0] for column in found.description]
    return dict(zip(names, map(int, found.fetchone()), strict=True))


if __name__ == "__main__":
    print(json.dumps(judge(Path(sys.argv[1]))))
