"""Payloads that are offered to an outbox, and how many it took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from stormcast.machine import in_words
from stormcast.node.core.errors import NodeError
from stormcast.node.core.model import OOB, Address, View
from stormcast.node.member.jobs import Sending
from stormcast.node.member.loads import Load
from stormcast.node.payloads import PayloadStream, stream_of

MAX_STREAMS: Final = 1024
"""Streams to one peer each, and from one, that are remembered; beyond, those of former members are
forgotten."""


class Outbox(Protocol):
    """A channel, as far as the driver uses it."""

    @property
    def address(self) -> Address: ...

    @property
    def view(self) -> View | None: ...

    def try_send(self, dest: Address | int | None, payload: bytes, flags: int = 0) -> bool: ...


class Offers:
    """Offers one member's payloads, a stream for each destination, and counts them."""

    def __init__(self, channel: Outbox, seed: int) -> None:
        self.accepted = 0
        """Messages that the outbox took."""
        self.accepted_bytes = 0
        self.refused = 0
        """The number of times that the outbox was full."""
        self.has_own_memory = False
        """Whether a lack of memory ends the load alone. In the simulator the memory is that of the
        whole run, which ends."""
        self._channel = channel
        self._seed = seed
        self._streams: dict[int, PayloadStream] = {}

    def offer(self, load: Load, sending: Sending, number: int) -> int:
        """Offer `number` messages; return how many the outbox took."""
        stream = self.stream(sending.short)
        dest = sending.short or None
        ready = sending.ready if sending.ready_at == stream.sent else []
        if len(ready) < number:
            try:
                ready += stream.batch(stream.sent + len(ready), number - len(ready), load.size)
            except MemoryError as error:
                if not self.has_own_memory:
                    raise
                raise NodeError(f"a message of {load.size[1]} bytes: {in_words(error)}") from None
        bits, oob_every, try_send = load.bits, load.oob_every, self._channel.try_send
        done = 0
        try:
            for payload in ready[:number]:
                is_oob = oob_every and not (stream.sent + done + 1) % oob_every
                if not try_send(dest, payload, bits | OOB if is_oob else bits):
                    sending.refused += 1
                    self.refused += 1
                    break
                done += 1
        finally:
            # Also when one message was too large: those before it were accepted.
            stream.sent += done
            sending.accepted += done
            self.accepted += done
            self.accepted_bytes += sum(map(len, ready[:done]))
            sending.ready, sending.ready_at = ready[done:], stream.sent
        return done

    def stream(self, dest: int) -> PayloadStream:
        """Return the payloads for a destination."""
        stream = self._streams.get(dest)
        if stream is None:
            me = self._channel.address
            stream = self._streams[dest] = stream_of(self._seed, me.name, me.short, dest)
        return stream

    def forget_all_but(self, there: Iterable[int]) -> None:
        """Forget the streams to members that are not there, if there are too many of them."""
        if len(self._streams) > MAX_STREAMS:
            alive = {0, *there}
            self._streams = {one: sent for one, sent in self._streams.items() if one in alive}

    def sent_to(self) -> dict[str, int]:
        """Return the number of accepted messages by the short id of their destination, in hex."""
        return {f"{dest:x}": stream.sent for dest, stream in self._streams.items()}
