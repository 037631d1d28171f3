"""Packs and unpacks addresses, views and digests, for bodies of control frames.

Every count and length from the network is checked against the bytes that are there before it is
used; `Reader.end_untrusted` refuses bytes that are left over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.names import printable

MAX_MEMBERS: Final = 4096
"""Members that a view or a digest from the network may name."""

MAX_NAMED: Final = 4 * MAX_MEMBERS
"""Members that the answers of one merge, or the views of one check of MERGE3, may name together;
later answers are refused."""

MAX_TEXT: Final = 255
"""Bytes of a text in a body, at most."""

_IDENTITY: Final = 16
_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_ENTRY: Final = struct.Struct(">IQQ")


class Writer:
    """Builds a body."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u8(self, value: int) -> Writer:
        self._parts.append(_U8.pack(value))
        return self

    def u16(self, value: int) -> Writer:
        self._parts.append(_U16.pack(value))
        return self

    def u32(self, value: int) -> Writer:
        self._parts.append(_U32.pack(value))
        return self

    def u64(self, value: int) -> Writer:
        self._parts.append(_U64.pack(value))
        return self

    def text(self, value: str) -> Writer:
        """Append at most `MAX_TEXT` bytes of UTF-8; a longer text is cut."""
        data = value.encode(errors="replace")[:MAX_TEXT]
        self._parts += (_U8.pack(len(data)), data)
        return self

    def address(self, address: Address) -> Writer:
        self._parts.append(address.identity.to_bytes(_IDENTITY, "big"))
        return self.text(address.name).text(address.where)

    def addresses(self, addresses: Iterable[Address]) -> Writer:
        listed = list(addresses)
        self.u16(len(listed))
        for address in listed:
            self.address(address)
        return self

    def view_id(self, view_id: ViewId) -> Writer:
        return self.u64(view_id.number).address(view_id.creator)

    def view(self, view: View) -> Writer:
        return self.view_id(view.id).addresses(view.members)

    def digest(self, digest: Digest) -> Writer:
        entries = sorted(digest.seqnos.items())
        self.u16(len(entries))
        self._parts += [_ENTRY.pack(member, *seqnos) for member, seqnos in entries]
        return self

    def bytes(self) -> bytes:
        """The body."""
        return b"".join(self._parts)


class Reader:
    """Unpacks a body; raises BadFrame if anything is wrong with it."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take_untrusted(self, form: struct.Struct) -> int:
        if self._at + form.size > len(self._data):
            raise BadFrame("body-short")
        value: int = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return value

    def _bytes_untrusted(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise BadFrame("body-short")
        self._at += size
        return data

    def u8_untrusted(self) -> int:
        return self._take_untrusted(_U8)

    def u16_untrusted(self) -> int:
        return self._take_untrusted(_U16)

    def u32_untrusted(self) -> int:
        return self._take_untrusted(_U32)

    def u64_untrusted(self) -> int:
        return self._take_untrusted(_U64)

    def text_untrusted(self) -> str:
        """Read a text, such as a member's name: escaped here, once for all who show it."""
        text = self._bytes_untrusted(self.u8_untrusted()).decode(errors="replace")
        if text.isprintable():
            return text
        # Cut as `Writer.text` would: a member must have one name, whoever has passed it on.
        return printable(text).encode()[:MAX_TEXT].decode(errors="ignore")

    def address_untrusted(self) -> Address:
        identity = int.from_bytes(self._bytes_untrusted(_IDENTITY), "big")
        if not identity:
            raise BadFrame("address")
        return Address(identity, self.text_untrusted(), self.text_untrusted())

    def _count_untrusted(self, least_size: int) -> int:
        """Read a number of entries, for which at least `least_size` bytes each must follow."""
        count = self.u16_untrusted()
        if count > MAX_MEMBERS or count * least_size > len(self._data) - self._at:
            raise BadFrame("count")
        return count

    def addresses_untrusted(self) -> tuple[Address, ...]:
        count = self._count_untrusted(_IDENTITY + 2)
        return tuple(self.address_untrusted() for _ in range(count))

    def view_id_untrusted(self) -> ViewId:
        return ViewId(self.u64_untrusted(), self.address_untrusted())

    def view_untrusted(self) -> View:
        view_id = self.view_id_untrusted()
        members = self.addresses_untrusted()
        # Two members with one short id could not be told apart in frames.
        if not members or len({member.short for member in members}) != len(members):
            raise BadFrame("view-members")
        return View(view_id, members)

    def digest_untrusted(self) -> Digest:
        count = self._count_untrusted(_ENTRY.size)
        seqnos: dict[int, tuple[int, int]] = {}
        for _ in range(count):
            member, delivered, received = _ENTRY.unpack(self._bytes_untrusted(_ENTRY.size))
            if not member or member in seqnos or not delivered <= received <= wire.MAX_SEQNO:
                raise BadFrame("digest-entry")
            seqnos[member] = (delivered, received)
        return Digest(seqnos)

    def end_of_padded_untrusted(self) -> None:
        """Raise BadFrame if any bytes but zeros follow."""
        if any(self._data[self._at :]):
            raise BadFrame("body-long")

    def end_untrusted(self) -> None:
        """Raise BadFrame if any bytes follow."""
        if self._at != len(self._data):
            raise BadFrame("body-long")
