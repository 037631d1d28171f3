"""Pieces of a stack: joined where it has FRAG, and kept until the whole message was handed over."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core.model import FRAGMENT, Delivery
from stormcast.node.protocols.frag import FragConfig, Fragmenter
from stormcast.node.stack.pieces import Pieces
from tests.helpers.parts import ME, PEER, Parts, bare_settings

FRAG = FragConfig(frag_size=10, max_message_size=1000)


def pieces_of(payload: bytes) -> list[Delivery]:
    """What the window delivers of one message."""
    cut = Fragmenter(FRAG, hash64).cut(payload)
    return [
        Delivery(
            PEER, 1, at, at, FRAGMENT, header + piece, len(header), len(piece), ME, len(header)
        )
        for at, piece in enumerate(map(bytes, cut.pieces), 1)
        for header in [cut.header(at - 1)]
    ]


def test_a_message_is_joined_again_until_it_was_handed_over() -> None:
    parts = Parts()
    pieces = Pieces(bare_settings(("FRAG", FRAG)), parts.port, parts.unicast)
    first, last = pieces_of(b"abcdefghijklm")
    assert pieces.join(first, 0.0) is None
    joined = pieces.join(last, 0.0)
    assert joined == (b"abcdefghijklm", 1, 2)
    assert pieces.join(last, 0.0) is joined
    pieces.joined = pieces.last_piece = None
    assert pieces.join(last, 0.0) is None
    assert parts.port.drops == {"fragment-old": 1}


def test_a_stack_without_frag_keeps_no_piece() -> None:
    parts = Parts()
    pieces = Pieces(bare_settings(), parts.port, parts.unicast)
    assert pieces.join(pieces_of(b"abcdefghijklm")[0], 0.0) is None
    pieces.on_view(frozenset({ME}), 0.0)
    pieces.expire(1000.0)
    pieces.gauge(0.0)
    assert parts.port.drops == {"fragment": 1}
    assert parts.recorded(trace.GAUGE) == []
