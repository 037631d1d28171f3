"""A failing scenario to a small one that fails in the same way: delta debugging over its parts.

What is a part is read off the dataclasses of a scenario, so that what the language learns can be
shrunk too. Entries and names go in halves, then in quarters, then one by one; values go back to
their defaults, or down. Whatever is tried is written and read as a file first, so that each step is
a scenario that could have been a file, and then run: only a violation of the same guarantee, in the
same words but for names and numbers, counts.

By what a run is judged stays as it was. A deadline that comes sooner, a smaller budget or a fault
that is never mended would make any cluster fail: what `expect` and `budget` say may go, but not get
harder to meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from math import floor, inf, log10
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from stormcast.chaos import faults
from stormcast.chaos.campaigns.fingerprint import kind_of, words_of
from stormcast.chaos.faults import RANDOM
from stormcast.chaos.language.scenario import Scenario, dump, parse_scenario
from stormcast.chaos.language.schedule import schedule
from stormcast.chaos.oracles.verdict import Finding, Verdict
from stormcast.chaos.session.runner import Outcome, Unsupported
from stormcast.node.core.errors import ConfigError

Path = tuple[str | int, ...]
"""Where a part is: names of fields, and places in lists."""

KEPT: Final = frozenset({"name", "about"})
"""Of a scenario, what has no effect on its run."""
LOWERED: Final = frozenset({"count"})
"""Numbers that are worth lowering even from their default, and never worth raising to it: each
message costs events to be read."""
MOMENTS: Final = frozenset({"at", "start"})
"""Fields that say when something begins; all other seconds are lengths, or deadlines."""
JUDGES: Final = frozenset({"expect", "budget"})
"""Of a scenario, by what a run is judged: its entries may go, and stay what they are."""
ROOM: Final = 10
"""Control frames that a budget must leave room for: a share of hardly any message says nothing."""
HALVINGS: Final = 6
"""Of the range in which a number is looked for: to a sixty-fourth of it."""
DIGITS: Final = (1, 2, 3)
"""Significant digits that a time or a share is rounded to, the fewest first."""
GRID: Final = 3
"""Decimals of what is tried: who reads a file does not think in microseconds."""
REPAIRS: Final = 8
"""Entries that may go with one that was taken out, because without it they make no sense."""
PAIRED: Final = 8
"""Up to so many entries, each two of them are tried together."""
ENDING: Final = "-minimal"
MOST_NAME: Final = 80
"""Characters of a scenario's name."""

_GONE: Final = object()
"""In place of what was about a member that is taken out."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a failing scenario is."""

    members: int
    loads: int
    steps: int
    messages: int
    events: int
    seconds: float
    """Virtual ones."""
    size_bytes: int

    def as_json(self) -> dict[str, int | float]:
        """A part of what `stormcast shrink --json` prints."""
        return asdict(self) | {"seconds": round(self.seconds, 6)}

    def __str__(self) -> str:
        return (
            f"{_many(self.members, 'member')}, {_many(self.loads, 'load')}, "
            f"{_many(self.steps, 'step')}, {_many(self.messages, 'message')}, "
            f"{_many(self.events, 'event')}, {self.seconds:.1f} virtual seconds, "
            f"{self.size_bytes} bytes"
        )


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Found(NamedTuple):
    """A scenario, how it fails, and what that takes."""

    scenario: Scenario
    failure: Finding
    size: Size


@dataclass(slots=True)
class Tally:
    """How the search for a smaller one goes."""

    runs: int = 0
    kept: int = 0
    refused: int = 0
    """Candidates that are no scenarios."""
    crashes: list[str] = field(default_factory=list)
    """Candidates that broke the simulator, which is worth a look of its own."""


class Over(Exception):
    """No time is left."""


Run = Callable[[Scenario], Outcome]


class NothingToShrink(Exception):
    """The run does not fail as asked; the text says what it does instead."""

    def __init__(self, why: str, verdict: Verdict) -> None:
        super().__init__(why)
        self.verdict = verdict
        """Of the run."""


def violations(outcome: Outcome, guarantee: str | None = None) -> list[Finding]:
    """What a run violated, or only those findings that are about one guarantee."""
    return [
        finding
        for finding in outcome.judgement.findings
        if finding.verdict is Verdict.VIOLATED and guarantee in (None, finding.guarantee)
    ]


class Shrinker:
    """Holds the smallest scenario so far, and tries smaller ones.

    Invariant: `best` fails as asked, and was read from its own text.
    """

    def __init__(
        self,
        scenario: Scenario,
        guarantee: str | None,
        run: Run,
        is_over: Callable[[], bool] = lambda: False,
        tell: Callable[[Shrinker], None] = lambda _shrinker: None,
    ) -> None:
        self.tally = Tally()
        self._run = run
        self._is_over = is_over
        self._tell = tell
        outcome = run(scenario)
        found = violations(outcome, guarantee)
        if not found:
            raise NothingToShrink(_why_nothing(outcome, guarantee), outcome.verdict)
        self.first = Found(scenario, found[0], _size(scenario, outcome))
        text = dump(replace(scenario, about=""))
        self._tried = {text}
        self.best = self.first._replace(scenario=parse_scenario(text))

    def shrink(self) -> Found:
        """Until nothing smaller fails any more; raises Over when the time is up before that."""
        self._try(replace(self.best.scenario, guarantees=(self.first.failure.guarantee,)))
        before = None
        while before != self.best.scenario:
            before = self.best.scenario
            # Members first: what a run costs grows with their square.
            self._part_with_members()
            self._visit((), Scenario)
            self._close_gaps()
        return self.best

    # -- One candidate ---------------------------------------------------------------------------

    def _try(self, candidate: Scenario, *, repairs: int = 0) -> bool:
        """Whether a candidate fails in the same way; if so, it is the best from now on."""
        read = self._read(candidate, repairs)
        if read is None:
            return False
        text = dump(read)
        if text in self._tried:
            return False
        self._tried.add(text)
        # What a file says is not handed to the seed: it would be shorter, and say less.
        is_vaguer = text.count(RANDOM) > dump(self.best.scenario).count(RANDOM)
        if is_vaguer or not self._is_fair(read):
            self.tally.refused += 1
            return False
        if self._is_over():
            raise Over
        found = self._judged(read)
        if found is not None:
            self.best = found
            self.tally.kept += 1
        self._tell(self)
        return found is not None

    def _read(self, candidate: Scenario, repairs: int) -> Scenario | None:
        """The candidate as a file says it, or None; what an entry's going makes senseless goes too.

        `dump` asserts that a file can say it: some combinations of sources and dests it can not.
        """
        for _ in range(repairs + 1):
            try:
                text = dump(candidate)
            except AssertionError:
                break
            try:
                return parse_scenario(text)
            except ConfigError as error:
                at = error.place
                smaller = _without_line(candidate, text, at.line) if repairs and at else None
                if smaller is None:
                    break
                candidate = smaller
        self.tally.refused += 1
        return None

    def _is_fair(self, candidate: Scenario) -> bool:
        """Whether a deadline is as easy to keep as it was: no fault lasts longer than all did."""
        if self.first.failure.guarantee != "G8" or not candidate.expect:
            return True
        pairs = zip(_aftermath(candidate), _aftermath(self.best.scenario), strict=True)
        return all(now <= before for now, before in pairs)

    def _judged(self, candidate: Scenario) -> Found | None:
        self.tally.runs += 1
        try:
            outcome = self._run(candidate)
        except (ConfigError, Unsupported):
            return None
        except Exception as error:  # noqa: BLE001 whatever it is, it is not the failure looked for
            self.tally.crashes.append(repr(error))
            return None
        first = self.first
        # Names of both, so that a word which is a name in one of them is no word in the other.
        names = {*first.scenario.cluster.members, *candidate.cluster.members}
        kind = kind_of(words_of(first.failure), names)
        for finding in violations(outcome, first.failure.guarantee):
            if kind_of(words_of(finding), names) == kind:
                found = Found(candidate, finding, _size(candidate, outcome))
                return found if self._is_proof(found) else None
        return None

    def _is_proof(self, found: Found) -> bool:
        """Whether a run was long enough to be judged as the first one was."""
        first = self.first
        if found.failure.guarantee == "C1":
            room = min(ROOM, _room(first.scenario, first.size.messages))
            return _room(found.scenario, found.size.messages) >= room
        if found.failure.guarantee == "G8":
            # What has not happened when a run ends early may have happened by its deadline.
            deadline = max((one.by for one in found.scenario.expect), default=0.0)
            return found.size.seconds >= min(deadline, first.size.seconds)
        return True

    def _try_at(self, path: Path, value: object, *, repairs: int = 0) -> bool:
        return self._try(_with(self.best.scenario, path, value), repairs=repairs)

    # -- Parts of any kind -----------------------------------------------------------------------

    def _visit(self, path: Path, hint: Any, default: object = MISSING) -> None:  # noqa: ANN401 hints have no type
        """Simplify one part of the best scenario, and what is in it."""
        value = _at(self.best.scenario, path)
        if _may_return_to(default, value, path) and self._try_at(path, default):
            return
        if is_dataclass(value):
            kind: Any = type(value)
            hints = _hints(kind)
            for part in fields(value):
                if part.compare and not (path == () and part.name in KEPT):
                    self._visit((*path, part.name), hints[part.name], _default(part))
        elif isinstance(value, tuple):
            self._visit_tuple(path, _tuple_hint(hint), default)
        elif path[0] in JUDGES or (value == default and path[-1] not in LOWERED):
            return
        elif isinstance(value, int) and not isinstance(value, bool):
            self._lower_whole(path, _floor(default, path))
        elif isinstance(value, float):
            self._lower(path, default)

    def _visit_tuple(self, path: Path, hint: Any, default: object) -> None:  # noqa: ANN401 as above
        """A list gets shorter; a record of fixed length, such as a range, gets narrower."""
        inner = get_args(hint)
        if len(inner) == 2 and inner[1] is Ellipsis:  # noqa: PLR2004 `tuple[X, ...]`
            # Members are more than their names, and fewer names are another yardstick.
            if path == ("cluster", "members") or (path[0] in JUDGES and len(path) > 1):
                return
            self._thin(path)
            for at in range(len(_at(self.best.scenario, path))):
                self._visit((*path, at), inner[0])
        elif set(inner) == {int}:
            if _at(self.best.scenario, path) != default:
                self._narrow(path)
        else:
            for at, part in enumerate(inner):
                if get_origin(part) is tuple:
                    self._visit((*path, at), part)

    def _thin(self, path: Path) -> None:
        """Take out as much of a list as can go: all, halves, quarters, …, single entries, pairs."""
        # What makes no sense without it goes with an entry, but not with a name in a list of names.
        repairs = REPAIRS if len(path) == 1 else 0
        chunk = len(_at(self.best.scenario, path))
        while chunk:
            at = 0
            while at < len(items := _at(self.best.scenario, path)):
                if not self._try_at(path, items[:at] + items[at + chunk :], repairs=repairs):
                    at += chunk
            chunk //= 2
        if repairs:
            self._thin_by_pairs(path)

    def _thin_by_pairs(self, path: Path) -> None:
        """A fault and its cure may have to go together."""
        one, two = 0, 1
        while two < len(items := _at(self.best.scenario, path)) <= PAIRED:
            rest = (*items[:one], *items[one + 1 : two], *items[two + 1 :])
            if self._try_at(path, rest, repairs=REPAIRS):
                one, two = 0, 1
                continue
            two += 1
            if two >= len(items):
                one, two = one + 1, one + 2

    def _narrow(self, path: Path) -> None:
        """A range to one of its ends, and that end down."""
        low, high = _at(self.best.scenario, path)
        if low != high and not self._try_at(path, (low, low)):
            self._try_at(path, (high, high))
        low, high = _at(self.best.scenario, path)
        if low == high:
            self._search(0, low, lambda number: self._try_at(path, (number, number)))

    # -- Numbers ---------------------------------------------------------------------------------

    def _lower_whole(self, path: Path, lowest: int) -> None:
        value = _at(self.best.scenario, path)
        self._search(lowest, value, lambda number: self._try_at(path, number))

    @staticmethod
    def _search(low: int, high: int, fails: Callable[[int], bool]) -> None:
        """Look for a smaller number that still fails, as if all above it did."""
        for small in (low, low + 1):
            if small < high and fails(small):
                return
        low += 1
        while high - low > 1:
            middle = (low + high) // 2
            if fails(middle):
                high = middle
            else:
                low = middle

    def _lower(self, path: Path, default: object) -> None:
        """Seconds, shares and the like: down to their default or to 0, and rounded."""
        low = 0.0 if default is MISSING or default is None else default
        high = _at(self.best.scenario, path)
        assert isinstance(low, float | int)
        if high > low:
            high = self._halve(path, float(low), high)
        for digits in DIGITS:
            rounded = _rounded(high, digits)
            if len(repr(rounded)) < len(repr(high)) and self._try_at(path, rounded):
                return

    def _halve(self, path: Path, low: float, high: float) -> float:
        if low == 0.0 and self._try_shorter(path, 0.0):
            return 0.0
        for _ in range(HALVINGS):
            middle = round(_rounded((low + high) / 2, 2), GRID)
            if not low < middle < high:
                break
            if self._try_shorter(path, middle):
                high = middle
            else:
                low = middle
        return high

    def _try_shorter(self, path: Path, value: float) -> bool:
        """As `_try_at`, unless the run gets longer by it: a lower rate is no smaller scenario."""
        before, tried = self.best, self._try_at(path, value)
        if tried and self.best.size.seconds > before.size.seconds:
            self.best = before
            self.tally.kept -= 1
            return False
        return tried

    # -- The whole scenario ----------------------------------------------------------------------

    def _part_with_members(self) -> None:
        """Take members out, and all that is about them; close the gaps in their names."""
        chunk = len(self.best.scenario.cluster.members) - 1
        while chunk > 0:
            at = len(self.best.scenario.cluster.members)
            while at > 0:
                gone = self.best.scenario.cluster.members[max(0, at - chunk) : at]
                at -= chunk
                smaller = _without_members(self.best.scenario, frozenset(gone))
                if smaller is not None and not self._try(_renamed(smaller), repairs=REPAIRS):
                    # Names decide what becomes of frames: with others it may hold.
                    self._try(smaller, repairs=REPAIRS)
            chunk //= 2
        self._try(_renamed(self.best.scenario))

    def _close_gaps(self) -> None:
        """Move everything from a moment on earlier, all the way to what is before it, or half."""
        number = 0
        while number < len(
            moments := sorted({time for _path, time in _moments(self.best.scenario)})
        ):
            gap = moments[number] - (moments[number - 1] if number else 0.0)
            for by in (gap, round(gap / 2, GRID), round(gap / 4, GRID)):
                if by > 0 and self._try(_earlier(self.best.scenario, moments[number], by)):
                    break
            number += 1


# -- Parts of a scenario ---------------------------------------------------------------------------


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 any dataclass
    return get_type_hints(kind)


def _tuple_hint(hint: Any) -> Any:  # noqa: ANN401 hints have no type
    """The tuple among the types that a part may have."""
    if get_origin(hint) is tuple:
        return hint
    return next((one for one in get_args(hint) if get_origin(one) is tuple), None)


def _default(part: Field[Any]) -> object:
    if part.default_factory is not MISSING:
        return part.default_factory()
    return part.default


def _may_return_to(default: object, value: object, path: Path) -> bool:
    """Whether a default would be simpler than the value."""
    if default is MISSING or default == value:
        return False
    if isinstance(default, tuple) and isinstance(value, tuple):
        return len(default) <= len(value)
    if path[-1] in LOWERED:
        return isinstance(default, int) and isinstance(value, int) and default < value
    return True


def _floor(default: object, path: Path) -> int:
    """How far down a whole number may go."""
    if isinstance(default, int) and path[-1] not in LOWERED:
        return default
    return 0


def _at(root: object, path: Path) -> Any:  # noqa: ANN401 a part of any kind
    for step in path:
        root = getattr(root, step) if isinstance(step, str) else root[step]  # type: ignore[index]
    return root


def _with(root: Any, path: Path, value: object) -> Any:  # noqa: ANN401 as above
    """A copy in which one part is another."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        return replace(root, **{step: _with(getattr(root, step), rest, value)})
    return (*root[:step], _with(root[step], rest, value), *root[step + 1 :])


def _rounded(value: float, digits: int) -> float:
    if value == 0.0:
        return 0.0
    return round(value, digits - 1 - floor(log10(abs(value))))


def _without_line(scenario: Scenario, text: str, line: int) -> Scenario | None:
    """Without the entry that stands on a line of its text; None: no entry stands there."""
    key, number = "", 0
    for at, words in enumerate(text.splitlines(), 1):
        if words.startswith("  - "):
            number += 1
        else:
            key, number = words.partition(":")[0], 0
        if at == line:
            break
    if not number:
        return None
    entries = getattr(scenario, key)
    smaller: Scenario = _with(scenario, (key,), entries[: number - 1] + entries[number:])
    return smaller


def _without_members(scenario: Scenario, gone: frozenset[str]) -> Scenario | None:
    """Without some members, and without what is only about them; None: they are all."""
    cluster = scenario.cluster
    if gone.issuperset(cluster.members):
        return None
    # Of the cluster itself a list of names may become empty; elsewhere that means something.
    listed: dict[str, Any] = {
        part.name: tuple(one for one in value if one not in gone)
        for part in fields(cluster)
        if isinstance(value := getattr(cluster, part.name), tuple)
    }
    parts: dict[str, Any] = {
        part.name: tuple(left for one in entries if (left := _without(one, gone)) is not _GONE)
        for part in fields(scenario)
        if isinstance(entries := getattr(scenario, part.name), tuple)
        and any(map(is_dataclass, entries))
    }
    return replace(scenario, cluster=replace(cluster, **listed), **parts)


def _without(value: Any, gone: frozenset[str]) -> Any:  # noqa: ANN401 a part of any kind
    """A part without some members; `_GONE` if nothing is left that it is about."""
    if isinstance(value, str):
        return _GONE if value in gone else value
    if isinstance(value, tuple):
        left = tuple(part for one in value if (part := _without(one, gone)) is not _GONE)
        return _GONE if value and not left else left
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _without(getattr(value, part.name), gone) for part in fields(value)}
        return _GONE if _GONE in parts.values() else replace(value, **parts)
    return value


def _renamed(scenario: Scenario) -> Scenario:
    """With the names that members have when nobody names them: n0, n1, …"""
    members = scenario.cluster.members
    new = dict(zip(members, (f"n{number}" for number in range(len(members))), strict=True))
    parts = {
        part.name: _translated(getattr(scenario, part.name), new)
        for part in fields(scenario)
        if part.compare and part.name not in KEPT
    }
    return replace(scenario, **parts)


def _translated(value: Any, new: dict[str, str]) -> Any:  # noqa: ANN401 a part of any kind
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, tuple):
        return tuple(_translated(one, new) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{part.name: _translated(getattr(value, part.name), new)
                      for part in fields(value)}
        )  # fmt: skip
    return value


def _moments(scenario: Scenario) -> Iterator[tuple[Path, float]]:
    """When loads and steps begin, and where that stands."""
    for part in fields(scenario):
        entries = getattr(scenario, part.name)
        for number, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            for one in fields(entry) if is_dataclass(entry) else ():
                if one.name in MOMENTS:
                    yield (part.name, number, one.name), getattr(entry, one.name)


def _earlier(scenario: Scenario, since: float, by: float) -> Scenario:
    """With everything that begins from a moment on earlier by so many seconds."""
    for path, time in list(_moments(scenario)):
        if time >= since:
            scenario = _with(scenario, path, max(0.0, round(time - by, 6)))
    return scenario


def _aftermath(scenario: Scenario) -> tuple[float, int]:
    """When the last fault is over, and how many members are down from then on."""
    # Who is drawn from a seed makes no difference to when.
    steps, down = schedule(scenario, 0), set()
    for step in steps:
        match step.action:
            case faults.Crash(member=member) | faults.Leave(member=member):
                down.add(member)
            case faults.Restart(member=member) | faults.Join(member=member):
                down.discard(member)
    return max((step.at for step in steps), default=0.0), len(down)


def _room(scenario: Scenario, messages: int) -> float:
    """The fewest control frames that its budget's shares allow for so many messages."""
    budget = scenario.budget
    shares = (budget.acks, budget.resends) if budget is not None else ()
    return min((share * messages for share in shares if share is not None), default=inf)


def _why_nothing(outcome: Outcome, guarantee: str | None) -> str:
    """What a run does that does not fail as asked."""
    others = list(dict.fromkeys(finding.guarantee for finding in violations(outcome)))
    if others:
        return f"the run violates {', '.join(others)}, but not {guarantee}"
    doubts = [one for one in outcome.judgement.findings if one.verdict is Verdict.UNKNOWN]
    if doubts:
        return f"the run is unknown: {doubts[0].guarantee}: {doubts[0].detail}"
    return "the run holds"


def _size(scenario: Scenario, outcome: Outcome) -> Size:
    text = dump(replace(scenario, about=""))
    return Size(
        len(scenario.cluster.members),
        len(scenario.workload),
        len(scenario.timeline),
        outcome.run.sent,
        outcome.run.events,
        outcome.run.seconds,
        len(text.encode()),
    )


# -- What is left of it --------------------------------------------------------------------------


def regression(found: Found, first: Size, seed: int, command: str) -> str:
    """A scenario file that keeps what was found: it says itself what it shows, and how."""
    failure = found.failure
    witness = f" Witness: {failure.witness[0]}" if failure.witness else ""
    about = f"Seed {seed} violates {failure.guarantee}: {failure.detail}.{witness}"
    name = found.scenario.name.removesuffix(ENDING)[: MOST_NAME - len(ENDING)].rstrip("-") + ENDING
    scenario = replace(found.scenario, name=name, about=about)
    head = (
        f"# Expected: violated, {failure.guarantee}, with seed {seed}.\n"
        f"#   {command}\n"
        f"# Before it was shrunk: {first}.\n"
    )
    return head + dump(scenario)
