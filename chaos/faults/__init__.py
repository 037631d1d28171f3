"""Faults as data: what a scenario may do to links, members and connections.

Faults name members; a backend knows where each of them lives. A network fault lasts until its
step's duration is over or a `Heal` ends it. Several may act on one link; all that act at one moment
are a `NetworkState`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations
from typing import Final

from stormcast.node.core.match import Match

Names = tuple[str, ...]
BASE: Final = "network"
"""The id under which the network's own faults, those of a scenario's `network:`, are counted."""
RANDOM: Final = "random"
"""Stands for a member that the schedule draws from the seed."""
COORDINATOR: Final = "coordinator"
"""Stands for the member that most members see as the coordinator when the step is done."""
PARTICIPANT: Final = "random-participant"
"""Stands for a living member that does not coordinate, drawn when the step is done."""
ROLES: Final = (COORDINATOR, PARTICIPANT)
"""Words that stand for members which are known only while the scenario runs."""

SHAPES: Final = (
    RANDOM,
    "halves",
    "isolate-random",
    "isolate-coordinator",
    "bridge",
    "ring",
    "majorities",
)
"""Partitions by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The properties of one directed link. Seconds, shares, bytes per second."""

    delay: float = 0.001
    jitter: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Share of frames held back by `reorder_by`, so that later ones overtake them."""
    reorder_by: float = 0.0
    corrupt: float = 0.0
    bandwidth: float | None = None
    """None is without limit."""

    @property
    def can_lose(self) -> bool:
        """Whether frames may get lost. A bandwidth limit queues a little, and drops the rest."""
        return self.loss > 0 or self.corrupt > 0 or self.bandwidth is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFault:
    """A fault that `heal` ends. Its time and its name stand in the step."""

    def strikes(self, source: str, dest: str) -> bool:
        """Whether the fault acts on the link from `source` to `dest`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(NetworkFault):
    """Only members of one group hear each other; a member of two bridges them, of none is alone."""

    groups: tuple[Names, ...] = ()
    """Empty: the schedule makes them by `shape` (`isolate-coordinator`: when the step is done)."""
    shape: str = RANDOM

    def strikes(self, source: str, dest: str) -> bool:
        return (source, dest) not in _together(self.groups)


@lru_cache(maxsize=64)
def _together(groups: tuple[Names, ...]) -> frozenset[tuple[str, str]]:
    """Return each pair that shares a group; cached, because every path of the network asks."""
    return frozenset(pair for group in groups for pair in permutations(group, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault(NetworkFault):
    """Acts on every link from one of `sources` to one of `dests`, in that direction only."""

    sources: Names
    dests: Names

    def strikes(self, source: str, dest: str) -> bool:
        return source in self.sources and dest in self.dests


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(LinkFault):
    """Nothing passes, in one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(LinkFault):
    """A share of the frames is lost."""

    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossModel(LinkFault):
    """A loss that depends on the frames before, on each path by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GilbertElliott(LossModel):
    """Each path is good or bad for a while, and loses another share in each state."""

    p_bad: float
    """Chance, per frame, that a good path turns bad."""
    p_good: float
    """Chance, per frame, that a bad path turns good again."""
    loss_bad: float = 1.0
    loss_good: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NthLoss(LossModel):
    """On each path every n-th frame is lost, and those that follow it within the burst."""

    nth: int
    burst: int = 1
    """Frames lost in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(LinkFault):
    """Frames arrive later, by `delay` and up to `jitter` more."""

    delay: float
    jitter: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(LinkFault):
    """A share of the frames arrives twice."""

    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder(LinkFault):
    """A share of the frames arrives later by `by`, behind those sent after it."""

    rate: float
    by: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrupt(LinkFault):
    """A share of the frames arrives with a bit flipped."""

    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth(LinkFault):
    """At most `rate` bytes per second pass; frames queue for a moment, and the rest is lost."""

    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ByStranger(LinkFault):
    """A stranger, who is no member and has no key, hears each frame that is put on these links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen(ByStranger):
    """The stranger notes the messages that it reads (S1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(ByStranger):
    """The stranger sends what it heard again, to the same receiver."""

    kinds: Names = ()
    """Kinds of frames, by their names; empty: all."""
    after: float
    """Seconds from a frame to its first copy, and from each copy to the next."""
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge(ByStranger):
    """The stranger sends frames in the name of a member, made of what it heard."""

    says: str
    """One of FORGERIES."""
    times: int = 1
    """The stranger forges for so many of the frames that it hears."""


FORGERIES: Final = ("message", "leave")
"""`message`: the next message of a sender that it heard. `leave`: the wish of a member that was
sent a view to be let go."""


PACKET_PROTOCOLS: Final = ("tcp", "udp", "icmp")
FieldValues = tuple[tuple[str, str | int], ...]
"""Values of fields, each called by its layer, such as DNS.qr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketMatch:
    """Selects packets, which need be no frames of ours; all conditions must be met."""

    protocol: str = ""
    """One of PACKET_PROTOCOLS; empty: any."""
    to_ports: tuple[int, int] | None = None
    """First and last port of the receiver, of TCP and UDP."""
    from_ports: tuple[int, int] | None = None
    sizes: tuple[int, int] | None = None
    """Least and most bytes, with the header of IP."""
    nth: int | None = None
    """Only each n-th of those that meet all else, counted for each sender and receiver."""
    layer: str = ""
    """The layer of scapy that they have; empty: any."""
    fields: FieldValues = ()
    """What scapy finds in them."""

    @property
    def is_told_by_headers(self) -> bool:
        """Whether the headers of IP, TCP and UDP say if a packet is meant."""
        return not self.layer and not self.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFault(LinkFault):
    """Does something to the packets that a match selects."""

    match: PacketMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPackets(PacketFault):
    """They are lost."""


PACKET_DEEDS: Final = ("delay", "duplicate", "corrupt", "change", "forge")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPackets(PacketFault):
    """They arrive in another way than they were sent, or not alone."""

    does: str
    """One of PACKET_DEEDS. `change`: fields have other values. `forge`: a copy with other values
    arrives before the packet."""
    delay: float = 0.0
    copies: int = 1
    """Extra packets of a `duplicate`."""
    fields: FieldValues = ()
    """The other values."""
    times: int | None = None
    """The number of packets of each sender and receiver to which it is done; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(NetworkFault):
    """Does one thing to chosen frames."""

    does: str = "drop"
    match: Match = field(default_factory=Match)
    delay: float = 0.0
    copies: int = 1
    """Extra frames of a `duplicate` rule."""
    times: int | None = None
    """The rule ends after so many frames; None is without limit."""

    def is_told_by_the_preamble(self) -> bool:
        """Whether the rule only drops, and the preamble of a frame alone says if it is meant."""
        match = self.match
        return (
            self.does == "drop"
            and self.times is None
            and match.occurrence is None
            and match.connection is None
        )

    @property
    def counts_over_members(self) -> bool:
        """Whether the rule counts frames, and those to several members together."""
        counts = self.times is not None or self.match.occurrence is not None
        return counts and len(self.match.dests) != 1

    @property
    def needs_both_directions(self) -> bool:
        """Whether the rule may select control frames by their connection: its number is known from
        the data that went the other way."""
        return self.match.connection is not None and set(self.match.kinds) != {"DATA"}

    def strikes(self, source: str, dest: str) -> bool:
        match = self.match
        return (not match.sources or source in match.sources) and (
            not match.dests or dest in match.dests
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Lets go the frames that the named `hold` rule keeps, or all such rules; the rules go on."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """Ends the named network fault, or all; a `hold` rule that ends lets go what it holds."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Ends the process at once, with all that it had in memory. Its undo is a restart."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stops the process. When it resumes, it reads what its socket kept."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Ends a pause."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A new incarnation of the member, ending the one that may still run."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The member leaves its group by the protocol, and ends. The undo has it join again."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The member starts as a new incarnation and joins, unless it runs already."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """Every `every` seconds one of the members leaves or crashes, or the one that did is back."""

    members: Names
    every: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The member drops its connection to `peer`, and tells nobody."""

    member: str
    peer: str
    half: str = "both"
    """`sender`, `receiver` or `both`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """The member closes its connection to `peer` as the protocol does it."""

    member: str
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallView:
    """Hands a view to `at_members`, in place of a membership protocol."""

    at_members: Names
    members: Names


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAttribute:
    """Changes a setting of a running member."""

    member: str
    attribute: str
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The member's application stops taking deliveries, until `Consume`."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume:
    """The member's application takes deliveries again."""

    member: str


NetworkAction = (
    Partition
    | Cut
    | Loss
    | GilbertElliott
    | NthLoss
    | Delay
    | Duplicate
    | Reorder
    | Corrupt
    | Bandwidth
    | DropPackets
    | Listen
    | Replay
    | Forge
    | Rule
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeKeys:
    """The file with the cluster's keys changes; all members read it again within a second."""

    step: str
    """One of KEY_STEPS."""


KEY_STEPS: Final = ("add", "turn", "drop")
"""As `stormcast key` has them: a new key opens; it seals; the old one is dropped."""
MemberAction = (
    Crash
    | Pause
    | Restart
    | Leave
    | Join
    | Churn
    | Forget
    | Close
    | InstallView
    | SetAttribute
    | ChangeKeys
    | Stall
)
Cure = Heal | Release | Resume | Consume
"""Actions that end faults, and are no faults themselves."""
Action = NetworkAction | MemberAction | Cure
