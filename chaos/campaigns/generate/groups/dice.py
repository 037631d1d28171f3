"""The dice of a group's scenario: its stack, the times of faults, and who may go for good."""

from __future__ import annotations

from random import Random
from typing import Final

from stormcast.chaos.campaigns.generate.draw import Draw, Names
from stormcast.chaos.faults import COORDINATOR, PARTICIPANT
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad

STACKS: Final = ("udp", "mcast", "tcp", "tcp-nio2", "tcp-no-retransmit")
BEGIN_SECONDS: Final = 1.5
"""The first view is installed by then, if no fault strikes; earlier faults strike the joins."""
END_SECONDS: Final = 8.0
"""The time by which all faults have begun (but for some of plots) and all messages are offered."""

SPARSE: Final[dict[str, tuple[str, ...]]] = {
    "GMS": (
        "VIEW",
        "VIEW",
        "VIEW_ACK",
        "JOIN_REQ",
        "JOIN_RSP",
        "LEAVE_REQ",
        "LEAVE_RSP",
        "GET_VIEW",
        "MERGE_REQ",
        "MERGE_RSP",
        "GET_DIGEST_REQ",
        "GET_DIGEST_RSP",
        "CANCEL_MERGE",
    ),
    "STABLE": ("GOSSIP", "STABILITY"),
    "MERGE3": ("INFO", "VIEW_REQ", "VIEW_RSP"),
    "FD_ALL3": ("HEARTBEAT",),
    "FD_SOCK2": ("SUSPECT", "UNSUSPECT"),
    "VERIFY_SUSPECT2": ("ARE_YOU_DEAD", "I_AM_NOT_DEAD"),
    "DISCOVERY": ("GET_MBRS_REQ", "GET_MBRS_RSP"),
    "MFC": ("CREDIT", "CREDIT_REQ"),
    "UFC": ("CREDIT", "CREDIT_REQ"),
    "NAKACK2": ("XMIT_REQ", "HIGHEST_SEQNO", "BASELINE", "BASELINE_REQ"),
    "MCAST": ("ACK", "ACK", "XMIT_REQ", "HIGHEST_SEQNO", "BASELINE"),
}
"""Control frames that a rule may be aimed at, by their protocol."""
ONLY_ON: Final[dict[str, tuple[str, ...]]] = {
    "STABLE": ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit"),
    "MFC": ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit"),
    "NAKACK2": ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit"),
    "MCAST": ("mcast",),
}
"""By protocol that not every stack has: the stacks that have it."""


class GroupDraw(Draw):
    """The dice of one group, its stack, and how many members it may still lose."""

    def __init__(self, random: Random, members: Names, stack: str) -> None:
        super().__init__(random, members)
        self.stack = stack
        self.multicast = "MCAST" if stack == "mcast" else "NAKACK2"
        self.is_stream = stack.startswith("tcp")
        self.switches = stack == "tcp-no-retransmit" or (self.is_stream and random.random() < 0.5)
        """Whether retransmission is off, or may be for a while. Then no rule may drop or corrupt a
        multicast: nothing would repair it."""
        self.late: Names = ()
        self.needed: Names = ()
        """Members of the leading fault that must be there from the beginning."""
        self.has_large = False
        """Whether messages of many pieces are sent, which are very slow through small windows."""
        self.has_least_bounds = False
        """Whether receivers may keep little more of unfinished messages than the largest takes."""
        self.loads: list[ScenarioLoad] = []
        self.steps: list[Step] = []
        """The loads and steps that are drawn so far."""
        self.protocols: dict[str, dict[str, object]] = {}
        """Settings that the plot needs, by protocol: they win over drawn ones."""
        self.windows: dict[str, object] = {}
        """Settings of the multicast protocol that the plot needs."""
        self.spare = len(members) - 2
        """The number of members that may still go for good."""

    def moment(self) -> float:
        """Draw the time at which a fault begins: mostly amid the traffic, sometimes amid joins."""
        if self.random.random() < 0.2:
            return self.seconds(0.0, BEGIN_SECONDS)
        return self.seconds(BEGIN_SECONDS, END_SECONDS - 1.0)

    def anyone(self) -> str:
        """Draw a member, by its name or its role."""
        role = self.random.choice((COORDINATOR, COORDINATOR, PARTICIPANT, ""))
        return role or self.random.choice(self.members)

    def goes(self) -> float | None:
        """Draw for how long a member is away; None (for good) only while the group can spare it."""
        if self.spare > 0 and self.random.random() < 0.4:
            self.spare -= 1
            return None
        return self.seconds(0.1, 4.0)

    def ask(self, protocol: str, **values: object) -> None:
        """Set settings of a protocol, if the stack has that protocol."""
        if self.stack in ONLY_ON.get(protocol, STACKS):
            self.protocols.setdefault(protocol, {}).update(values)

    def largest(self) -> int:
        """Return the size in bytes of the largest message that is sent."""
        return max(load.size[1] for load in self.loads)
