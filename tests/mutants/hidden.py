"""Bugs that no run can show, and the tests that fail while the product has them.

A guarantee is judged by what members send and deliver. What an application or an operator gets
wrong is refused before anything is sent, so no seed can meet it; and some rules of the protocols
spare work that no guarantee limits. Each bug here, and each mutant that the search is known to
miss, names a test; `tests/mutants/test_mutants.py` runs that test with the bug, and it must fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from stormcast.node import callbacks
from stormcast.node.control.answers import Answer, as_json, parse_mapping
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.known_members import KnownMembers
from stormcast.node.member import commands
from stormcast.node.protocols.events import Vouched
from stormcast.node.protocols.gms.casting import Casting
from stormcast.node.protocols.gms.newcomers import Newcomers
from stormcast.node.protocols.gms.suspects import Suspects
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.unicast.feedback import Feedback
from stormcast.node.protocols.unicast.repairs import Repairs
from stormcast.node.settings import files, layers, rules
from stormcast.node.stack import accepting
from stormcast.node.stack.events import Events
from tests.mutants.patches import Patches, applied


@dataclass(frozen=True, slots=True)
class Blind:
    """A reason why the search cannot find a mutant, and the test that fails with it."""

    why: str
    test: str
    """A file of tests, and mostly one of its tests: `tests/sim/test_x.py::test_y`."""

    def __str__(self) -> str:
        return f"{self.why}; `{self.test.partition('::')[0]}` fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenMutant:
    """One known bug that no run can show."""

    name: str
    about: str
    source: str
    """The issue or the design note that describes it."""
    test: str
    """The test that fails with it, as in `Blind`."""
    bug: Callable[[Patches], None]

    def alive(self) -> AbstractContextManager[None]:
        """While this lasts the product has the bug."""
        return applied(self.bug)


HIDDEN_MUTANTS: Final[dict[str, HiddenMutant]] = {}
Bug = Callable[[Patches], None]


def hidden(source: str, test: str) -> Callable[[Bug], Bug]:
    """Register a bug under the name of its function, described by its docstring."""

    def register(bug: Bug) -> Bug:
        name = re.sub("_", "-", bug.__name__)
        about = " ".join((bug.__doc__ or "").split())
        HIDDEN_MUTANTS[name] = HiddenMutant(
            name=name, about=about, source=source, test=f"tests/{test}", bug=bug
        )
        return bug

    return register


# -- What applications and operators get wrong ----------------------------------------------------


@hidden(
    "control endpoint",
    "unit/test_member_endpoints.py::test_a_view_without_the_member_itself_is_refused",
)
def views_without_the_member_reach_the_stack(patches: Patches) -> None:
    """POST /view installs whatever members it is told."""

    def install_view(member: Any, body: object) -> Answer:
        values = parse_mapping(body, "")
        members = commands._people(values, "members")
        runtime = commands.running(member)
        view = View(ViewId(values["number"], members[0]), members)
        runtime.stack.install_view(view, runtime.now())
        return as_json({"view": str(view.id)})

    patches.put(commands, "install_view", install_view)


@hidden("test protocols", "unit/test_settings_rules.py")
def test_protocols_may_lose_what_nobody_repairs(patches: Patches) -> None:
    """DISCARD and DROP below a NAKACK2 without retransmission start without a word."""
    patches.put(rules, "losing_below", lambda _protocol, _layers: [])


@hidden("stack files", "unit/test_stack_files.py::test_a_stack_file_is_read_by_its_path")
def stacks_are_names_only(patches: Patches) -> None:
    """A path is taken for the name of a stack that ships."""
    patches.put(files, "is_path", lambda _stack: False)


@hidden("JGroups' names", "unit/test_jgroups_names.py")
def names_of_jgroups_are_unknown(patches: Patches) -> None:
    """A setting by its name in JGroups is refused without its name here."""
    patches.put(layers, "setting_here", lambda _protocol, _name, _known: "")


@hidden(
    "messages that are no bytes",
    "integration/test_channel.py::"
    "test_what_is_no_bytes_is_refused_at_once_and_leaving_takes_no_longer",
)
def text_is_accepted(patches: Patches) -> None:
    """Whatever has a length is queued, and fails where batches are packed."""
    patches.put(accepting, "as_payload", lambda message: message)


@hidden("unknown destinations", "unit/test_known_members.py")
def unknown_names_are_missing_keys(patches: Patches) -> None:
    """An unknown destination is a KeyError that does not say who is there."""

    @patches.method(KnownMembers)
    def named(self: Any, name: str) -> Address:
        by_name: Mapping[str, Address] = {one.name: one for one in self._known.values()}
        return by_name[name]


@hidden("callbacks", "unit/test_callbacks.py")
def coroutines_are_called_and_dropped(patches: Patches) -> None:
    """A coroutine function may be a callback; what it returns is thrown away."""
    patches.put(callbacks, "as_callback", lambda _name, call: call)
    patches.put(callbacks, "check_result", lambda _result: None)


# -- Statements of the design notes ---------------------------------------------------------------


@hidden(
    "note UNICAST3, retransmission",
    "sim/test_unicast_timing.py::test_nothing_is_repeated_while_the_highest_sent_moves",
)
def repairs_look_at_acks_alone(patches: Patches) -> None:
    """The newest message is resent although more was sent since the last look."""
    old = Repairs._look_at_acks

    @patches.method(Repairs)
    def _look_at_acks(self: Repairs, entry: Any, now: float) -> None:
        low, _high = entry.watermark
        entry.watermark = (low, entry.window.high)
        old(self, entry, now)


@hidden(
    "note UNICAST3 sync, timestamps",
    "sim/test_unicast_reconnect.py::"
    "test_a_sync_that_is_not_newer_than_what_was_believed_is_dropped",
)
def old_syncs_are_answered(patches: Patches) -> None:
    """A SEND_FIRST_SEQNO counts whatever its timestamp is."""
    old = Feedback._is_stale

    @patches.method(Feedback)
    def _is_stale(self: Feedback, entry: Any, head: Any, what: str, now: float) -> bool:
        return what != "sfs" and old(self, entry, head, what, now)


@hidden(
    "note NAKACK2, become-server queue",
    "sim/test_no_retransmission.py::test_the_queue_of_a_joiner_has_no_bound",
)
def queues_are_bounded_without_retransmission(patches: Patches) -> None:
    """What comes before the view is refused beyond a bound, though nobody repeats it."""
    old = Early.queue

    @patches.method(Early)
    def queue(self: Early, head: Any, body: bytes) -> None:
        cost = max(head.count, 1)
        if self._queued_messages + cost > self._state.config.become_server_queue_size:
            self._port.drop("become-server-queue-full", cost)
            return
        old(self, head, body)


@hidden(
    "note NAKACK2, become-server queue",
    "sim/test_no_retransmission.py::test_the_bound_of_a_joiner_s_queue_follows_the_interval",
)
def the_bound_of_a_queue_is_that_of_the_start(patches: Patches) -> None:
    """The queue before the view keeps the bound that it had when its first frame came."""
    old = Early.queue
    retransmits: dict[int, bool] = {}

    @patches.method(Early)
    def queue(self: Early, head: Any, body: bytes) -> None:
        bounded = retransmits.setdefault(id(self), self._state.config.retransmits)
        cost = max(head.count, 1)
        if bounded and self._queued_messages + cost > self._state.config.become_server_queue_size:
            self._port.drop("become-server-queue-full", cost)
            return
        old(self, head, body)


# -- What has to coincide in membership -----------------------------------------------------------


@hidden(
    "suspicions",
    "sim/test_old_suspicions.py::test_who_was_cleared_long_ago_stays_when_the_coordinator_leaves",
)
def suspicions_do_not_age(patches: Patches) -> None:
    """Who was confirmed to be dead minutes ago is excluded without being asked again."""
    patches.put(Suspects, "_is_old", lambda *_asked: False)


@hidden(
    "suspicions",
    "sim/test_old_suspicions.py::"
    "test_who_is_alive_as_another_member_says_is_not_confirmed_to_be_dead",
)
def an_unsuspect_ends_no_question(patches: Patches) -> None:
    """UNSUSPECT clears a member in FD_SOCK2 alone."""
    old = Events.on_event

    @patches.method(Events)
    def on_event(self: Events, event: Any, now: float) -> None:
        if not isinstance(event, Vouched):
            old(self, event, now)


@hidden(
    "joins",
    "sim/test_gms_join.py::test_a_late_question_to_join_brings_back_nobody_who_was_excluded",
)
def the_excluded_join_again(patches: Patches) -> None:
    """A late copy of a JOIN_REQ lets in a member that was excluded since."""
    patches.put(Casting, "take_gone", lambda *_asked: [])


# -- What a rig alone makes of frames -------------------------------------------------------------


@hidden("repeats", "sim/test_told_apart.py::test_no_two_merges_ask_alike_for_proofs")
def proofs_of_all_merges_are_alike(patches: Patches) -> None:
    """PROVE has no number, so that a rig loses it in each merge or in none."""
    old = Newcomers.ask

    @patches.method(Newcomers)
    def ask(self: Newcomers, members: Any, merge: Any, *more: Any) -> None:
        old(self, members, merge._replace(number=0), *more)
