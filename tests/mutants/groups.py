"""Known bugs of whole groups, brought back one at a time: membership, multicast, stability, flow.

A group mutant replaces methods of the product's classes for as long as a run lasts. What it breaks
may need a rare moment, so each names the stacks that have the code and, mostly, the kinds of fault
that lead to the moment: seeds of those cells alone are tried. Some name plots or extras
besides, which bring the settings that the moment takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from stormcast.chaos.campaigns.generate import cell_of, generate, is_group
from stormcast.chaos.campaigns.generate.extras import EXTRAS
from stormcast.chaos.campaigns.generate.groups import STACKS
from stormcast.node.core import wire
from stormcast.node.core.ack_table import AckTable
from stormcast.node.core.credits import StreamEnd
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import DONT_LOOPBACK, Address, View
from stormcast.node.core.window import ReceiveWindow, SendWindow
from stormcast.node.keys.seals import Seals
from stormcast.node.protocols import unfinished
from stormcast.node.protocols.events import Confirmed
from stormcast.node.protocols.flow import FlowControl, Mfc
from stormcast.node.protocols.flow.answering import Answering
from stormcast.node.protocols.frag import Reassembler
from stormcast.node.protocols.gms import plan
from stormcast.node.protocols.gms.coordinator import Coordinator
from stormcast.node.protocols.gms.messages import pack_view
from stormcast.node.protocols.gms.state import Membership
from stormcast.node.protocols.multicast import Multicast, asking
from stormcast.node.protocols.multicast.alarms import Alarms
from stormcast.node.protocols.multicast.announcing import Announcing
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.feedback import Feedback
from stormcast.node.protocols.multicast.outgoing import Outgoing
from stormcast.node.protocols.multicast.reports import AckDelivered
from stormcast.node.protocols.multicast.retention import UntilAcked, UntilStable
from stormcast.node.protocols.multicast.views import Views
from stormcast.node.protocols.multicast.windows import Windows
from stormcast.node.protocols.stable import Stable
from stormcast.node.protocols.stable import stable as stable_layer
from stormcast.node.protocols.stable.known import Known
from stormcast.node.protocols.stable.rounds import Rounds
from stormcast.node.protocols.unicast.entries import Entry, ReceiverEntry, SenderEntry
from stormcast.node.protocols.unicast.lifetimes import Lifetimes
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.verify_suspect2 import VerifySuspect2
from stormcast.node.stack.before_leaving import BeforeLeaving
from stormcast.node.stack.sending import Sender
from tests.mutants.hidden import Blind
from tests.mutants.patches import Patches, applied

NAKACK: Final = ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit")
"""Stacks with NAKACK2, STABLE and MFC."""
REPAIRING: Final = ("udp", "mcast", "tcp", "tcp-nio2")
LOSSY: Final = ("udp", "mcast")
NEVER_REPAIRS: Final = ("tcp-no-retransmit",)
PARTING: Final = ("partition", "cut", "pause", "install-view")
"""Faults after which groups merge."""
LOSING: Final = ("loss", "gilbert-elliott", "nth-loss", "corrupt")
COMING: Final = ("join", "restart", "leave", "crash", "churn")
"""Faults that change who is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMutant:
    """One known bug, and what is expected of the search that meets it."""

    name: str
    about: str
    source: str
    """The issue or the invariant that describes it."""
    stacks: tuple[str, ...]
    """Those that have the code."""
    kinds: tuple[str, ...]
    """Leading faults of the seeds that are tried; empty: all."""
    plots: tuple[str, ...]
    """Plots of the seeds that are tried; empty: all."""
    extras: tuple[str, ...]
    """Extras of the seeds that are tried; empty: all."""
    breaks: tuple[str, ...]
    """Guarantees of which at least one must be found broken."""
    bug: Callable[[Patches], None]
    story: str = ""
    """A scenario of tests/sim/regressions that is played instead, with seed after seed: of a moment
    that drawn scenarios meet once in thousands."""

    @property
    def where(self) -> str:
        """What the table shows of it."""
        if self.story:
            return f"the scenario `{self.story}`"
        return "all stacks" if self.stacks == STACKS else ", ".join(self.stacks)

    def applies(self, seed: int) -> bool:
        """Whether a seed is of a cell in which to look for it."""
        if not is_group(seed):
            return False
        stack, kind = cell_of(seed)
        if stack not in self.stacks or (self.kinds and kind not in self.kinds):
            return False
        if self.plots and plot_of(seed) not in self.plots:
            return False
        return not self.extras or not extras_of(seed).isdisjoint(self.extras)

    @contextmanager
    def alive(self) -> Iterator[None]:
        """While this lasts the product has the bug."""
        with applied(self.bug):
            yield


def plot_of(seed: int) -> str:
    """The name of the plot in the scenario of a seed; nothing where there is none."""
    found = re.search(r"\((.*)\)", generate(seed).about)
    return found[1] if found else ""


def extras_of(seed: int) -> set[str]:
    """The names of the extras in the scenario of a seed."""
    about = generate(seed).about
    return {extra.name for extra in EXTRAS if f", with {extra.name}" in about}


GROUP_MUTANTS: Final[dict[str, GroupMutant]] = {}
Bug = TypeVar("Bug", bound=Callable[[Patches], None])


def mutant(
    source: str,
    breaks: tuple[str, ...],
    stacks: tuple[str, ...] = STACKS,
    kinds: tuple[str, ...] = (),
    plots: tuple[str, ...] = (),
    extras: tuple[str, ...] = (),
    story: str = "",
) -> Callable[[Bug], Bug]:
    """Register a bug under the name of its function, described by its docstring."""

    def register(bug: Bug) -> Bug:
        name = re.sub("_", "-", bug.__name__)
        GROUP_MUTANTS[name] = GroupMutant(
            name=name,
            about=" ".join((bug.__doc__ or "").split()),
            source=source,
            stacks=stacks,
            kinds=kinds,
            plots=plots,
            extras=extras,
            breaks=breaks,
            bug=bug,
            story=story,
        )
        return bug

    return register


# -- Stability ------------------------------------------------------------------------------------


def _of_votes(rounds: Rounds, delivered: Callable[[Sequence[int]], int]) -> Digest:
    """Stability over the votes that are there, by another rule than the product's."""
    votes = [digest.seqnos for _number, digest in rounds.votes.values()]
    result = {}
    for member in rounds._known.members:
        pairs = [vote[member] for vote in votes if member in vote] or [(0, 0)]
        high = max(received for _delivered, received in pairs)
        result[member] = min(delivered([pair[0] for pair in pairs]), high), high
    return Digest(result)


@mutant("M-3, P-16", ("G6", "G1"), NAKACK)
def stable_at_the_maximum(patches: Patches) -> None:
    """What any member has delivered counts as stable."""

    @patches.method(Rounds)
    def minimum(self: Rounds) -> Digest:
        return _of_votes(self, max)

    _believing(patches)


def _believing(patches: Patches) -> None:
    """Members take whatever stability they are told."""

    def objection(known: Known, _role: Any, _head: Any, view_id: Any, _digest: Digest) -> str:
        return "" if view_id == known.view_id else "other-view"

    patches.put(stable_layer, "objection", objection)


@mutant("M-3, P-16", ("G6", "G1"), NAKACK)
def stable_without_all_votes(patches: Patches) -> None:
    """Stability is the minimum over those that have voted, whoever has not."""

    @patches.method(Rounds)
    def minimum(self: Rounds) -> Digest:
        return _of_votes(self, min)

    @patches.method(Rounds)
    def consider(self: Rounds, now: float, *, is_urgent: bool) -> None:
        if self.count_own() and self.is_progress():
            self.announce(now, asks=False)

    _believing(patches)


@mutant("P-16, JGRP-1638", ("G6", "G1"), NAKACK, COMING + PARTING)
def stable_mixes_views(patches: Patches) -> None:
    """Votes of the view before count in the next one, whose joiners are not among them."""
    on_view = Stable.on_view

    @patches.method(Stable)
    def on_view(self: Stable, view: View, now: float, old: Any = on_view) -> None:
        votes, agreed = self._rounds.votes, self.known.stable
        old(self, view, now)
        self._rounds.votes, self.known.stable = votes, agreed

    @patches.method(Rounds)
    def minimum(self: Rounds) -> Digest:
        return _of_votes(self, min)

    _believing(patches)


@mutant("JGRP-1904", ("G1", "G5", "A1", "G8"), ("udp",), LOSING)
def last_is_never_missed(patches: Patches) -> None:
    """A last message that was lost is neither announced nor noticed by stability."""
    old = Feedback.on_stability

    @patches.method(Feedback)
    def on_stability(self: Feedback, digest: Digest, now: float) -> None:
        old(self, Digest({peer: (low, low) for peer, (low, _high) in digest.seqnos.items()}), now)

    @patches.method(Announcing)
    def _has_more(self: Announcing) -> bool:
        return False


# -- Windows at joins and merges ------------------------------------------------------------------


@mutant("JGRP-699, JGRP-948", ("G1", "A1"), STACKS, PARTING)
def merge_replaces_all_windows(patches: Patches) -> None:
    """A merge also replaces windows of senders that were connected all the time."""
    old = Views._adopt_digest

    @patches.method(Views)
    def _adopt_digest(self: Views, digest: Digest, mutual: Any, now: float) -> None:
        old(self, digest, None if mutual is None else frozenset(), now)


@mutant("JGRP-700", ("G1", "G2", "G3", "G4", "G6", "L1", "A1"), STACKS, PARTING)
def merge_overwrites_own_window(patches: Patches) -> None:
    """A merge has a member count its own messages anew."""
    old = Views._adopt_digest

    @patches.method(Views)
    def _adopt_digest(self: Views, digest: Digest, mutual: Any, now: float) -> None:
        old(self, digest, mutual, now)
        if mutual is not None:
            config, own = self._state.config, self._state.own
            SendWindow.__init__(own, config.window_messages, config.window_bytes)
            self._state.own_delivered = 0


@mutant("JGRP-948, JGRP-1690", ("G2", "G1", "A1", "C1"), STACKS, PARTING)
def merge_believes_hearsay(patches: Patches) -> None:
    """A merge has windows begin where somebody believes a sender to be, ahead of what it sent."""
    old = plan.merged_digest

    def merged_digest(members: Collection[Address], answers: Mapping[Address, Any]) -> Digest:
        said = old(members, answers).seqnos
        return Digest({short: (low + 10, high + 10) for short, (low, high) in said.items()})

    patches.put(plan, "merged_digest", merged_digest)


@mutant("JGRP-1509, M-12", ("C1", "G1", "A1"), NEVER_REPAIRS)
def windows_are_complete_at_once(patches: Patches) -> None:
    """Without retransmission a new window is never completed."""
    old = Windows.open

    @patches.method(Windows)
    def open(self: Windows, *arguments: Any) -> Any:  # noqa: A001 as there
        entry = old(self, *arguments)
        entry.is_synced = True
        return entry


@mutant("baseline", ("C1", "G1", "G5", "G8"), NEVER_REPAIRS, COMING + PARTING)
def baselines_ignored(patches: Patches) -> None:
    """Where a sender's messages begin is asked for, and the answer not heard."""

    @patches.method(Baselines)
    def on_baseline(self: Baselines, head: Any, now: float) -> None:
        return


@mutant("gap alarm, M-12", ("G1", "G5", "A1", "G8"), NEVER_REPAIRS)
def gaps_without_alarm(patches: Patches) -> None:
    """Without retransmission a gap stays for ever, and nobody is told."""

    @patches.method(Alarms)
    def look(self: Alarms, entry: Any, now: float) -> None:
        return


# -- Multicast ------------------------------------------------------------------------------------


@mutant("P-16, M-6", ("G6", "G1"), ("mcast",))
def mcast_acks_what_it_received(patches: Patches) -> None:
    """An ack reports the highest multicast received, beyond a gap."""
    old = AckDelivered._send

    @patches.method(AckDelivered)
    def _send(self: AckDelivered, entry: Any, now: float) -> None:
        window = entry.window
        delivered, window.delivered = window.delivered, window.high
        old(self, entry, now)
        window.delivered = delivered


@mutant("JGRP-2904", ("G6", "C1", "G8"), ("mcast",), COMING + PARTING)
def new_members_need_nothing(patches: Patches) -> None:
    """A joiner counts as having acked all that was sent so far, by whoever."""

    @patches.method(UntilAcked)
    def members_changed(self: UntilAcked) -> int:
        self.acks.adjust(sorted(self._state.members), self._state.own.high + 50)
        return self.delivered_here()


@mutant("JGRP-2904", ("G6", "G8", "L1", "C1"), ("mcast",), COMING + PARTING)
def acks_of_leavers_wanted(patches: Patches) -> None:
    """The ack of a member that is gone is waited for, for ever."""
    old = AckTable.adjust

    @patches.method(AckTable)
    def adjust(self: AckTable, members: Any, low: int) -> None:
        old(self, [*members, *self._acks], low)


@mutant("JGRP-2874", ("L1", "G8", "G5", "C1"), ("mcast",), LOSING)
def announcements_not_acked(patches: Patches) -> None:
    """A lost last ack is not repeated when its sender asks by announcing its highest seqno."""

    @patches.method(AckDelivered)
    def announced(self: AckDelivered, entry: Any, now: float) -> None:
        return


@mutant("M-13", ("A1",), kinds=PARTING)
def own_messages_go_while_a_digest_is_in_use(patches: Patches) -> None:
    """A member that is alone in its view purges what it sends while a digest promises that."""

    def delivered_here(self: UntilAcked | UntilStable) -> int:
        frozen, self._state.is_frozen = self._state.is_frozen, False
        seqno = old[type(self)](self)
        self._state.is_frozen = frozen
        return seqno

    old = {kind: kind.delivered_here for kind in (UntilAcked, UntilStable)}
    for kind in old:
        patches.put(kind, "delivered_here", delivered_here)


@mutant("M-13", ("G8", "L1", "C1"), ("mcast",), PARTING)
def never_thawed(patches: Patches) -> None:
    """Acks stay frozen after a merge or a join."""

    @patches.method(Multicast)
    def resume(self: Multicast, now: float) -> None:
        return


@mutant("M-10", ("G8", "L1"))
def group_lane_not_woken(patches: Patches) -> None:
    """A purge makes room, and who waits for it is not told."""
    old = Outgoing.purge

    @patches.method(Outgoing)
    def purge(self: Outgoing, seqno: int, now: float) -> None:
        old(self, seqno, now)
        self._port.woken.clear()


@mutant("M-4", ("G5",))
def multicasts_without_bound(patches: Patches) -> None:
    """The own window takes more than its capacity."""

    @patches.method(Outgoing)
    def room(self: Outgoing, dest: int = 0) -> tuple[int, int]:
        return (0, 0) if self._state.view is None else (1 << 40, 1 << 40)

    old = SendWindow.append

    @patches.method(SendWindow)
    def append(self: Any, count: int, size: int, item: Any) -> int:
        capacity, self.capacity = self.capacity, 1 << 40
        try:
            return old(self, count, size, item)
        finally:
            self.capacity = capacity


@mutant("DONT_LOOPBACK", ("L1", "G8"), NAKACK)
def silent_messages_never_own(patches: Patches) -> None:
    """A DONT_LOOPBACK message is never counted as delivered by its sender, and so never purged."""
    old = Outgoing.send

    @patches.method(Outgoing)
    def send(self: Outgoing, dest: int, payloads: Any, flags: int, *rest: Any) -> None:
        before = self._state.own_delivered
        old(self, dest, payloads, flags, *rest)
        if flags & DONT_LOOPBACK:
            self._state.own_delivered = before


@mutant("M-1, OOB", ("G2",))
def oob_multicasts_delivered_twice(patches: Patches) -> None:
    """What was delivered out of band is delivered again when its turn comes."""
    old = ReceiveWindow.add

    @patches.method(ReceiveWindow)
    def add(self: Any, lo: int, hi: int, size: int, item: Any, *, oob: bool = False) -> Any:
        return old(self, lo, hi, size, item)


@mutant("JGRP-1539", ("C1",), REPAIRING)
def multicasts_asked_at_first_sight(patches: Patches) -> None:
    """The two-look rule is skipped: multicasts still under way are requested."""
    old = Asking.look

    @patches.method(Asking)
    def look(self: Asking, entry: Any, now: float) -> None:
        entry.gaps.missing_before = max(entry.gaps.missing_before, entry.window.seen)
        old(self, entry, now)

    @patches.method(Asking)
    def notice(self: Asking, entry: Any, now: float) -> None:
        self.look(entry, now)


@mutant("JGRP-1868", ("C1",), REPAIRING)
def multicast_requests_without_limit(patches: Patches) -> None:
    """One request asks for all multicasts that are missing."""
    old = asking.request_missing

    def request_missing(port: Any, protocol: int, sizes: Any, *rest: Any, **more: Any) -> None:
        old(port, protocol, replace(sizes, max_xmit_req_size=1 << 40), *rest, **more)

    patches.put(asking, "request_missing", request_missing)


class _ResendsOne:
    """An `Outgoing` that repeats one batch, and no more."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._has_resent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outgoing, name)

    def resend(self, *what: Any) -> None:
        if not self._has_resent:
            self._has_resent = True
            self._outgoing.resend(*what)


@mutant("UNICAST3 note, example 45/50", ("L1",), REPAIRING)
def multicast_requests_are_answered_in_part(patches: Patches) -> None:
    """A request for multicasts is answered with the first missing batch only."""
    old = Feedback.on_request

    @patches.method(Feedback)
    def on_request(self: Feedback, *request: Any) -> None:
        outgoing = self._outgoing
        self._outgoing = _ResendsOne(outgoing)  # type: ignore[assignment]
        try:
            old(self, *request)
        finally:
            self._outgoing = outgoing


@mutant("M-12", ("C1",), ("tcp", "tcp-nio2", "tcp-no-retransmit"))
def announces_without_repair(patches: Patches) -> None:
    """The highest seqno is announced even where nothing is retransmitted."""
    old = Outgoing.send

    @patches.method(Outgoing)
    def send(self: Outgoing, *arguments: Any) -> None:
        old(self, *arguments)
        if not self._state.config.retransmits:
            self._announcing._announce(arguments[3])


# -- Membership -----------------------------------------------------------------------------------


@mutant("V-ids, JGRP-1009", ("V1", "V3", "V4", "G8"), STACKS, PARTING)
def view_ids_do_not_grow(patches: Patches) -> None:
    """A new view has the number of the one before it."""

    @patches.method(Membership)
    def next_number(self: Membership) -> int:
        return self.view.id.number if self.view is not None else 1


@mutant("M-14, older views", ("V3", "V4"), STACKS, PARTING + COMING)
def older_views_accepted(patches: Patches) -> None:
    """A view that comes late is installed over a newer one."""
    old = Membership.obstacle

    @patches.method(Membership)
    def obstacle(self: Membership, view: View) -> str:
        said = old(self, view)
        return "" if said == "view-old" and self.me in view.members else said


@mutant("V2", ("V2",), STACKS, PARTING)
def views_without_me_installed(patches: Patches) -> None:
    """A coordinator brings a view also to whom it excludes, and they install it."""
    change, obstacle, install = Coordinator._change, Membership.obstacle, Membership.install

    def _change(self: Coordinator, view: View, *requests: Any) -> None:
        change(self, view, *requests)
        held = self._state.view
        if held is None or held is view:
            return
        for member in view.members:
            if member not in held.members:
                self._state.send(member.short, wire.VIEW, pack_view(held), lo=held.id.number)

    def _obstacle(self: Membership, view: View) -> str:
        said = obstacle(self, view)
        return "" if said == "view-without-me" else said

    def _install(self: Membership, view: View, *rest: Any) -> None:
        install(self, View(view.id, _AnyoneIn(view.members)), *rest)

    patches.put(Coordinator, "_change", _change)
    patches.put(Membership, "obstacle", _obstacle)
    patches.put(Membership, "install", _install)


class _AnyoneIn(tuple[Address, ...]):
    """Members of a view, to whom everybody seems to belong."""

    __slots__ = ()

    def __contains__(self, member: object) -> bool:
        return True

    def index(self, member: Any, *rest: Any) -> int:
        return super().index(member, *rest) if member in list(self) else len(self)


@mutant("coordinator failure", ("V4", "G8", "L1"), STACKS, ("crash", "restart", "churn"))
def the_dead_stay(patches: Patches) -> None:
    """A member that was verified to be dead stays in the view."""

    @patches.method(Coordinator)
    def on_suspected(self: Coordinator, members: Any, now: float) -> None:
        return


@mutant("JGRP-2952", ("V4", "G8", "L1"), STACKS, ("crash", "restart", "churn"))
def nobody_is_next(patches: Patches) -> None:
    """A dead coordinator is replaced by nobody: only who coordinates excludes others."""
    old = Coordinator.take_over

    @patches.method(Coordinator)
    def take_over(self: Coordinator, now: float) -> None:
        if self._state.role.is_coordinator:
            old(self, now)


@mutant("JGRP-2092", ("V4", "G8"), STACKS, PARTING)
def nobody_leads_the_merge(patches: Patches) -> None:
    """The merge is left to the lowest member of all views, which may not have reported."""

    def leader_of(views: Mapping[Address, View]) -> Address:
        everyone = {member for view in views.values() for member in view.members}
        return plan.by_identity(everyone)[-1]

    patches.put(plan, "leader_of", leader_of)


@mutant("JGRP-1910", ("V4", "G8"), STACKS, ("install-view", "partition", "cut"))
def only_coordinators_merge(patches: Patches) -> None:
    """A merge is made of coordinators' views: a member alone with an old view is forgotten."""

    def groups_of(answers: Mapping[Address, Any], _heard: Any) -> dict[View, tuple[Address, ...]]:
        ready = {m: answer for m, answer in answers.items() if not answer.is_rejected}
        views = [answer.view for m, answer in ready.items() if answer.view.coordinator == m]
        return {
            view: tuple(m for m in view.members if m in ready and ready[m].view == view)
            for view in views
        }

    patches.put(plan, "groups_of", groups_of)


@mutant("VERIFY_SUSPECT2", ("V2",), STACKS, ("pause", "delay", "cut"))
def suspected_is_dead(patches: Patches) -> None:
    """A suspicion is acted upon without verification."""

    @patches.method(VerifySuspect2)
    def on_suspected(self: VerifySuspect2, members: Any, now: float) -> None:
        self._port.events.append(Confirmed(tuple(members)))


@mutant("VERIFY_SUSPECT2", ("V2",), STACKS, ("pause", "delay", "cut", "partition"))
def the_cleared_stay_suspects(patches: Patches) -> None:
    """A member that was confirmed to be dead is excluded, though it was cleared since."""

    @patches.method(Coordinator)
    def on_cleared(self: Coordinator, member: Address) -> None:
        return


# -- Flow control and fragments -------------------------------------------------------------------


@mutant("P-35, JGRP-347", ("G8", "L1"), NAKACK, ("crash", "churn", "leave", "restart"))
def credits_of_leavers_wanted(patches: Patches) -> None:
    """Multicasts wait for the credits of a member that is gone."""

    @patches.method(Mfc)
    def _part(self: Mfc, member: int) -> None:
        return


@mutant("credits", ("G8", "L1"), NAKACK)
def credits_never_renewed(patches: Patches) -> None:
    """A receiver names no new limit."""

    @patches.method(Answering)
    def _announce(self: Answering, source: int, intake: Any, now: float) -> None:
        intake.announce()


@mutant("credits", ("G5",), NAKACK, ("stall", "pause"))
def credits_granted_twice(patches: Patches) -> None:
    """A limit counts double: more is under way than the receiver allowed."""
    old = FlowControl._on_credit

    @patches.method(FlowControl)
    def _on_credit(self: FlowControl, source: int, limit: int, heard: int, now: float) -> None:
        if source in self._allowances:
            limit = min(limit + self._max, self._total(source) + self._max)
        old(self, source, limit, heard, now)


@mutant("credits", ("G5",), NAKACK)
def credits_half_spent(patches: Patches) -> None:
    """A sender counts half of what it multicasts."""
    old = Mfc.spent

    @patches.method(Mfc)
    def spent(self: Mfc, dest: int, size: int, now: float, flags: int = 0) -> None:
        old(self, dest, size // 2, now, flags)


@mutant("fragments", ("G1", "G4", "G8"))
def fragments_mixed(patches: Patches) -> None:
    """Pieces of two OOB messages of one sender are joined to one."""
    old = unfinished.Sender.find_early

    @patches.method(unfinished.Sender)
    def find_early(self: unfinished.Sender, fragment: Any, *rest: Any) -> Any:
        return old(self, fragment._replace(id=0), *rest)


@mutant("fragments", ("G4",))
def fragments_in_order_of_arrival(patches: Patches) -> None:
    """The pieces of a message are joined as they came."""

    old = unfinished.Sender.add

    @patches.method(unfinished.Sender)
    def add(self: unfinished.Sender, message: Any, fragment: Any, *rest: Any) -> None:
        old(self, message, fragment._replace(index=len(message.pieces)), *rest)


@mutant("fragments, OOB", ("G1",), plots=("pieces overtake",))
def oob_messages_begun_without_bound(patches: Patches) -> None:
    """More OOB messages in pieces are begun than a receiver keeps: it drops what it had acked."""

    @patches.method(Sender)
    def _may_begin(self: Sender, lane: Any, cut: Any, now: float) -> bool:
        return True


@mutant("fragments", ("G1",), plots=("all send large",))
def all_senders_share_one_bound(patches: Patches) -> None:
    """One bound is for all unfinished messages, whoever sent them: what is beyond is dropped."""
    old_take, old, taking = Reassembler.take, unfinished.Sender.keep_bounds, list[Reassembler]()

    @patches.method(Reassembler)
    def take(self: Reassembler, *piece: Any) -> Any:
        taking[:] = [self]
        return old_take(self, *piece)

    @patches.method(unfinished.Sender)
    def keep_bounds(self: unfinished.Sender, newest: Any, settled: int) -> None:
        if taking[0].open_bytes > taking[0].config.max_open_bytes:
            self.give_up(newest)
            raise BadFrame("fragment-bytes")
        old(self, newest, settled)


@mutant("fragments, views", ("G1",), plots=("outside amid a message",))
def pieces_of_members_go_after_a_minute(patches: Patches) -> None:
    """What a member began is given up as what a stranger began, by the age of its last piece."""
    old = Reassembler.on_view

    @patches.method(Reassembler)
    def on_view(self: Reassembler, members: Any, now: float) -> None:
        touched = {key: sender.touched for key, sender in self._senders.items()}
        old(self, members, now)
        for key, sender in self._senders.items():
            sender.touched = touched[key]
            sender.kept_of_member = 0, 0


@mutant("C1 sync_spacing", ("C1",), story="syncs-of-a-forgotten-stranger-1")
def forgotten_strangers_are_asked_at_once(patches: Patches) -> None:
    """With the early frames of a stranger it is forgotten when that was asked last."""

    @patches.method(Resync)
    def forget_stranger(self: Any, peer: int) -> None:
        sync = self._syncs.get(peer)
        if sync is not None and self._state.is_stranger(peer):
            self._forget(sync)


@mutant("fragments, OOB", ("G1",), story="a-remainder-in-the-place-of-a-message-3852538927")
def remainders_take_places(patches: Patches) -> None:
    """What is left of a message that cannot be whole any more counts as one that can."""

    @patches.method(unfinished.Sender)
    def _give_up_remainders(self: unfinished.Sender, settled: int) -> None:
        return


# -- Connections in groups ------------------------------------------------------------------------


@mutant(
    "credits, ended connections",
    ("C1", "G1", "G8", "L1"),
    ("udp", "mcast", "tcp-nio2"),
    plots=("forgotten while blocked",),
)
def questions_of_ended_connections_stay(patches: Patches) -> None:
    """A question for credits goes on naming a connection that has ended."""

    @patches.method(StreamEnd)
    def as_of(self: StreamEnd, end: StreamEnd) -> StreamEnd:
        return self


@mutant("idle senders", ("G1",), plots=("blocked for long",))
def waiting_for_credits_is_idle(patches: Patches) -> None:
    """A sender that waits for credits counts as idle: its connection ends, and what waits goes."""
    old = Lifetimes._used_at

    @patches.method(Lifetimes)
    def _used_at(self: Lifetimes, entry: Entry, now: float) -> float:
        if isinstance(entry, SenderEntry) and not entry.is_pending():
            return entry.used_at()
        return old(self, entry, now)


@mutant("idle receivers", ("G1", "G5", "L1", "G8"), plots=("blocked for long",))
def untaken_windows_are_idle(patches: Patches) -> None:
    """A window that holds what a stalled application has yet to take counts as idle."""
    old = Lifetimes._used_at

    @patches.method(Lifetimes)
    def _used_at(self: Lifetimes, entry: Entry, now: float) -> float:
        return entry.used_at() if isinstance(entry, ReceiverEntry) else old(self, entry, now)


@mutant("ageing of members", ("G1",), plots=("parted unnoticed",))
def silent_members_are_given_up(patches: Patches) -> None:
    """A connection to a silent member ends before a view drops the member."""
    old = Lifetimes._used_at

    @patches.method(Lifetimes)
    def _used_at(self: Lifetimes, entry: Entry, now: float) -> float:
        return entry.used_at() if entry.is_pending() else old(self, entry, now)

    @patches.method(Lifetimes)
    def _is_ageing(self: Lifetimes, entry: SenderEntry) -> bool:
        return self._state.config.max_retransmit_time > 0


# -- Windows that nothing repairs -----------------------------------------------------------------


@mutant(
    "baseline",
    ("G1", "A1", "C1", "G8"),
    ("tcp", "tcp-nio2", "tcp-no-retransmit"),
    plots=("baseline from before", "joiner overflows"),
)
def unasked_baselines_complete(patches: Patches) -> None:
    """Without retransmission a window counts as complete by what its sender said before a loss."""

    @patches.method(Baselines)
    def _on_final(self: Any, entry: Any, head: Any, is_answer: bool, now: float) -> None:
        if not entry.is_synced:
            entry.sync_target = max(entry.sync_target, head.lo)


@mutant(
    "baseline",
    ("G1", "A1", "C1", "G8"),
    ("tcp", "tcp-nio2", "tcp-no-retransmit"),
    plots=("joiner overflows",),
)
def overflowed_joiners_count_as_complete(patches: Patches) -> None:
    """The same of a joiner whose bounded queue refused messages before retransmission ended."""
    unasked_baselines_complete(patches)


@mutant("skipped records", ("C1", "G1"), story="a-stalled-window-that-skips-1")
def skips_claim_too_much(patches: Patches) -> None:
    """A full window says that it gave up all that its sender lacks, and gave up what it held."""
    old_skip, old_note = Windows.skip_to, Windows._note_skipped
    lacking: list[int] = []

    @patches.method(Windows)
    def skip_to(self: Windows, entry: Any, seqno: int, view_tag: int, now: float) -> None:
        lacking.append(seqno)
        old_skip(self, entry, seqno, view_tag, now)
        lacking.pop()

    @patches.method(Windows)
    def _note_skipped(
        self: Windows, entry: Any, count: int, lo: int, _hi: int, now: float, *, is_loss: bool
    ) -> None:
        old_note(self, entry, count, lo, lacking[-1], now, is_loss=is_loss)


# -- Leaving --------------------------------------------------------------------------------------


@mutant("leave", ("G1",), STACKS, ("leave", "churn"))
def leavers_wait_for_nobody_and_say_nothing(patches: Patches) -> None:
    """A member leaves at once, and what only it could repeat is forgotten."""

    @patches.method(BeforeLeaving)
    def _measure(_self: Any) -> tuple[int, int]:
        return 0, 0

    @patches.method(Outgoing)
    def stop(self: Any, _now: float) -> None:
        self._held.clear()


# -- Keys -----------------------------------------------------------------------------------------


@mutant("change of keys", ("V4", "G8"))
def turned_keys_do_not_seal(patches: Patches) -> None:
    """A member seals by the key that it started with, whatever its file says later."""
    old = Seals.set_keys

    @patches.method(Seals)
    def set_keys(self: Any, keys: Any) -> None:
        first = vars(self).get("_own", keys[0])
        old(self, keys)
        self._own = first
        self.begin()


GROUP_BLIND: Final[dict[str, Blind]] = {
    "untaken-windows-are-idle": Blind(
        "what an ended window held is kept for its application, too",
        "tests/sim/test_unicast_blocking.py",
    ),
    "skips-claim-too-much": Blind(
        "a window that was too full to skip all that its sender lacks asks for nothing while its "
        "application is stalled, and skips the rest when that goes on: then the claim is true",
        "tests/sim/test_multicast_joins.py",
    ),
    "own-messages-go-while-a-digest-is-in-use": Blind(
        "what one multicasts in a view of its own is owed to nobody, and A1 leaves it out, since "
        "who was with it before may have it",
        "tests/sim/test_sent_while_merging.py",
    ),
}
"""Mutants that the search cannot find, and why. Their hunt fails as soon as one is found."""
