"""Strangers on the way between members: they hear frames, note what they read, send frames again,
and forge others. They have no key, and take nothing away.

What they send travels as long as what they heard, and meets no fault: they are where no fault is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.chaos import faults
from stormcast.chaos.backends.sim.engine import Engine
from stormcast.chaos.backends.sim.forging import leave, next_messages, read_body, read_head
from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.faults.paths import Path
from stormcast.chaos.records.rig_trace import Overheard
from stormcast.node.core import wire

MOST_NOTED: Final = 1000
"""Frames of which strangers note what they read: each is an event in the rig's trace."""
MOST_KEPT: Final = 10_000
"""Frames that strangers keep at a time, to send them again."""


class Strangers:
    """All strangers of a run, one for each attack; the network shows them its frames."""

    def __init__(self, engine: Engine, network: Network) -> None:
        self._engine = engine
        self._decider = network.decider
        network.hear = self.hear
        self._acting: dict[str, faults.ByStranger] = {}
        """By fault."""
        self._forged: Counter[str] = Counter()
        """By fault: for how many frames it has forged others."""
        self._begun: Counter[str] = Counter()
        """By fault: how often it began."""
        self._kept = 0
        self.overheard: list[Overheard] = []

    def apply(self, acting: Mapping[str, faults.NetworkFault]) -> None:
        """Take the attacks that act from now on; those that ended send nothing more."""
        before = self._acting
        self._acting = {
            key: one for key, one in acting.items() if isinstance(one, faults.ByStranger)
        }
        for fault in self._acting.keys() - before.keys():
            self._begun[fault] += 1
            self._forged.pop(fault, None)

    def hear(self, path: Path, dest: int, frame: bytes) -> None:
        """Show a frame that is put on a path to the strangers who hear that path."""
        for fault in path.attacks:
            match self._acting[fault]:
                case faults.Listen():
                    self._listen(fault, path, frame)
                case faults.Replay() as attack:
                    self._keep(fault, attack, path, dest, frame)
                case faults.Forge() as attack:
                    self._forge(fault, attack, path, dest, frame)

    def _bite(self, fault: str, path: Path) -> None:
        self._decider.bites[fault][path.ends] += 1

    def _listen(self, fault: str, path: Path, frame: bytes) -> None:
        """Note what stands where the frame has its messages: a stranger cannot know whether it is
        what was sent, and the oracles can."""
        self._bite(fault, path)
        head = read_head(frame)
        if head.kind != wire.DATA or len(self.overheard) >= MOST_NOTED:
            return
        body = read_body(head, frame)
        self.overheard.append(
            Overheard(
                at=self._engine.now,
                flags=head.flags,
                protocol=head.protocol,
                sender=head.source,
                conn=head.conn,
                count=head.count,
                lo=head.lo,
                size=len(body),
                digest=xxh3_64_intdigest(body),
            )
        )

    # -- Frames that come again ------------------------------------------------------------------

    def _keep(self, fault: str, attack: faults.Replay, path: Path, dest: int, frame: bytes) -> None:
        kind = wire.KINDS[read_head(frame).kind][0]
        if self._kept < MOST_KEPT and (not attack.kinds or kind in attack.kinds):
            self._kept += 1
            self._send_later(fault, attack, path, dest, frame, attack.copies)

    def _send_later(
        self, fault: str, attack: faults.Replay, path: Path, dest: int, frame: bytes, copies: int
    ) -> None:
        begun = self._begun[fault]
        again = partial(self._send_again, fault, begun, attack, path, dest, frame, copies)
        self._engine.call(self._engine.now + attack.after, again)

    def _send_again(
        self,
        fault: str,
        begun: int,
        attack: faults.Replay,
        path: Path,
        dest: int,
        frame: bytes,
        copies: int,
    ) -> None:
        if fault not in self._acting or self._begun[fault] != begun:
            self._kept -= 1
            return
        self._send(fault, path, dest, frame)
        if copies > 1:
            self._send_later(fault, attack, path, dest, frame, copies - 1)
        else:
            self._kept -= 1

    # -- Frames that nobody sent -----------------------------------------------------------------

    def _forge(self, fault: str, attack: faults.Forge, path: Path, dest: int, frame: bytes) -> None:
        if self._forged[fault] >= attack.times:
            return
        if attack.says == "message":
            forged, target = next_messages(frame), dest
        else:
            wish, target = leave(frame), read_head(frame).source
            forged = [] if wish is None else [wish]
        if forged:
            self._forged[fault] += 1
        for one in forged:
            self._send(fault, path, target, one)

    def _send(self, fault: str, path: Path, dest: int, frame: bytes) -> None:
        self._bite(fault, path)
        self._engine.arrive_by_a_stranger(self._engine.now + path.delay, dest, frame)
