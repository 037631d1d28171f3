"""Our members as a team: how they are started, how they end, and where their journals are."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.driven import Answer
from bench.teams import ANSWER_SECONDS, Team
from bench.work import OURS, Work
from stormcast.node.keys.cluster_keys import write_new_key

STACKS: Final = {"udp": "udp", "tcp": "tcp", "tcp-nio2": "tcp-nio2"}
MULTICAST_STACKS: Final = STACKS | {"udp": "mcast"}
"""Multicasts over UDP use the stack with fixed windows and acks, as the tuned peer has them."""
PROTOCOLS: Final = {"udp": "UDP", "tcp": "TCP", "tcp-nio2": "TCP_NIO2"}
BUSY_POLL: Final = "200us"
"""For round trips: two members with a core each look for the answer instead of sleeping."""
KEYS: Final = "cluster.key"
"""The file with the key of members that seal, beside their journals."""
FIRST_PORT: Final = 17800
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options by which two runs of ours may differ."""

    stack: str = ""
    """Empty: the one named like the transport."""
    timing: str = "fast"
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By protocol: what differs from stack and timing, as text with units."""
    journal: Path | None = None
    """Where journals go; None: beside the logs of the run."""
    profile: Path | None = None
    """Where each member writes a profile of its rounds; None: it is not profiled."""
    encrypt: bool = False
    """Whether members have a key, and seal what they send."""
    burst: int = 0
    """Messages between two looks at the network; 0: the member chooses."""


class OurTeam(Team):
    """Members of ours, which keep journals."""

    def __init__(self, work: Work, options: Options, journals: Path) -> None:
        if options.encrypt:
            write_new_key(journals / KEYS)
        super().__init__(OURS, work, commands(work, options, journals))

    def sent(self) -> int:
        """Return how many messages the members say they sent."""
        return sum(int(total["sent"]) for total in self._all("total", ANSWER_SECONDS))

    def stats(self) -> dict[str, Answer]:
        """Return the counters of each member."""
        answers = self._all("stats", ANSWER_SECONDS)
        return dict(zip(self.work.names(), answers, strict=True))


def commands(work: Work, options: Options, journals: Path) -> list[list[str]]:
    """Return one command per member, in the order in which they are to be started."""
    return [
        [
            sys.executable,
            "-m",
            "bench.member",
            json.dumps(member_words(work, options, journals, place)),
        ]
        for place in range(1, work.members + 1)
    ]


def member_words(work: Work, options: Options, journals: Path, place: int) -> dict[str, Any]:
    """Return everything that one member has to know, as its process takes it."""
    name = f"n{place}"
    return {
        "name": name,
        "members": work.members,
        "stack": options.stack or default_stack(work),
        "timing": options.timing,
        "protocols": protocols(work, options.settings, place),
        "delay": work.delay,
        "journal": str(journals),
        "profile": str(options.profile / f"{name}.pstats") if options.profile else "",
        "burst": options.burst,
        "key_file": str(journals / KEYS) if options.encrypt else "",
    }


def default_stack(work: Work) -> str:
    """Return the stack that is measured where none was asked for."""
    stacks = MULTICAST_STACKS if work.mode == "multicast" else STACKS
    return stacks[work.transport]


def protocols(
    work: Work, settings: Mapping[str, Mapping[str, str]], place: int
) -> dict[str, dict[str, object]]:
    """Return the settings beyond stack and timing: those for loopback, then those asked for."""
    transport = PROTOCOLS[work.transport]
    values: dict[str, dict[str, object]] = {transport: {"bind_addr": HOST}}
    if work.mode == "roundtrip" and work.transport == "udp":
        values[transport]["busy_poll"] = BUSY_POLL
    if work.transport != "udp":
        values[transport] |= {"bind_port": FIRST_PORT + place - 1, "port_range": 0}
        values["STATIC"] = {"initial_hosts": initial_hosts(work.members), "port_range": 0}
    for name, given in settings.items():
        values[name] = {**values.get(name, {}), **given}
    return values


def initial_hosts(members: int) -> str:
    """Return the places at which the members listen."""
    return ",".join(f"{HOST}[{FIRST_PORT + number}]" for number in range(members))
