"""The hellos of a member on all its connections: what it says, what it takes, and what becomes of a
connection whose hello it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stormcast.node.core.errors import UNKEYED
from stormcast.node.core.model import Address
from stormcast.node.transports.exchange import CLEAR, SEALED
from stormcast.node.transports.handshake import (
    Hello,
    pack_hello,
    pack_notice,
    unpack_hello_untrusted,
)
from stormcast.node.transports.peer_places import MAX_LEARNED

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals
    from stormcast.node.transports.connection import Connection
    from stormcast.node.transports.owner import TransportOwner


class Hellos:
    """Says and reads hellos, and numbers the connections."""

    def __init__(
        self,
        owner: TransportOwner,
        unknown: Iterable[Connection],
        counters: Counter[str],
        patience: float,
    ) -> None:
        self.roles: tuple[int, ...] = CLEAR
        """The roles of the hellos of a connection."""
        self._owner = owner
        self._unknown = unknown
        """Connections that were accepted, and whose other end has not proved who it is."""
        self._counters = counters
        self._patience = patience
        """Seconds for the proof of who has said a first hello."""
        self._own: Address
        self._cluster = 0
        self._seals: Seals | None = None
        self._serial = 0
        self._foreign: set[str] = set()
        """Hosts of other clusters that were reported, each once."""

    def start(self, own: Address, cluster: int, seals: Seals | None) -> None:
        """Begin, with this member's address, cluster and keys."""
        self._own, self._cluster, self._seals = own, cluster, seals
        self.roles = CLEAR if seals is None else SEALED

    @property
    def are_sealed(self) -> bool:
        """Whether this member has keys."""
        return self._seals is not None

    def number(self, connection: Connection) -> None:
        """Give a connection the next number; see `Hello`."""
        self._serial += 1
        connection.serial = self._serial

    def next_of(self, connection: Connection) -> bytes:
        """Return the next hello of this end, packed."""
        # Who proves a connection while the peer proves one has not lost that: it replaces none.
        serial = 0 if self._is_awaited(connection.peer) else connection.serial
        hello = connection.exchange.say(self._cluster, serial, self._own)
        return pack_hello(hello, self._seals)

    def _is_awaited(self, peer: Address | None) -> bool:
        """Whether a proof of this peer is under way, on a connection that it has dialled."""
        return peer is not None and any(one.exchange.claimed == peer for one in self._unknown)

    def read_untrusted(self, body: bytes) -> Hello:
        """Return the hello of the other end; BadFrame if it is no member of this cluster."""
        return unpack_hello_untrusted(body, self._cluster, self._seals)

    def on_claim(self, connection: Connection, claimed: Address) -> None:
        """Answer who the other end says it is, which it has to prove yet."""
        if claimed == self._own:
            connection.drop("self")
            return
        self.number(connection)
        # Longer than for its first words: the other end takes the connection for a good one when it
        # has the answer, and sends frames behind a proof that may have to be sent again.
        connection.wait_for_hello(self._patience)
        connection.say_hello()

    def on_refused(self, connection: Connection, reason: str) -> None:
        """Note that the other end is no member of this cluster, and why."""
        self._counters[f"refused_{reason}"] += 1
        if reason == "hello-cluster":
            self._tell_foreign(connection)
        elif reason in UNKEYED and not connection.is_initiated:
            # The end that dialled learns that its key is missing or another.
            if self._seals is not None:
                connection.say(pack_notice(self._cluster, self._seals))
                return
            self.number(connection)
            connection.say_hello()

    def _tell_foreign(self, connection: Connection) -> None:
        host = connection.remote[0]
        if host not in self._foreign and len(self._foreign) < MAX_LEARNED:
            self._foreign.add(host)
            self._owner.say(
                f"{host} has members of another cluster: give all the same cluster name, or take "
                "it out of the list of hosts"
            )
