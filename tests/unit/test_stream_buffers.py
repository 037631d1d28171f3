"""The buffers of a connection: what leaves in any pieces, and what comes in any pieces."""

from __future__ import annotations

from random import Random

import pytest

from stormcast.node.transports.stream_buffers import READ_BYTES, InBuffer, OutQueue


def drain(queue: OutQueue, dice: Random, gather: int) -> bytes:
    """All that leaves, as much at once as a kernel pleases."""
    left = b""
    while queue.parts:
        data = b"".join(list(queue.parts)[:gather])
        sent = dice.randint(1, len(data))
        left += data[:sent]
        queue.take(sent)
    return left


@pytest.mark.parametrize("seed", range(10))
def test_all_bytes_leave_once_and_in_order(seed: int) -> None:
    dice = Random(seed)
    queue = OutQueue()
    frames = [dice.randbytes(dice.randint(1, 50)) for _ in range(100)]
    for frame in frames:
        cut = dice.randint(0, len(frame))
        queue.put((frame[:cut], frame[cut:]) if 0 < cut < len(frame) else (frame,))
    assert queue.size == sum(map(len, frames))
    assert drain(queue, dice, dice.choice([2, 1024])) == b"".join(frames)
    assert (len(queue.frames), queue.size) == (0, 0)


def test_a_frame_counts_until_its_last_byte_has_left() -> None:
    queue = OutQueue()
    queue.put((b"head", b"body"))
    queue.put((b"next",))
    queue.take(7)
    assert (list(queue.frames), queue.size) == ([1, 4], 5)
    queue.take(1)
    assert (list(queue.frames), queue.size) == ([4], 4)


def test_a_greeting_leaves_before_what_has_waited() -> None:
    queue = OutQueue()
    queue.put((b"head", b"body"))
    queue.put_first(b"hello")
    assert drain(queue, Random(1), 2) == b"helloheadbody"


def test_what_waits_moves_to_another_queue_whole_and_in_order() -> None:
    queue, other = OutQueue(), OutQueue()
    queue.put((b"one", b"two"))
    queue.take(2)
    other.put((b"three",))
    other.put((b"four", b"five"))
    queue.take_over(other)
    assert (other.size, list(other.frames), list(other.parts)) == (0, [], [])
    assert (queue.size, list(queue.frames)) == (17, [4, 5, 8])
    assert drain(queue, Random(1), 2) == b"etwothreefourfive"


@pytest.mark.parametrize("left", [0, 2, 5])
def test_of_what_waits_the_first_frame_stays_in_what_is_left_of_its_parts(left: int) -> None:
    queue = OutQueue()
    assert queue.drop_rest() == 0
    queue.put((b"one", b"two"))
    queue.take(left)
    assert queue.drop_rest() == 0
    queue.put((b"three",))
    queue.put((b"four", b"five"))
    assert queue.drop_rest() == 2
    assert (queue.size, list(queue.frames)) == (6 - left, [6 - left])
    assert drain(queue, Random(1), 2) == b"onetwo"[left:]


def test_a_buffer_gives_memory_back_and_keeps_what_is_left() -> None:
    buffer = InBuffer()
    fill(buffer, b"abcde")
    buffer.start = 3
    buffer.shrink(16)
    assert (buffer.size, bytes(buffer.view[buffer.start : buffer.end])) == (16, b"de")
    fill(buffer, b"f")
    assert bytes(buffer.view[buffer.start : buffer.end]) == b"def"


def fill(buffer: InBuffer, data: bytes) -> None:
    if buffer.end == buffer.size:
        buffer.make_room()
    buffer.view[buffer.end : buffer.end + len(data)] = data
    buffer.end += len(data)


def test_what_is_not_taken_yet_survives_a_move_to_the_front() -> None:
    buffer = InBuffer()
    fill(buffer, bytes(READ_BYTES - 3) + b"abc")
    buffer.start = READ_BYTES - 3
    fill(buffer, b"de")
    assert bytes(buffer.view[buffer.start : buffer.end]) == b"abcde"
    assert buffer.size == READ_BYTES


def test_a_frame_larger_than_the_buffer_gets_a_larger_one() -> None:
    buffer = InBuffer()
    fill(buffer, b"xxabc")
    buffer.start = 2
    buffer.need(READ_BYTES - 2)
    assert (buffer.start, buffer.size) == (2, READ_BYTES)
    buffer.need(READ_BYTES + 1)
    assert (buffer.start, buffer.size) == (0, READ_BYTES + 1)
    assert bytes(buffer.view[: buffer.end]) == b"abc"
