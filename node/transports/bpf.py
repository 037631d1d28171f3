"""Classic BPF on a socket: the kernel drops a member's own multicasts before they are copied."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

from stormcast.node.core import wire

SO_ATTACH_FILTER: Final = 26
UDP_HEADER: Final = 8
"""A filter on a UDP socket sees the datagram from its header on."""
_INSTRUCTION: Final = struct.Struct("HBBI")
_LOAD_WORD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_ALL: Final = 0xFFFFFFFF


def reject_source(short: int) -> bytes:
    """Return a program that drops datagrams whose first frame was sent by `short`."""
    program = (
        (_LOAD_WORD, 0, 0, UDP_HEADER + wire.OFFSETS["source"]),
        (_JUMP_IF_EQUAL, 0, 1, short),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _ALL),
    )
    return b"".join(_INSTRUCTION.pack(*step) for step in program)


def attach(sock: socket.socket, program: bytes) -> None:
    """Have the kernel run a program on arriving datagrams; OSError if it refuses."""
    steps = ctypes.create_string_buffer(program, len(program))
    length = len(program) // _INSTRUCTION.size
    # struct sock_fprog: a count, and a pointer that is read before the call returns.
    sock.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", length, ctypes.addressof(steps))
    )
