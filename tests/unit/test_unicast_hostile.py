"""Frames that contradict the connection: counted by reason, and nothing else changes (G5, G6, G7).

A talks with B; what arrives here was never sent by either. Every test compares all public state of
the member before and after.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import FIRST
from stormcast.node.core.wire import MAX_SEQNO
from tests.helpers.forge import Forger
from tests.helpers.world import Pair, hash64, numbered, on_every_generation

SENT = 5
"""Messages that A has sent to B and that B has not acked."""


class Hostile(Pair):
    """A has five unacked messages for B; B sent A five and has them acked; nothing moves."""

    def __init__(self, generation: str, timing: str, **rest: object) -> None:
        super().__init__(generation, timing, **rest)
        self.open(SENT)
        self.partition("A", "B")
        self.a.send(*numbered(SENT + 1, 2 * SENT), to="B")
        entry, other = self.a.sender("B"), self.a.receiver("B")
        assert entry is not None
        assert other is not None
        self.conn = entry.conn
        self.incoming = other.conn
        self.forge = Forger(self, "B", "A")

    def refuses(self, reason: str, frame: bytes) -> None:
        """A drops the frame for this reason, sends nothing, and is what it was."""
        sent = len(self.wire)
        self.ignores(reason, frame)
        assert len(self.wire) == sent

    def ignores(self, reason: str, frame: bytes) -> None:
        """A drops the frame for this reason, and is what it was; it may say so."""
        before, counted = self.a.state(), self.a.refused.get(reason, 0)
        self.a.receive(frame)
        assert self.a.refused.get(reason, 0) == counted + 1, self.a.refused
        assert self.a.state() == before


def head_of(frame: bytes, **changed: int) -> bytes:
    """A frame with fields changed and its check made right again."""
    head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(frame))._replace(**changed)
    front = wire.HEAD_STRUCT.pack(*head)[: wire.CHECK_OFFSET]
    check = (hash64(front) & 0xFFFFFFFF).to_bytes(4)
    return front + check + frame[wire.HEAD_SIZE :]


@on_every_generation
def test_an_ack_of_all_that_was_sent_is_believed_and_one_beyond_is_not(
    generation: str, timing: str
) -> None:
    pair = Hostile(generation, timing)
    pair.refuses("ack-beyond-sent", pair.forge.ack(pair.conn, 2 * SENT + 1, 1 << 20))
    pair.refuses("ack-beyond-sent", pair.forge.ack(pair.conn, MAX_SEQNO, 1 << 20))

    pair.a.receive(pair.forge.ack(pair.conn, 2 * SENT, 1 << 20))
    assert pair.a.unacked("B") == 0


@on_every_generation
def test_an_sfs_that_saw_what_was_never_sent_is_refused(generation: str, timing: str) -> None:
    pair = Hostile(generation, timing)
    pair.refuses("sfs-beyond-sent", pair.forge.sfs(pair.conn, 2 * SENT + 1, 1 << 20))

    sent = pair.count("A")
    pair.a.receive(pair.forge.sfs(pair.conn, 2 * SENT, 1 << 20))
    assert pair.count("A") > sent


@on_every_generation
def test_a_request_beyond_the_window_is_refused(generation: str, timing: str) -> None:
    """Up to the end of the window it may be asked for, whatever is there; not one beyond."""
    pair = Hostile(generation, timing, window_messages=100, **_threshold(generation))
    end = SENT + 100
    pair.refuses("request-beyond-window", pair.forge.request(pair.conn, (7, 8), (end, end + 1)))
    pair.refuses("request-beyond-window", pair.forge.request(pair.conn, (7, MAX_SEQNO >> 40)))
    sent = pair.count("A")

    pair.a.receive(pair.forge.request(pair.conn, (7, 8), (end, end)))
    assert pair.count("A") == sent + 2


@pytest.mark.parametrize(
    ("reason", "lo"), [("seqno", 0), ("seqno", MAX_SEQNO), ("seqno", (1 << 64) - 1)]
)
@on_every_generation
def test_seqnos_start_at_one_and_end_at_their_maximum(
    generation: str, timing: str, reason: str, lo: int
) -> None:
    pair = Hostile(generation, timing)
    pair.refuses(reason, pair.forge.data(pair.incoming, lo, b"x"))


@on_every_generation
def test_a_connection_without_a_name_is_refused(generation: str, timing: str) -> None:
    pair = Hostile(generation, timing)
    pair.refuses("no-conn", pair.forge.data(0, 1, b"x"))


@on_every_generation
def test_a_batch_that_claims_to_be_purged_itself_is_refused(generation: str, timing: str) -> None:
    """`mark` says what the sender has dropped: below the last message of what it sends."""
    pair = Hostile(generation, timing)
    pair.refuses("mark", pair.forge.data(pair.incoming, 6, b"6", b"7", mark=7))
    pair.a.receive(pair.forge.data(pair.incoming, 6, b"6", b"7", mark=6))
    assert pair.a.delivered == [b"6", b"7"]


@on_every_generation
def test_data_beyond_the_window_is_not_kept(generation: str, timing: str) -> None:
    """The last seqno of the window is kept, the next one is counted and leaves only the knowledge
    that there is more to ask for (R-2)."""
    pair = Hostile(generation, timing, window_messages=100, **_threshold(generation))
    window = pair.a.receiver("B").window
    pair.a.receive(pair.forge.data(pair.incoming, SENT + 101, b"x"))
    assert pair.a.refused["beyond-window"] == 1
    assert (len(window), window.delivered, window.high) == (0, SENT, SENT)
    pair.a.receive(pair.forge.data(pair.incoming, MAX_SEQNO - 1, b"x"))
    assert pair.a.refused["beyond-window"] == 2
    assert window.seen <= SENT + 100

    pair.a.receive(pair.forge.data(pair.incoming, SENT + 100, b"x"))
    assert (len(window), window.high) == (1, SENT + 100)
    assert pair.a.delivered == []


@on_every_generation
def test_what_is_not_of_this_cluster_is_refused(generation: str, timing: str) -> None:
    pair = Hostile(generation, timing)
    foreign = Forger(pair, "B", "A", cluster="another")
    pair.refuses("cluster", foreign.data(pair.incoming, 6, b"x"))
    pair.refuses("cluster", foreign.ack(pair.conn, 2 * SENT, 1 << 20))


@on_every_generation
def test_what_is_for_or_from_the_wrong_member_is_refused(generation: str, timing: str) -> None:
    """For somebody else; from ourselves; from nobody."""
    pair = Hostile(generation, timing)
    pair.refuses("other-destination", Forger(pair, "B", "C").data(pair.incoming, 6, b"x"))
    pair.refuses("bad-source", Forger(pair, "A", "A").data(pair.incoming, 6, b"x"))
    nobody = head_of(pair.forge.data(pair.incoming, 6, b"x"), source=0)
    pair.refuses("bad-source", nobody)


@on_every_generation
def test_what_is_of_another_version_or_protocol_is_refused(generation: str, timing: str) -> None:
    pair = Hostile(generation, timing)
    frame = pair.forge.data(pair.incoming, 6, b"x")
    pair.refuses("version", head_of(frame, version=wire.VERSION + 1))
    pair.refuses("magic", head_of(frame, magic=wire.MAGIC ^ 1))
    pair.refuses("kind", head_of(pair.forge.ack(pair.conn, 6, 1 << 20), kind=99))
    other = pair.a.stack.unicast.protocol % 4 + 1
    pair.refuses("protocol", Forger(pair, "B", "A", protocol=other).data(pair.incoming, 6, b"x"))


@pytest.mark.parametrize(
    "harm",
    [
        lambda frame: frame[:-1],
        lambda frame: frame[: wire.HEAD_SIZE - 1],
        lambda frame: bytes([frame[0]]) + bytes(len(frame) - 1),
        lambda frame: frame[:40] + bytes([frame[40] ^ 1]) + frame[41:],
        lambda frame: frame[:-1] + bytes([frame[-1] ^ 0x80]),
        lambda frame: head_of(frame, count=2),
        lambda frame: head_of(frame, count=0),
        lambda frame: head_of(frame, width=3),
        lambda frame: head_of(frame, headers=2),
    ],
    ids=["cut", "head-cut", "zeros", "head-bit", "body-bit", "count", "empty", "width", "headers"],
)
@on_every_generation
def test_what_is_harmed_on_the_way_changes_nothing(
    generation: str, timing: str, harm: Callable[[bytes], bytes]
) -> None:
    pair = Hostile(generation, timing)
    before, sent = pair.a.state(), len(pair.wire)
    refused = sum(pair.a.refused.values())
    pair.a.receive(harm(pair.forge.data(pair.incoming, 6, b"x")))

    assert pair.a.state() == before
    assert len(pair.wire) == sent
    assert sum(pair.a.refused.values()) == refused + 1


@on_every_generation
def test_requests_that_are_no_ascending_ranges_are_refused(generation: str, timing: str) -> None:
    pair = Hostile(generation, timing)
    for ranges in ([(8, 9), (6, 7)], [(6, 8), (8, 9)], [(0, 3)]):
        pair.refuses("ranges", pair.forge.request(pair.conn, *ranges))
    codec = Codec(hash64(b"test") & 0xFFFFFFFF, pair.short("B"), hash64)
    empty = codec.pack_control(
        wire.XMIT_REQ, pair.a.stack.unicast.protocol, pair.short("A"), pair.conn, 6
    )
    pair.refuses("ranges", empty)


@on_every_generation
def test_what_speaks_of_a_connection_that_does_not_exist_is_refused(
    generation: str, timing: str
) -> None:
    """From a stranger, and from B about another connection."""
    pair = Hostile(generation, timing)
    x = Forger(pair, "X", "A")
    pair.refuses("ack-no-connection", x.ack(pair.conn, 6, 1 << 20))
    pair.refuses("sfs-no-connection", x.sfs(pair.conn, 6, 1 << 20))
    pair.ignores("request-no-connection", x.request(pair.conn, (6, 6)))
    pair.refuses("close-other-connection", x.close(pair.incoming))
    pair.refuses("reset-other-connection", x.reset(pair.incoming, 9))
    other = pair.conn + 1
    pair.refuses("ack-other-connection", pair.forge.ack(other, 6, 1 << 20))
    pair.refuses("sfs-other-connection", pair.forge.sfs(other, 6, 1 << 20))
    pair.ignores("request-other-connection", pair.forge.request(other, (6, 6)))
    pair.refuses("close-other-connection", pair.forge.close(pair.incoming + 1))
    pair.refuses("reset-other-connection", pair.forge.reset(pair.incoming + 1, 9))


@on_every_generation
def test_a_reset_beyond_the_window_is_refused(generation: str, timing: str) -> None:
    pair = Hostile(generation, timing, window_messages=100, **_threshold(generation))
    pair.refuses("reset-beyond-window", pair.forge.reset(pair.incoming, SENT + 101))
    pair.a.receive(pair.forge.reset(pair.incoming, SENT + 100))
    assert pair.a.receiver("B").window.delivered == SENT + 100


@on_every_generation
def test_a_report_is_for_unicast2_and_must_make_sense(generation: str, timing: str) -> None:
    """STABLE: delivered at most what was received, received at most what was sent."""
    pair = Hostile(generation, timing)
    if generation != "UNICAST2":
        pair.refuses("kind", pair.forge.stable(pair.conn, 6, 6, 1 << 20))
        return
    pair.refuses("stable-order", pair.forge.stable(pair.conn, 8, 7, 1 << 20))
    pair.refuses("ack-beyond-sent", pair.forge.stable(pair.conn, 11, 11, 1 << 20))
    pair.refuses("stable-other-connection", pair.forge.stable(pair.conn + 1, 6, 6, 1 << 20))
    pair.a.receive(pair.forge.stable(pair.conn, 8, 8, 1 << 20))
    assert pair.a.unacked("B") == 2


@on_every_generation
def test_an_old_first_frame_of_a_known_sender_changes_nothing(generation: str, timing: str) -> None:
    """An attacker, or the network, repeats an opening of an earlier id."""
    pair = Hostile(generation, timing, first_conn=100)
    pair.refuses("old-connection", pair.forge.data(pair.incoming - 1, 1, b"x", flags=FIRST))


@on_every_generation
def test_a_flood_of_strangers_is_bounded_and_does_not_disturb_who_is_known(
    generation: str, timing: str
) -> None:
    """G5: 300 sources send what belongs to no connection; A and B go on."""
    pair = Pair(generation, timing, max_cached_frames=3)
    pair.open()
    template = Forger(pair, "X", "B").data(7, 2, b"x")
    for source in range(0x1000, 0x1000 + 300):
        for _ in range(5):
            pair.b.receive(head_of(template, source=source))
    pair.a.send(*numbered(11, 15))
    pair.deliver()

    assert pair.b.delivered == numbered(11, 15)
    assert pair.b.cached() <= 900
    assert len(pair.b.stack.unicast.receive_connections()) == 1


def _threshold(generation: str) -> dict[str, object]:
    return {"ack_threshold": 10} if generation == "UNICAST4" else {}
