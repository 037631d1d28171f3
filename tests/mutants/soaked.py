"""Plants each known bug into a soak of ten minutes in the simulator, and says after how long the
judges told of it: `python -m tests.mutants.soaked`.

Members play by turns: with small windows and credits, and connections that live for seconds, whose
ids wrap; with small caches and batches; with the usual settings; on the grid of `compatible`, with
small requests. A soak draws fewer faults than the search does: it cannot meet every bug. What it
misses the table of mutants has, with the seed or the test that meets it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.campaigns.pool import ProcessPool
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.protocol_settings import Settings
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.soak.kinds import is_stream, unicast_of
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.storm import Storm, Turn
from tests.mutants.groups import GroupMutant
from tests.mutants.hunt import ALL_BLIND, ALL_MUTANTS, CRASH, AnyMutant, story_of

SECONDS: Final = 600.0
"""The members' time that a soak takes at most."""
SEED: Final = 1
LAST_CONNS: Final = (1 << 32) - 2
"""The first connection id of a member whose ids wrap after two."""
WINDOWS: Final = 4
"""Windows of a turn: after three turns of `fast` there is time for one window of `compatible`,
which takes minutes to be at rest."""
SIZES: Final = ((16, 100), (16, 2000), (1000, 8000), (10_000, 30_000))
"""Larger messages take minutes through small windows."""
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


def storm_of(mutant: AnyMutant) -> Storm:
    """Return a storm over members that have the bug: of the first stack, or the first generation,
    that can."""
    if isinstance(mutant, GroupMutant):
        cluster = Cluster(members=MEMBERS, stack=mutant.stacks[0], timing="fast")
    else:
        cluster = Cluster(
            members=MEMBERS, stack="udp", unicast=mutant.generations[0], timing="fast"
        )
    return Storm(
        cluster=cluster,
        turns=(_small(cluster), _narrow(cluster), Turn(), _on_the_grid(cluster)),
        turn=WINDOWS,
        every=(0.5, 4.0),
        lasting=(0.2, 9.0),
        at_once=4,
        plots=(1, 3),
        sizes=SIZES,
    )


def _small(cluster: Cluster) -> Turn:
    """Small windows and credits, and connections that live for seconds, whose ids wrap soon."""
    unicast: dict[str, object] = {
        "conn_close_timeout": 15.0,
        "conn_expiry_timeout": 2.0,
        "max_cached_frames": 3,
        "sync_min_interval": 1.0,
        "window_messages": 16,
    }
    if unicast_of(cluster).startswith("UNICAST3"):
        unicast["ack_threshold"] = 4
    credit = (("max_credits", 30_000), ("min_threshold", 0.2))
    names = ("UFC",) if cluster.stack == "mcast" else ("MFC", "UFC")
    return Turn(
        settings=tuple(sorted(unicast.items())),
        unicast_first_conn=LAST_CONNS,
        multicast_settings=(("window_messages", 30),),
        protocols=(
            ("FRAG", (("frag_size", 1500), ("max_open_messages", 2))),
            *((name, credit) for name in names),
        ),
    )


def _narrow(cluster: Cluster) -> Turn:
    """Windows of few bytes, small caches, batches of three, and over connections no retransmission
    of multicasts."""
    protocols: list[tuple[str, Settings]] = [("FRAG", (("frag_size", 1500),))]
    multicast: Settings = ()
    if is_stream(cluster):
        multicast = (("xmit_interval", 0.0),)
        transport = "TCP" if cluster.stack == "tcp" else "TCP_NIO2"
        protocols.append((transport, (("drop_when_full", False),)))
    return Turn(
        settings=(
            ("conn_close_timeout", 15.0),
            ("conn_expiry_timeout", 2.0),
            ("max_cached_frames", 0),
            ("max_retransmit_time", 5.0),
            ("window_bytes", 16_384),
        ),
        multicast_settings=multicast,
        protocols=tuple(protocols),
        max_batch=3,
    )


def _on_the_grid(cluster: Cluster) -> Turn:
    """The clock of `compatible`, and requests for four messages at most: it takes minutes until all
    is at rest."""
    few: Settings = (("max_xmit_req_size", 4),)
    settings = few if unicast_of(cluster) != "UNICAST" else ()
    return Turn(timing="compatible", settings=settings, multicast_settings=few)


def soaked(name: str, seconds: float = SECONDS) -> Told:
    """Play a soak with one bug, until a window does not hold."""
    mutant = ALL_MUTANTS[name]
    storm, begun = storm_of(mutant), time.monotonic()
    stack = storm.cluster.unicast or storm.cluster.stack
    told, played = Told(name, stack, None), 0.0
    with TemporaryDirectory() as folder, mutant.alive():
        try:
            for window in _windows(storm, Path(folder)):
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


def _windows(storm: Storm, folder: Path) -> Iterator[Window]:
    """Play one turn after the other, each as a new cluster."""
    first = 0
    while True:
        upto = storm.turn_ends(first)
        with closing(Soak(storm.of_window(first), SEED, make_backend(SIM), folder)) as soak:
            soak.open()
            for window in soak.windows(first, upto):
                yield window
                first = window.number + 1


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
