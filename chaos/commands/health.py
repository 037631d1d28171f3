"""Finds what this host can do, and remedies for the rest: every backend's answer to every feature,
and checks of the programs and kernel features that they need."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from stormcast.chaos.backends.base import Backend, Unsupported
from stormcast.chaos.backends.by_name import BACKENDS, NETNS, SIM, make_backend
from stormcast.chaos.commands.host_checks import NOT_TRIED, Check, all_checks
from stormcast.chaos.language.features import FEATURES, OTHER_WAYS
from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import one_line

ESSENTIAL: Final = ("members", "group", "no-group", "partition")
"""Features that a backend must have to be of any use."""

Answers = Mapping[str, str | None]
"""By feature: None if it is there, else why not and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of a host."""

    host: str
    default: str
    """The backend that is used unless another one is asked for."""
    checks: tuple[Check, ...]
    backends: Mapping[str, Answers]

    @property
    def works(self) -> bool:
        """Whether the default backend works."""
        return all(self.backends[self.default][feature] is None for feature in ESSENTIAL)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `stormcast doctor --json` prints."""
        return {
            "works": self.works,
            "default": self.default,
            "host": self.host,
            "checks": [asdict(check) for check in self.checks],
            "backends": {name: dict(answers) for name, answers in self.backends.items()},
        }

    def report(self) -> str:
        """Return the text that `stormcast doctor` prints."""
        return "\n".join([self.host, "", *self._things(), "", *self._matrix(), "", self._verdict()])

    def _things(self) -> Iterator[str]:
        yield "what is here"
        width = max(len(check.about) for check in self.checks)
        for check in self.checks:
            if check.why is None:
                purpose = f"for {check.needed_for}" if check.needed_for else ""
                yield f"  ok  {check.about:<{width}}  {purpose}".rstrip()
            elif check.why != NOT_TRIED:
                word = "no" if check.needed_for else "- "
                purpose = f" (for {check.needed_for})" if check.needed_for else ""
                yield f"  {word}  {check.about:<{width}}  {check.why}{purpose}"
        untried = [check.about for check in self.checks if check.why == NOT_TRIED]
        if untried:
            yield f"  ?   {NOT_TRIED}: {'; '.join(untried)}"

    def _matrix(self) -> Iterator[str]:
        names = list(self.backends)
        width = max(map(len, FEATURES))
        yield "what backends can do"
        yield f"  {'':<{width}}  {'  '.join(names)}"
        notes: dict[str, list[str]] = {}
        for feature, about in FEATURES.items():
            row = "  ".join(
                f"{'ok' if self.backends[name][feature] is None else 'no':<{len(name)}}"
                for name in names
            )
            yield f"  {feature:<{width}}  {row}  {about}"
        for name, answers in self.backends.items():
            for feature, why in answers.items():
                if why is not None:
                    notes.setdefault(f"{name}: {why}", []).append(feature)
        for why, missing in notes.items():
            # Most often one missing thing makes every feature missing: then do not list them.
            yield f"  {why}" + ("" if len(missing) == len(FEATURES) else f" ({', '.join(missing)})")

    def _verdict(self) -> str:
        if not self.works:
            return f"the default backend, {self.default}, does not work here"
        answers = self.backends[self.default]
        missing = [name for name in answers if answers[name] is not None and name not in OTHER_WAYS]
        rest = f", without {', '.join(missing)}" if missing else ""
        return f"the default backend, {self.default}, works{rest}"


def examine(
    checks: Callable[[], Iterator[Check]] = all_checks,
    make: Callable[[str], Backend] = make_backend,
    names: Sequence[str] = BACKENDS,
) -> Health:
    """Make all checks, and ask every backend; takes a few seconds."""
    is_root = os.geteuid() == 0
    user = "root" if is_root else "not root"
    return Health(
        host=f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"{os.cpu_count()} processors, {user}",
        default=NETNS if is_root and sys.platform == "linux" else SIM,
        checks=tuple(checks()),
        backends={name: _answers(make, name) for name in names},
    )


def _answers(make: Callable[[str], Backend], name: str) -> Answers:
    try:
        found = make(name).features()
    except (NodeError, Unsupported, OSError) as error:
        return dict.fromkeys(FEATURES, one_line(error))
    return {feature: found.get(feature, "this version does not have it") for feature in FEATURES}
