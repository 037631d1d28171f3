"""From deliveries to what the application is given: pieces become messages, the trace says so."""

from __future__ import annotations

from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import FRAGMENT, NO_FC, NO_RELIABILITY, Delivery
from stormcast.node.protocols import frag
from stormcast.node.protocols.frag import CutMessage, FragConfig, Fragmenter
from stormcast.node.protocols.unicast import Unicast
from stormcast.node.stack import handover
from stormcast.node.stack.handover import FLUSH_INTERVAL, HandOver
from stormcast.node.trace.tracer import Tracer
from tests.helpers.parts import ME, PEER, Parts, bare_settings

FRAG = FragConfig(frag_size=10, max_message_size=1000)


class Credits:
    """Flow control, as far as this tells it."""

    def __init__(self) -> None:
        self.delivered_bytes = 0

        self.fails = False

    def delivered(self, _source: int, size: int, _conn: int, _now: float) -> None:
        if self.fails:
            raise MemoryError
        self.delivered_bytes += size


class Handing(Parts):
    def __init__(self) -> None:
        super().__init__()
        settings = bare_settings()
        object.__setattr__(settings, "layers", (("FRAG", FRAG), *settings.layers))
        self.credits = Credits()
        flow: dict[int, Any] = {wire.UFC: self.credits}
        self.hand_over = HandOver(settings, self.port, self.unicast, None, flow)

    def deliver(self, lo: int, hi: int, flags: int = 0, now: float = 0.0) -> None:
        count = hi - lo + 1
        body = b"x" * count
        self.port.deliveries.append(
            Delivery(PEER, 1, lo, hi, flags, body, 0, [1] * count if count > 1 else 1, ME)
        )
        self.hand_over.run(now)

    def deliver_pieces(self, cut: CutMessage, lo: int, *indexes: int) -> None:
        for index in indexes:
            header = cut.header(index)
            piece = bytes(cut.pieces[index])
            self.port.deliveries.append(
                Delivery(
                    PEER,
                    1,
                    lo + index,
                    lo + index,
                    FRAGMENT,
                    header + piece,
                    len(header),
                    len(piece),
                    ME,
                    len(header),
                )
            )
        self.hand_over.run(0.0)

    def taken(self) -> list[bytes]:
        return [bytes(one) for delivery in self.hand_over.take() for one in delivery]

    def handed(self) -> list[tuple[int, int, int]]:
        return [(one.stream, one.lo, one.hi) for one in self.recorded(trace.HANDED)]


def test_neighbours_are_recorded_as_one_range_when_it_is_due() -> None:
    handing = Handing()
    handing.deliver(1, 3, now=1.0)
    handing.deliver(4, 4, now=1.1)
    assert handing.taken() == [b"x"] * 4
    assert handing.handed() == []
    assert handing.hand_over.flush_at == 1.0 + FLUSH_INTERVAL
    handing.hand_over.flush(2.0)
    assert handing.handed() == [(trace.AS_DELIVERED, 1, 4)]
    assert handing.hand_over.flush_at == float("inf")


def test_a_range_ends_where_its_neighbour_is_missing() -> None:
    handing = Handing()
    handing.deliver(1, 2)
    handing.deliver(5, 6)
    assert handing.handed() == [(trace.AS_DELIVERED, 1, 2)]


def test_an_application_that_takes_nothing_gets_all_of_it_in_order_later() -> None:
    handing = Handing()
    handing.unicast.set_consuming(False, 0.0)
    handing.deliver(1, 1)
    handing.deliver(2, 2)
    assert (handing.taken(), handing.credits.delivered_bytes) == ([], 0)
    handing.unicast.set_consuming(True, 0.0)
    handing.hand_over.run(0.0)
    handing.hand_over.flush(0.0)
    assert (handing.taken(), handing.handed()) == ([b"x", b"x"], [(trace.AS_DELIVERED, 1, 2)])


def test_credits_follow_what_was_counted_where_it_was_sent() -> None:
    handing = Handing()
    handing.deliver(1, 2)
    handing.deliver(3, 3, NO_FC)
    handing.deliver(1, 1, NO_RELIABILITY)
    assert handing.credits.delivered_bytes == 2


def test_pieces_become_one_message_where_the_last_one_stood() -> None:
    handing = Handing()
    cut = Fragmenter(FRAG, hash64).cut(b"abcdefghijklmnopqrstuvwxyz")
    handing.deliver(1, 1)
    handing.deliver_pieces(cut, 2, 0, 1)
    assert handing.taken() == [b"x"]
    handing.deliver_pieces(cut, 2, 2)
    (delivery,) = handing.hand_over.take()
    assert (list(delivery), delivery.lo, delivery.flags) == ([b"abcdefghijklmnopqrstuvwxyz"], 4, 0)
    assert handing.handed() == [(trace.AS_DELIVERED, 1, 1), (trace.JOINED, 2, 4)]


def test_a_piece_that_contradicts_the_others_is_refused() -> None:
    handing = Handing()
    cut = Fragmenter(FRAG, hash64).cut(bytes(25))
    handing.deliver_pieces(cut, 1, 0)
    handing.deliver_pieces(cut._replace(total=26), 1, 1)
    assert handing.port.drops == {"fragment-inconsistent": 1}


def test_what_is_unfinished_is_gauged() -> None:
    handing = Handing()
    handing.hand_over.pieces.gauge(0.0)
    handing.deliver_pieces(Fragmenter(FRAG, hash64).cut(bytes(25)), 1, 0)
    handing.hand_over.pieces.gauge(0.0)
    (gauge,) = handing.recorded(trace.GAUGE)
    assert gauge.stream == trace.FRAGMENT_BYTES
    assert 0 < gauge.lo <= gauge.hi


def out_of_memory(*_rest: object, **_named: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("owner", "failing"), [(frag, "Joined"), (handover, "Delivery"), (Tracer, "record")]
)
@pytest.mark.parametrize("view_at", [None, 1, 2, 3, 4])
def test_what_could_not_be_joined_is_handed_over_in_the_next_turn(
    view_at: int | None, owner: Any, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that came with it, once and in order, wherever among it a view came."""
    handing = Handing()
    cut = Fragmenter(FRAG, hash64).cut(b"abcdefghijklm")
    handing.unicast.set_consuming(False, 0.0)
    steps = [
        lambda: handing.deliver(1, 1),
        lambda: handing.deliver_pieces(cut, 2, 0),
        lambda: handing.deliver_pieces(cut, 2, 1),
        lambda: handing.deliver(4, 5),
    ]
    for number, step in enumerate(steps, 1):
        step()
        if number == view_at:
            handing.hand_over.on_view(frozenset({ME, PEER}), 0.0)
    handing.unicast.set_consuming(True, 0.0)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(owner, failing, out_of_memory)
            with pytest.raises(MemoryError):
                handing.hand_over.run(0.0)
    handing.deliver(6, 6)
    assert handing.taken() == [b"x", b"abcdefghijklm", b"x", b"x", b"x"]
    assert handing.credits.delivered_bytes == 4 + 13
    assert (handing.port.withheld, handing.port.drops) == ([], {})
    handing.hand_over.flush(0.0)
    joined = (trace.JOINED, 2, 3)
    assert sorted(handing.handed()) == [
        (trace.AS_DELIVERED, 1, 1),
        (trace.AS_DELIVERED, 4, 6),
        joined,
    ]


def test_what_was_delivered_outlasts_a_run_that_did_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handing = Handing()
    with monkeypatch.context() as patch:
        patch.setattr(Unicast, "is_consuming", property(out_of_memory))
        with pytest.raises(MemoryError):
            handing.deliver(1, 1)
    handing.deliver(2, 2)
    assert handing.taken() == [b"x", b"x"]


def test_what_was_handed_over_before_a_bug_is_not_handed_over_again() -> None:
    handing = Handing()
    handing.credits.fails = True
    with pytest.raises(MemoryError):
        handing.deliver(1, 1)
    with pytest.raises(MemoryError):
        handing.deliver(2, 2)
    handing.credits.fails = False
    handing.deliver(3, 3)
    assert handing.taken() == [b"x", b"x", b"x"]
    handing.hand_over.flush(0.0)
    assert handing.handed() == [(trace.AS_DELIVERED, 1, 3)]
