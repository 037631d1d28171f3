"""The loads of a run: members are told by their control endpoints what to send to whom.

A member sends by itself once it is told. One that is started anew is told the rest: all that no
earlier incarnation of it had sent. What is due by now it sends at once, as if it had waited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.faults import Names
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.chaos.session.roster import Roster
from stormcast.node.member.loads import Load, write_load
from stormcast.node.reading.notations import Plain

ON_TIME_SECONDS: Final = 0.25
"""Seconds by which a load may begin late without making up for it."""

Sent = Counter[tuple[int, str | None]]
"""The messages that a member has sent, by number of the load and by dest; no dest: the group."""


class Traffic:
    """All loads of a scenario. Times are seconds from its start."""

    def __init__(
        self,
        scenario: Scenario,
        roster: Roster,
        now: Callable[[], float],
        numbers: Iterator[int],
    ) -> None:
        self._loads = scenario.workload
        self._roster = roster
        self._now = now
        self._numbers = numbers
        """Numbers that no load of these members had before."""
        self._begun: dict[int, ScenarioLoad] = {}
        """The loads that began, each with a number of its own. Members know the number as a label,
        and count by it: of one pair there may be several loads at a time."""
        self._stopped: list[ScenarioLoad] = []
        """Loads that were stopped, as far as they had been sent by then."""
        self._told: set[tuple[int, str]] = set()
        """Number of a begun load, and a source whose present incarnation was told of it."""
        self._taken: Counter[tuple[str, int, str | None]] = Counter()
        """The messages that incarnations that are gone had sent, by source, load and dest; no
        dest: the group."""
        self._said: dict[str, tuple[int, Sent]] = {}
        """By member: its short id, and what it had sent, when it was last asked."""
        self._noted: dict[int, Sent] = {}
        """By short id of an incarnation, the part of that which is in `_taken`: one that leaves is
        noted as it begins to leave, and once more when it is ended or started anew."""
        self._coming: frozenset[str] = frozenset()
        self._errors: dict[str, None] = {}
        """Errors that ended loads, such as messages too large for the stack."""
        self._sending_on: set[str] = set()
        """Members that were paused when all were told to stop: they are told when they go on."""

    def expect(self, names: Iterable[str]) -> None:
        """Take the names of members that steps will still start."""
        self._coming = frozenset(names)

    def begin(self, load: ScenarioLoad) -> None:
        """Begin a load: every member that is there sends."""
        self._begun[next(self._numbers)] = load
        self.catch_up()

    def catch_up(self) -> None:
        """Tell every member that is there of the begun loads that it was not told of."""
        roster = self._roster
        for name in roster.answering():
            if name in roster.joining or name in roster.leaving:
                continue
            if name in self._sending_on:
                self._have_stop(name)
            for number, load in self._begun.items():
                if name in load.sources and (number, name) not in self._told:
                    self._go_on(name, number, load)

    def note_end(self, name: str) -> None:
        """Note how much a member has sent that is about to end."""
        self.note_sent(name)
        self._take(name)
        self._told = {told for told in self._told if told[1] != name}
        self._sending_on.discard(name)

    def _go_on(self, name: str, number: int, load: ScenarioLoad) -> None:
        """Tell a member how much is left for it to send of a load that began."""
        left = {
            dest: load.count - self._taken[name, number, dest] for dest in self._dests(load, name)
        }
        self._tell(name, number, left)

    def is_over(self) -> bool:
        """Whether every member that is there has sent its loads, and its outbox is empty, too."""
        if len(self._begun) < len(self._loads):
            return False
        sources = {name for load in self._loads for name in load.sources}
        for name in sources & set(self._roster.living()):
            if name in self._roster.leaving:
                continue
            state = None if name in self._roster.joining else self._roster.state(name)
            if state is None:
                return False
            self.note_errors(name, state["workload"])
            if any(map(self._is_running, state["workload"]["loads"])):
                return False
            if self._has_backlog(state["workload"]["waiting"]):
                return False
        return True

    def note_errors(self, name: str, workload: Mapping[str, Any]) -> None:
        """Note the errors that ended loads at a member, as it describes them."""
        # Its newest loads are not enough: who begins a load forgets those that are over.
        errors: Mapping[str, str] = workload["errors"]
        mine = [errors[str(number)] for number in self._begun if str(number) in errors]
        self._errors |= {f"{name}: {error}": None for error in mine}

    def errors(self) -> tuple[str, ...]:
        """Return the errors that ended loads before all was offered, as far as they were seen."""
        return tuple(self._errors)

    def left(self) -> tuple[str, ...]:
        """Return what members have yet to send, of loads that are not over."""
        found = []
        for name, state in self._roster.states().items():
            for load in state["workload"]["loads"]:
                found += [
                    f"{name} has {load['load']['count'] - sending['accepted']} messages left for "
                    f"{dest}" + ("" if sending["there"] else ", which is not in its view")
                    for dest, sending in load["to"].items()
                    if not load["over"] and sending["accepted"] < load["load"]["count"]
                ]
        return tuple(found)

    def _has_backlog(self, waiting: Mapping[str, int]) -> bool:
        """Whether messages wait in an outbox for the group, or for a member that is there."""
        roster = self._roster
        there = {roster.shorts.get(name) for name in roster.living()}
        return any(not int(dest, 16) or int(dest, 16) in there for dest in waiting)

    def _is_running(self, load: Mapping[str, Any]) -> bool:
        """Whether a load, as its member describes it, has messages left for a member that is there
        or will come."""
        if load["over"]:
            return False
        # A member knows no destinations before it has looked for them.
        return not load["to"] or any(
            sending["accepted"] < load["load"]["count"]
            and (sending["there"] or not self._is_gone(dest))
            for dest, sending in load["to"].items()
        )

    def _is_gone(self, dest: str) -> bool:
        roster = self._roster
        is_ending = dest in roster.leaving or not roster.is_alive(dest)
        return is_ending and dest not in self._coming

    def pairs(self) -> set[tuple[str, str]]:
        """Return each source with each dest of the loads that began."""
        return {pair for load in self._begun.values() for pair in load.pairs()}

    def stop(self) -> None:
        """Stop the loads that began: no member sends any more."""
        self._sending_on |= self._roster.paused
        for name in self._roster.answering():
            if name not in self._roster.joining:
                self._have_stop(name)
                self.note_sent(name)
        for number, load in self._begun.items():
            self._stopped += self._as_sent(number, load)
        self._begun.clear()
        self._told.clear()

    def played(self) -> tuple[ScenarioLoad, ...]:
        """Return the loads that began; those that were stopped, as far as they were sent."""
        return (*self._stopped, *self._begun.values())

    def _as_sent(self, number: int, load: ScenarioLoad) -> Iterator[ScenarioLoad]:
        """Yield what was sent of a load: the load itself, or one for each source and count."""
        sent = {
            (source, dest): self._sent(source, number, dest)
            for source in load.sources
            for dest in ((None,) if load.do == "multicast" else load.dests)
            if dest != source or not load.excludes_self
        }
        if set(sent.values()) == {load.count}:
            yield load
            return
        alike: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for (source, dest), count in sent.items():
            if count:
                alike[source, count] += load.dests if dest is None else [dest]
        for (source, count), dests in alike.items():
            yield replace(load, sources=(source,), dests=tuple(dests), count=count)

    def _sent(self, source: str, number: int, dest: str | None) -> int:
        """Return how many messages of a load all incarnations of a source had sent, when they were
        last asked."""
        me, sent = self._said.get(source, (0, Counter()))
        noted = self._noted.get(me, Counter())
        return self._taken[source, number, dest] + sent[number, dest] - noted[number, dest]

    def _have_stop(self, name: str) -> None:
        self._sending_on.discard(name)
        self._roster.tell(name, "/workload/stop", {})

    # -- What members are told -------------------------------------------------------------------

    def _dests(self, load: ScenarioLoad, source: str) -> tuple[str | None, ...]:
        """Return the dests of a source, without those that are gone and never come back."""
        if load.do == "multicast":
            return (None,)
        roster = self._roster
        return tuple(
            dest
            for dest in load.dests
            if (dest != source or not load.excludes_self)
            and (dest in self._coming or roster.is_alive(dest))
        )

    def _tell(self, name: str, number: int, left: dict[str | None, int]) -> None:
        """Have a member send `left` messages to each dest; those that are due by now go first."""
        load = self._begun[number]
        self._told.add((number, name))
        # A load that begins a tick late is on time.
        due = int((self._now() - load.start - ON_TIME_SECONDS) * load.rate)
        loads: list[Plain] = []
        for count in sorted(set(left.values())):
            dests = tuple(dest for dest, wanted in left.items() if wanted == count and dest)
            late = min(count, max(0, due - (load.count - count)))
            label = str(number)
            if late:
                loads.append(load_words(load, name, dests, late, late, label))
            if count > late:
                loads.append(load_words(load, name, dests, count - late, load.burst, label))
        if loads:
            self._roster.tell(name, "/workload", loads)

    def note_sent(self, name: str) -> None:
        """Note how much a member has sent, and what ended its loads, if it can be asked: before a
        pause, too, as it may end while it is paused."""
        if name in self._roster.joining or name not in self._roster.answering():
            return
        try:
            workload = self._roster.ask(name, "GET", "/workload")
        except MemberError:
            # The member ended by itself, a moment ago; its messages will be sent again.
            return
        self.note_errors(name, workload)
        labels: dict[str, dict[str, int]] = workload["labels"]
        sent: Sent = Counter()
        for number, load in self._begun.items():
            for dest, count in labels.get(str(number), {}).items():
                sent[number, None if load.do == "multicast" else dest] = count
        self._said[name] = self._roster.short(name) or 0, sent

    def _take(self, name: str) -> None:
        """Count what an incarnation has sent as what later ones need not send."""
        if name not in self._said:
            return
        me, sent = self._said.pop(name)
        before: Sent = self._noted.get(me, Counter())
        for (load, dest), number in sent.items():
            self._taken[name, load, dest] += number - before[load, dest]
        self._noted[me] = sent


def load_words(
    load: ScenarioLoad, source: str, dests: Names, count: int, burst: int, label: str = ""
) -> dict[str, Plain]:
    """Return the body of `POST /workload` for one source; no dests: the group. Begins at once."""
    return write_load(
        Load(
            do=load.do,
            sources=(source,),
            dests=dests,
            count=count,
            rate=load.rate,
            size=load.size,
            burst=burst,
            flags=load.flags,
            oob_every=load.oob_every,
            label=label,
        )
    )
