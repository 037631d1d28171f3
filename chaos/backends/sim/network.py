"""The simulated network: it carries out what the `Decider` decides about each frame.

For a path that only delays and loses frames, only the loss is asked for: this is the fast way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stormcast.chaos.faults.fate import Fate
from stormcast.chaos.faults.outcome import HOLD, PASS, Decider, FrameOutcome, damaged
from stormcast.chaos.faults.paths import ActingRule, Ends, Path
from stormcast.node.core.wire import identity

Arrive = Callable[[float, int, bytes], None]
"""Has a frame arrive: time, short id of the receiver, frame."""
Hear = Callable[[Path, int, bytes], None]
"""Shows strangers a frame: the path on which it is put, short id of the receiver, frame."""
ArriveAtEach = Callable[[float, Sequence[int], bytes], None]


class Network:
    """All paths of a run, and the frames that rules hold."""

    def __init__(self, fate: Fate, arrive: Arrive) -> None:
        self.decider = Decider(fate)
        self.hear: Hear | None = None
        """Called with each frame on a path that strangers hear; set once there are strangers."""
        self._arrive = arrive
        self._paths: dict[Ends, Path] = {}
        self._held: dict[str, list[tuple[Path, int, bytes]]] = {}
        """By rule: held frames, each with the path of that moment and the receiver's short id."""

    def path(self, source: str, dest: str) -> Path:
        """Return the path between two members, by name; all incarnations share it."""
        return self._paths[source, dest]

    def set_path(self, path: Path) -> None:
        """Replace the path between two members."""
        self._paths[path.ends] = path

    def on_change(self, now: float) -> None:
        """Do nothing when paths were replaced: a datagram waits for bandwidth only for a moment."""

    def send(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        """Put a frame on a path."""
        decider = self.decider
        rule = self._watch(path, dest, frame) if path.is_watched else None
        if rule is not None:
            self._carry_out(decider.by_rule(rule, path, now), path, dest, frame)
        elif not path.is_plain:
            outcome = decider.after_rules(path, frame, len(frame), now)
            self._carry_out(outcome, path, dest, frame)
        elif not path.losses or not decider.is_lost(path, identity(frame)):
            self._arrive(now + path.delay, dest, frame)

    def _watch(self, path: Path, dest: int, frame: bytes) -> ActingRule | None:
        """Show a frame to strangers, then to rules; returns the rule that takes it."""
        if path.attacks and self.hear is not None:
            self.hear(path, dest, frame)
        return self.decider.rule_for(path, frame)

    def send_to_each(
        self, paths: Iterable[tuple[Path, int]], frame: bytes, now: float, arrive: ArriveAtEach
    ) -> None:
        """Put a multicast frame on each path. Over paths that have equal delays, and nothing else
        but losses, it arrives by one event."""
        is_lost, known = self.decider.is_lost, b""
        together: dict[float, list[int]] = {}
        for path, dest in paths:
            if path.is_watched or not path.is_plain:
                self.send(path, dest, frame, now)
                continue
            if path.losses:
                known = known or identity(frame)
                if is_lost(path, known):
                    continue
            together.setdefault(path.delay, []).append(dest)
        for delay, dests in together.items():
            arrive(now + delay, dests, frame)

    def release(self, fault: str, now: float) -> int:
        """Release a rule's held frames, in order, over the current paths; returns how many."""
        held = self._held.pop(fault, [])
        for path, dest, frame in held:
            self._let_go(path, dest, frame, now)
        return len(held)

    def _let_go(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        outcome = self.decider.let_go(self._paths[path.ends], now)
        self._carry_out(outcome, path, dest, frame)

    def _carry_out(self, outcome: FrameOutcome, path: Path, dest: int, frame: bytes) -> None:
        if outcome.does == PASS:
            for at in outcome.copies:
                self._arrive(at, dest, frame)
            if outcome.flips:
                frame = damaged(frame, outcome.flips)
            self._arrive(outcome.at, dest, frame)
        elif outcome.does == HOLD:
            self._hold(outcome.held_by, path, dest, frame)

    def _hold(self, fault: str, path: Path, dest: int, frame: bytes) -> None:
        self._held.setdefault(fault, []).append((path, dest, frame))
