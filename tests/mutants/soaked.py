"""Plants each known bug into a soak of ten minutes in the simulator, and says after how long the
judges told of it: `python -m tests.mutants.soaked`.

What a soak with the usual settings does not meet is planted once more, into one whose windows,
credits and lives of connections are small. A soak draws fewer faults than the search does, and no
rare settings: it cannot meet every bug. What both miss the table of mutants has, with the seed or
the test that meets it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.campaigns.pool import ProcessPool
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.soak.player import Soak
from stormcast.chaos.soak.storm import Storm
from tests.mutants.groups import GroupMutant
from tests.mutants.hunt import ALL_BLIND, ALL_MUTANTS, CRASH, AnyMutant, story_of

SECONDS: Final = 600.0
"""The members' time that a soak takes at most."""
SEED: Final = 1
LAST_CONNS: Final = (1 << 32) - 4
"""The first connection id of a member whose ids wrap after three."""
MEMBERS: Final = ("n0", "n1", "n2", "n3")


class Told(NamedTuple):
    """What became of one bug in a soak."""

    name: str
    stack: str
    after: float | None
    """The members' seconds, from the begin of the soak to the end of the window that did not hold;
    None: all windows held."""
    broken: tuple[str, ...] = ()
    seconds: float = 0.0
    """Of real time."""
    is_tight: bool = False
    """Whether it was the soak with small windows."""


def cluster_of(mutant: AnyMutant, *, is_tight: bool = False) -> Cluster:
    """Return a cluster that has the bug: of the first stack, or the first generation, that can."""
    if isinstance(mutant, GroupMutant):
        cluster = Cluster(members=MEMBERS, stack=mutant.stacks[0], timing="fast")
    else:
        cluster = Cluster(
            members=MEMBERS, stack="udp", unicast=mutant.generations[0], timing="fast"
        )
    return _tight(cluster) if is_tight else cluster


def _tight(cluster: Cluster) -> Cluster:
    """Return it with small windows and credits, and with connections that live for seconds, whose
    ids wrap soon."""
    unicast: dict[str, object] = {
        "conn_close_timeout": 15.0,
        "conn_expiry_timeout": 2.0,
        "max_cached_frames": 3,
        "window_messages": 16,
    }
    if settings_of(Storm(cluster=cluster).widest()).unicast.startswith("UNICAST3"):
        unicast["ack_threshold"] = 4
    credit = (("max_credits", 30_000), ("min_threshold", 0.2))
    names = ("UFC",) if cluster.stack == "mcast" else ("MFC", "UFC")
    return replace(
        cluster,
        settings=tuple(sorted(unicast.items())),
        unicast_first_conn=LAST_CONNS,
        multicast_settings=(("window_messages", 30),),
        protocols=(
            ("FRAG", (("frag_size", 1500), ("max_open_messages", 2))),
            *((name, credit) for name in names),
        ),
    )


def soaked(name: str, seconds: float = SECONDS) -> Told:
    """Play a soak with one bug, until a window does not hold; if all do, another one."""
    told = _soaked(name, seconds, is_tight=False)
    return told if told.after is not None else _soaked(name, seconds, is_tight=True)


def _soaked(name: str, seconds: float, *, is_tight: bool) -> Told:
    mutant = ALL_MUTANTS[name]
    storm, begun = Storm(cluster=cluster_of(mutant, is_tight=is_tight)), time.monotonic()
    stack = storm.cluster.unicast or storm.cluster.stack
    told, played = Told(name, stack, None, is_tight=is_tight), 0.0
    with TemporaryDirectory() as folder, mutant.alive():
        soak = Soak(storm, SEED, make_backend(SIM), Path(folder))
        try:
            with closing(soak):
                soak.open()
                for window in soak.windows():
                    played += window.run.seconds
                    findings = window.judgement.findings
                    bad = [one for one in findings if one.verdict is not Verdict.HOLDS]
                    if bad:
                        violated = [one for one in bad if one.verdict is Verdict.VIOLATED]
                        names = [one.guarantee for one in violated] or ["unknown"]
                        told = told._replace(after=played, broken=tuple(dict.fromkeys(names)))
                        break
                    if played >= seconds:
                        break
        except (AttributeError, NameError, TypeError):
            # The product has changed, and the bug does not fit it any more: it shows nothing.
            raise
        except Exception as error:  # noqa: BLE001 whatever a bug makes of the soak, it was noticed
            told = told._replace(after=played, broken=(f"{CRASH}: {type(error).__name__}",))
    return told._replace(seconds=time.monotonic() - begun)


def planted() -> list[str]:
    """Return the bugs that the search finds in drawn scenarios, by name."""
    return [
        name for name, one in ALL_MUTANTS.items() if name not in ALL_BLIND and not story_of(one)
    ]


def in_words(all_told: Sequence[Told]) -> str:
    """Return a table of what was told when, and those that no window showed."""
    caught = [one for one in all_told if one.after is not None]
    rows = [
        f"{one.name:50} {one.stack:18} {one.after or 0.0:6.0f} s  {', '.join(one.broken)}"
        f"{' (small windows)' * one.is_tight}"
        for one in sorted(caught, key=lambda one: (one.after or 0.0, one.name))
    ]
    missed = [f"{one.name:50} {one.stack:18}      –" for one in all_told if one.after is None]
    return "\n".join([*rows, *missed, f"{len(caught)} of {len(all_told)} told of"])


def main(argv: Sequence[str] | None = None) -> int:
    """Plant all of them, or those that are named; 1 when one was not told of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="bugs (default: all that the search finds)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each soak")
    options = parser.parse_args(argv)
    names = options.names or planted()
    all_told: list[Told] = []
    with ProcessPool(options.workers) as pool:
        for done in pool.each(partial(soaked, seconds=options.seconds), names):
            if done is not None:
                all_told.append(done[1])
                print(in_words(all_told[-1:]).splitlines()[0], file=sys.stderr, flush=True)
    print(in_words(all_told))
    return 1 if any(one.after is None for one in all_told) else 0


if __name__ == "__main__":
    sys.exit(main())
