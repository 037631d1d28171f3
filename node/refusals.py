"""Lines for people about who is not heard: strangers, or members that were started wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

TELL_SECONDS: Final = 60.0
"""Least seconds between two lines about the same."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the counters."""

NOT_SEALED: Final = (
    "somebody sends without the key of this cluster, and is not heard; if that is a member, start "
    "it with --key-file"
)
KEY_UNKNOWN: Final = (
    "somebody seals with a key that this member has not, and is not heard; if that is a member, "
    "see whose key file is old, by stormcast key show FILE"
)
FORGED: Final = (
    "frames came with a seal that does not fit, and were refused: somebody forges them, or the "
    "network damages them"
)
SEALED: Final = (
    "members that seal what they send are not heard here, as this member has no key; if it belongs "
    "to them, start it with their --key-file"
)
CLUSTER: Final = (
    "members of another cluster are not heard here; if this member belongs to them, start it with "
    "their --cluster"
)
LINES: Final = {
    "stack.refused.not-sealed": NOT_SEALED,
    "transport.refused_not-sealed": NOT_SEALED,
    "stack.refused.key-unknown": KEY_UNKNOWN,
    "transport.refused_key-unknown": KEY_UNKNOWN,
    "stack.refused.forged": FORGED,
    "transport.refused_forged": FORGED,
    "stack.refused.sealed": SEALED,
    "transport.refused_sealed": SEALED,
    "stack.refused.cluster": CLUSTER,
    "transport.refused_hello-cluster": CLUSTER,
}
"""The line about what a counter counts: frames, or connections."""


class RefusalLines:
    """Says lines about refused frames and connections, each at most once in TELL_SECONDS."""

    def __init__(
        self, say: Callable[[str], None], figures: Callable[[], Mapping[str, float]]
    ) -> None:
        self._say = say
        self._figures = figures
        self._told: dict[str, tuple[float, float]] = {}
        """By line: the number of refusals when it was said, and when it may be said again."""
        self._timer: TimerHandle | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Look at the counters from now on."""
        self._timer = loop.call_later(LOOK_SECONDS, self._look_again, loop)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self, loop: AbstractEventLoop) -> None:
        self.look(loop.time())
        self.start(loop)

    def look(self, now: float) -> None:
        """Say the line of each counter that has grown, if its time has come."""
        numbers: dict[str, float] = {}
        figures = self._figures()
        for figure, line in LINES.items():
            numbers[line] = numbers.get(line, 0) + figures.get(figure, 0)
        for line, number in numbers.items():
            told, again = self._told.get(line, (0.0, 0.0))
            if number > told and now >= again:
                self._told[line] = number, now + TELL_SECONDS
                self._say(f"{line} ({number:g} refused so far)")
