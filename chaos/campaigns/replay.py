"""Runs a run directory again: the same scenario, seed and dice must give the same bytes.

If they do not, the first event that differs shows where to look. If the versions differ, too, a
difference proves nothing, and the replay reports that instead.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.by_name import SIM
from stormcast.chaos.faults import Listen
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.language.scenario import Scenario, load_scenario
from stormcast.chaos.records.digest import EVIDENCE, digest_of
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.versions import versions
from stormcast.node.core.errors import BadTrace, NodeError
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.trace import Event, read_blocks_untrusted
from stormcast.node.trace.words import describe

FILES: Final = ("scenario.yaml", "seed", "versions.json", "verdict.json")
"""The files that a run directory must have besides its traces."""
NO_PART_OF_IT: Final = frozenset({"run", "given_key", EVIDENCE})
"""Keys of `verdict.json` that are not compared: the run's place, the key of its members, and the
digest of the evidence, which is compared itself."""
OTHERS: Final = (
    "verdict.json was made from other traces, or another scenario or seed, than lie beside it"
)
USUAL_FATE: Final = "xxh3"
"""The dice of a run whose verdict names none."""
Keys = tuple[ClusterKey, ...]
_NOTHING: Final = "nothing: it ends before this"


class NotARunError(NodeError):
    """A directory is no run directory, or is damaged; the text says what is missing or wrong."""


class NotRepeatableError(NodeError):
    """A kept run cannot be repeated as it was asked for; the text says what to do instead."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run directory, read to be run again."""

    directory: Path
    seed: int
    fate: str
    min_bites: int | None
    """The bites that each fault must have had; None: the default of a run."""
    versions: dict[str, str]
    verdict: dict[str, Any]
    """The object that `stormcast run --json` printed."""
    traces: dict[str, bytes]
    is_of_others: bool
    """Whether the verdict was made from other traces, or another scenario or seed, than these."""

    @property
    def backend(self) -> str:
        """The backend that it ran on."""
        return str(self.verdict.get("backend", SIM))

    @property
    def given_key(self) -> str | None:
        """The name of the key that its members were given; None: none, or it does not say."""
        name = self.verdict.get("given_key")
        return name if isinstance(name, str) else None

    def key_of(self, scenario: Scenario, keys: Keys) -> Keys:
        """Return the key of its members, which is one of these; none where nothing of its traces
        depends on it. NotRepeatableError: it is not among them."""
        if self.given_key is None:
            return keys
        found = tuple(key for key in keys if key.name == self.given_key)
        is_heard = any(isinstance(step.action, Listen) for step in scenario.timeline)
        if not found and (keys or is_heard):
            raise NotRepeatableError(
                f"members of {self.directory} sealed by key {self.given_key} of a file, and what "
                "strangers heard depends on it: give that file, --key-file FILE"
            )
        return found

    def real_run_error(self, flags: str, advice: str = "") -> NotRepeatableError:
        """Return the error about a run of real members: equal frames meet an equal fate, but no two
        such runs are equal. `flags` are those with which its scenario runs again."""
        file = shlex.quote(str(self.directory / "scenario.yaml"))
        again = f"stormcast run {file} --seed {self.seed} {flags}"
        return NotRepeatableError(
            f"{self.directory} ran on {self.backend}, which nothing repeats: {again}{advice}"
        )

    def scenario(self) -> Scenario:
        """Load the scenario, as this version reads it."""
        return load_scenario(self.directory / "scenario.yaml")

    def run_again(self, scenario: Scenario, keys: Keys = ()) -> RunOutcome:
        """Run a scenario with this run's seed, dice and least bites; writes nothing."""
        return run_scenario(
            scenario, self.seed, fate=self.fate, min_bites=self.min_bites, keys=keys
        )

    def other_versions(self) -> dict[str, tuple[str, str]]:
        """Return the versions that differ from those of the run, by name: then, and now."""
        now = versions()
        return {
            name: (then, now.get(name, "not said"))
            for name, then in self.versions.items()
            if then != now.get(name)
        }


class Result(Enum):
    """The result of a replay."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    UNPROVEN = "unproven"
    """The runs differ, and so do the versions."""

    def __str__(self) -> str:
        return self.value


class Difference(NamedTuple):
    """The first event in which two traces differ; `recorded` or `now` is None if that trace ends
    before it."""

    time: float
    member: str
    number: int
    recorded: str | None
    now: str | None
    fields: dict[str, tuple[object, object]]
    """The fields that differ, if both traces have the event: recorded, and now."""

    def as_json(self) -> dict[str, Any]:
        """Return a part of the object that `stormcast replay --json` prints."""
        return {**self._asdict(), "fields": _sides(self.fields)}

    def lines(self) -> list[str]:
        """Return the lines of the report."""
        lines = [
            f"first difference: {self.member}#{self.number}",
            f"  recorded  {self.recorded or _NOTHING}",
            f"  now       {self.now or _NOTHING}",
        ]
        changed = [f"{name} {then}, now {now}" for name, (then, now) in self.fields.items()]
        return [*lines, *([f"  differs in  {'; '.join(changed)}"] if changed else [])]


@dataclass(frozen=True, slots=True)
class Replay:
    """A run and its repetition, compared."""

    kept: KeptRun
    outcome: RunOutcome
    traces: dict[str, str]
    """By label of a trace: `identical`, `different`, `missing` (now), or `new`."""
    first: Difference | None
    verdict: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """The keys of the verdict that differ: recorded, and now."""

    @property
    def result(self) -> Result:
        is_same = not self.verdict and not self.kept.is_of_others
        if is_same and set(self.traces.values()) <= {"identical"}:
            return Result.IDENTICAL
        return Result.UNPROVEN if self.kept.other_versions() else Result.DIFFERENT

    def as_json(self) -> dict[str, Any]:
        """Return the object that `stormcast replay --json` prints."""
        return {
            "scenario": self.outcome.scenario.name,
            "run": str(self.kept.directory),
            "seed": self.kept.seed,
            "fate": self.kept.fate,
            "result": str(self.result),
            "verdict": {
                "recorded": self.kept.verdict["verdict"],
                "now": str(self.outcome.verdict),
            },
            "traces": self.traces,
            "first": self.first.as_json() if self.first else None,
            "differs": _sides(self.verdict),
            "verdict_is_of_others": self.kept.is_of_others,
            "versions": _sides(self.kept.other_versions()),
        }

    def report(self) -> str:
        """Return the text that `stormcast replay` prints."""
        lines = [f"{self.outcome.scenario.name}: {self.result}   seed {self.kept.seed}"]
        if self.first:
            lines += self.first.lines()
        same = sum(state == "identical" for state in self.traces.values())
        others = [
            f"{label} {state}" for label, state in self.traces.items() if state != "identical"
        ]
        size = sum(map(len, self.outcome.run.traces.values()))
        lines.append(
            f"traces: {same} of {len(self.traces)} identical, {size} bytes"
            + (f"; {', '.join(others)}" if others else "")
        )
        lines.append(f"verdict: {self._verdict_words()}")
        if self.kept.is_of_others:
            lines.append(f"  {OTHERS}: it proves nothing of them")
        for name, (recorded, now) in self.verdict.items():
            if name != "verdict":
                lines.append(f"  {name}: {_apart(recorded, now)}")
        for name, (then, now) in self.kept.other_versions().items():
            lines.append(f"version of {name}: {then}, now {now}")
        if self.result is Result.UNPROVEN:
            lines.append("a difference between versions is no fault: replay it with those it had")
        return "\n".join(lines)

    def _verdict_words(self) -> str:
        recorded, now = self.kept.verdict["verdict"], str(self.outcome.verdict)
        return f"{now}, as recorded" if recorded == now else f"{recorded}, now {now}"


def read_run(directory: Path) -> KeptRun:
    """Read a run directory; NotARunError names what it lacks."""
    if not directory.is_dir():
        raise NotARunError(f"{directory} is no directory: give one that a run left, such as runs/…")
    missing = [name for name in FILES if not (directory / name).is_file()]
    traces = sorted(directory.glob("trace/*.trace"))
    if not traces:
        missing.append("trace/*.trace")
    if missing:
        raise NotARunError(
            f"{directory} is no run directory: it lacks {', '.join(missing)}; "
            "stormcast run FILE --out DIRECTORY makes one"
        )
    verdict = _read_record(directory / "verdict.json", "verdict", "findings")
    files = {path.relative_to(directory).as_posix(): path.read_bytes() for path in traces}
    digest = digest_of(
        files | {name: (directory / name).read_bytes() for name in ("scenario.yaml", "seed")}
    )
    return KeptRun(
        directory,
        _read_seed(directory / "seed"),
        _read_fate(directory, verdict),
        _read_min_bites(directory, verdict),
        {name: str(what) for name, what in _read_record(directory / "versions.json").items()},
        verdict,
        {path.stem: files[path.relative_to(directory).as_posix()] for path in traces},
        # Verdicts of older versions have no digest of their evidence.
        verdict.get(EVIDENCE, digest) != digest,
    )


def _read_record(path: Path, *needed: str) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise NotARunError(f"{path} is damaged: {error}") from None
    if not isinstance(record, dict) or not record.keys() >= set(needed):
        what = f" with {' and '.join(needed)}" if needed else ""
        raise NotARunError(f"{path} is damaged: it is no JSON object{what}")
    return record


def _read_seed(path: Path) -> int:
    text = path.read_text(errors="replace").strip()
    if not (text.isascii() and text.isdecimal()):
        raise NotARunError(f"{path} is damaged: {text[:20]!r} is no seed")
    return int(text)


def _read_fate(directory: Path, verdict: dict[str, Any]) -> str:
    fate = verdict.get("fate", USUAL_FATE)
    if fate not in FATES:
        raise NotARunError(
            f"{directory}/verdict.json: there are no dice {fate!r}; known: {', '.join(FATES)}"
        )
    return str(fate)


def _read_min_bites(directory: Path, verdict: dict[str, Any]) -> int | None:
    bites = verdict.get("min_bites")
    if bites is not None and type(bites) is not int:
        raise NotARunError(f"{directory}/verdict.json: min_bites is {bites!r}, which is no number")
    return bites


def replay(kept: KeptRun, keys: Keys = ()) -> Replay:
    """Run a kept run again, and compare. `keys`: those of the file that the run was given."""
    scenario = kept.scenario()
    outcome = kept.run_again(scenario, kept.key_of(scenario, keys))
    now = outcome.run.traces
    states = {
        label: _state(kept.traces.get(label), now.get(label))
        for label in sorted(kept.traces.keys() | now.keys())
    }
    names = _names(kept.traces) | _names(now)
    differences = [
        _first_difference(label, kept.traces.get(label, b""), now.get(label, b""), names)
        for label, state in states.items()
        if state != "identical"
    ]
    first = min(differences, key=lambda one: (one.time, one.member), default=None)
    return Replay(kept, outcome, states, first, _verdict_differences(kept.verdict, outcome))


def _state(recorded: bytes | None, now: bytes | None) -> str:
    if recorded is None:
        return "new"
    if now is None:
        return "missing"
    return "identical" if recorded == now else "different"


def _verdict_differences(
    recorded: dict[str, Any], outcome: RunOutcome
) -> dict[str, tuple[Any, Any]]:
    """Return the keys that both verdicts have, with different values: recorded, and now."""
    now = json.loads(json.dumps(outcome.as_json()))
    return {
        name: (recorded[name], now[name])
        for name in recorded
        if name in now and name not in NO_PART_OF_IT and recorded[name] != now[name]
    }


def _names(traces: Mapping[str, bytes]) -> dict[int, str]:
    """Map short ids to the labels of the traces, as far as these can be read."""
    names = {}
    for label, data in traces.items():
        try:
            block = next(read_blocks_untrusted(data, xxh3_64_intdigest), None)
        except BadTrace:
            continue
        if block is not None:
            names[block.member] = label
    return names


class _EventText(NamedTuple):
    """An event and its text; or None, and why the trace could be read no further."""

    event: Event | None
    text: str


def _events(data: bytes) -> list[_EventText]:
    """Read the events of a trace; if it is damaged, the last entry says why."""
    told = []
    try:
        for block in read_blocks_untrusted(data, xxh3_64_intdigest):
            # Drop the number of the text, which depends on the block: the text itself is compared.
            told += [
                _EventText(event._replace(text=0), block.text(event)) for event in block.events
            ]
    except BadTrace as bad:
        told.append(_EventText(None, f"no event: {bad.reason}"))
    return told


def _first_difference(
    member: str, recorded: bytes, now: bytes, names: dict[int, str]
) -> Difference:
    pairs = zip_longest(_events(recorded), _events(now))
    for number, (then, again) in enumerate(pairs):
        if then != again:
            times = [one.event.time for one in (then, again) if one and one.event]
            return Difference(
                min(times, default=0.0),
                member,
                number,
                _words(then, names),
                _words(again, names),
                _fields(then, again),
            )
    # The events are the same, but their blocks differ.
    last = [told.event.time for told in _events(now) if told.event]
    how = f"the same events in other bytes, from byte {_first_byte(recorded, now)} on"
    return Difference(max(last, default=0.0), member, len(last), how, how, {})


def _first_byte(recorded: bytes, now: bytes) -> int:
    pairs = enumerate(zip_longest(recorded, now))
    return next(at for at, (one, two) in pairs if one != two)


def _words(told: _EventText | None, names: dict[int, str]) -> str | None:
    if told is None:
        return None
    if told.event is None:
        return told.text
    return f"{told.event.time:.6f} {describe(told.event, told.text, names)}"


def _fields(then: _EventText | None, again: _EventText | None) -> dict[str, tuple[object, object]]:
    """Return the fields that differ, if both sides have an event."""
    if then is None or again is None or then.event is None or again.event is None:
        return {}
    pairs = zip(Event._fields, then.event, again.event, strict=True)
    changed: dict[str, tuple[object, object]] = {
        name: (one, two) for name, one, two in pairs if one != two
    }
    return changed | ({"text": (then.text, again.text)} if then.text != again.text else {})


def _sides(pairs: Mapping[str, tuple[object, object]]) -> dict[str, Any]:
    """Return pairs (recorded, now) for JSON."""
    return {name: {"recorded": then, "now": now} for name, (then, now) in pairs.items()}


def _apart(recorded: object, now: object) -> str:
    """Return the text of a difference between two values, down to the innermost part."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        keys = [key for key in recorded | now if recorded.get(key) != now.get(key)]
        return "; ".join(f"{key} {_apart(recorded.get(key), now.get(key))}" for key in keys)
    if isinstance(recorded, list) and isinstance(now, list):
        one, two = next(pair for pair in zip_longest(recorded, now) if pair[0] != pair[1])
        return _apart(one, two)
    return f"{json.dumps(recorded)}, now {json.dumps(now)}"
