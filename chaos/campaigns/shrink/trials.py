"""Tries smaller scenarios, one candidate after the other, and keeps the smallest that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.campaigns.shrink.failure import Found, first_failure, is_fair, same_failure
from stormcast.chaos.campaigns.shrink.paths import Path, part_at, with_part
from stormcast.chaos.faults import RANDOM
from stormcast.chaos.language.scenario import Scenario, dump, parse_scenario
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.node.core.errors import ConfigError

REPAIRS: Final = 8
"""The most further entries that are removed with an entry, because they are invalid without it."""
GRID: Final = 3
"""Decimals of the numbers that are tried: more would only be harder to read."""

Run = Callable[[Scenario], RunOutcome]


@dataclass(slots=True)
class Tally:
    """Counts of a search for a smaller scenario."""

    runs: int = 0
    kept: int = 0
    refused: int = 0
    """Candidates that were not run: no valid scenarios, or no fair ones."""
    crashes: list[str] = field(default_factory=list)
    """Exceptions of candidates that broke the simulator: bugs of their own."""


class OutOfTime(Exception):
    """The time of the search is over."""


class Trials:
    """The candidates of one search for a smaller scenario.

    Invariant: `best` fails as asked, and was read from its own text.
    """

    def __init__(
        self,
        scenario: Scenario,
        guarantee: str | None,
        run: Run,
        is_over: Callable[[], bool] = lambda: False,
        tell: Callable[[Trials], None] = lambda _trials: None,
    ) -> None:
        self.tally = Tally()
        self._run = run
        self._is_over = is_over
        self._tell = tell
        self.first = first_failure(scenario, run(scenario), guarantee)
        text = dump(replace(scenario, about=""))
        self._tried = {text}
        self.best = self.first._replace(scenario=parse_scenario(text))

    def try_scenario(self, candidate: Scenario, *, repairs: int = 0) -> bool:
        """Try a candidate; returns whether it fails in the same way: then it is the new best."""
        read = self._read(candidate, repairs)
        if read is None:
            return False
        text = dump(read)
        if text in self._tried:
            return False
        self._tried.add(text)
        # A choice that the file makes must not be left to the seed: shorter, but less clear.
        is_vaguer = text.count(RANDOM) > dump(self.best.scenario).count(RANDOM)
        if is_vaguer or not is_fair(self.first.failure.guarantee, read, self.best.scenario):
            self.tally.refused += 1
            return False
        if self._is_over():
            raise OutOfTime
        found = self._judged(read)
        if found is not None:
            self.best = found
            self.tally.kept += 1
        self._tell(self)
        return found is not None

    def _read(self, candidate: Scenario, repairs: int) -> Scenario | None:
        """Write a candidate as a file and read it; None if it is not valid. Removes up to `repairs`
        entries that the reader refuses.

        `dump` asserts that a file can express it: some combinations of sources and dests cannot be.
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

    def _judged(self, candidate: Scenario) -> Found | None:
        self.tally.runs += 1
        try:
            outcome = self._run(candidate)
        except (ConfigError, Unsupported):
            return None
        except Exception as error:  # noqa: BLE001 whatever it is, it is not the failure looked for
            self.tally.crashes.append(repr(error))
            return None
        return same_failure(self.first, candidate, outcome)

    # -- One part of the best scenario -----------------------------------------------------------

    def part(self, path: Path) -> Any:  # noqa: ANN401 a part of any kind
        """Return a part of the best scenario."""
        return part_at(self.best.scenario, path)

    def try_at(self, path: Path, value: object, *, repairs: int = 0) -> bool:
        """Try the best scenario with one part changed."""
        return self.try_scenario(with_part(self.best.scenario, path, value), repairs=repairs)

    def try_shorter(self, path: Path, value: float) -> bool:
        """Do as `try_at`, but refuse a longer run: a lower rate makes no smaller scenario."""
        before, tried = self.best, self.try_at(path, value)
        if tried and self.best.size.seconds > before.size.seconds:
            self.best = before
            self.tally.kept -= 1
            return False
        return tried


def _without_line(scenario: Scenario, text: str, line: int) -> Scenario | None:
    """Return a scenario without the entry on a line of its text; None if no entry is there."""
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
    smaller: Scenario = with_part(scenario, (key,), entries[: number - 1] + entries[number:])
    return smaller
