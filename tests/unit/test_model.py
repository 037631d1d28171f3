"""Addresses, views, flags, and deliveries cut out of a frame."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core import model
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import (
    CUT_AT_ONCE,
    VIEW_FROM_BYTES,
    Address,
    Delivery,
    Payload,
    View,
    ViewId,
    as_payload,
    flag_names,
    split_payloads,
)

A, B, C = (Address(number, name) for number, name in ((1, "a"), (2, "b"), (3, "c")))


# -- Messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("text", r"of type str, and no bytes: encode it, as in text\.encode\(\)"),
        (None, "of type NoneType, and no bytes: write bytes"),
        (17, "of type int"),
        ([b"x"], "of type list"),
        (memoryview(b"x").release, "of type builtin_function_or_method"),
    ],
)
def test_what_is_no_bytes_is_no_message(message: object, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        as_payload(message)


def test_a_view_that_was_released_is_no_message() -> None:
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(ConfigError, match=r"of type memoryview \(operation forbidden"):
        as_payload(view)


def test_bytes_are_kept_as_they_are_and_plain_views_without_a_copy() -> None:
    for message in (b"", b"abc"):
        assert as_payload(message) is message
    for view in (memoryview(b"abc"), memoryview(b"abcdef")[2:4]):
        kept = as_payload(view)
        assert isinstance(kept, memoryview)
        assert (kept, kept.obj) == (view, view.obj)


def test_a_view_that_its_owner_releases_is_still_kept() -> None:
    with memoryview(b"abc") as part:
        kept = as_payload(part)
    assert bytes(kept) == b"abc"


@pytest.mark.parametrize(
    ("message", "bytes_"),
    [
        (bytearray(b"abc"), b"abc"),
        (array("I", [1, 2]), array("I", [1, 2]).tobytes()),
        (memoryview(array("H", [1, 2])), array("H", [1, 2]).tobytes()),
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abcd").cast("B", (2, 2)), b"abcd"),
    ],
)
def test_of_other_buffers_the_bytes_are_copied(message: object, bytes_: bytes) -> None:
    """Their length is no number of bytes, or may change while a message waits."""
    assert as_payload(message) == bytes_
    assert isinstance(as_payload(message), bytes)


# -- Addresses and views -------------------------------------------------------------------------


def test_an_address_is_its_identity_whatever_its_name() -> None:
    assert Address(7, "old name") == Address(7, "new name")
    assert Address(7, "same") != Address(8, "same")
    assert Address(7, "a") != 7
    assert len({Address(7, "a"), Address(7, "b"), Address(8, "a")}) == 2
    assert str(Address(7, "a")) == "a"


def test_the_short_id_is_the_low_half_word_and_never_nobody() -> None:
    """0 means "nobody" in a frame."""
    assert Address(0x1_2345_6789, "a").short == 0x2345_6789
    assert Address(1 << 64, "a").short == 1
    # Two members may share a short id: they stay two, and membership refuses the second.
    assert Address(1 << 64, "a") != Address(1, "a")


@pytest.mark.parametrize("identity", [0, -1, 1 << 128])
def test_an_identity_has_128_bits_and_is_not_zero(identity: int) -> None:
    with pytest.raises(AssertionError):
        Address(identity, "a")
    assert Address((1 << 128) - 1, "a").short == 0xFFFF_FFFF


def test_view_ids_are_ordered_by_number_and_then_by_creator() -> None:
    """V3: of two views with one number, everyone picks the same one."""
    ids = [ViewId(1, B), ViewId(2, A), ViewId(2, B), ViewId(10, A)]
    assert sorted([ids[2], ids[3], ids[0], ids[1]]) == ids
    assert ViewId(2, A) == ViewId(2, Address(1, "renamed"))
    assert str(ViewId(2, A)) == "a:2"


def test_a_view_knows_who_joined_and_who_left() -> None:
    older = View(ViewId(1, A), (A, B))
    newer = View(ViewId(2, B), (B, C))
    assert newer.joined(older) == (C,)
    assert newer.left(older) == (A,)
    assert newer.coordinator is B
    assert str(newer) == "b:2{b,c}"


def test_a_view_names_each_member_once() -> None:
    with pytest.raises(AssertionError):
        View(ViewId(1, A), (A, B, Address(1, "also a")))


# -- Flags ---------------------------------------------------------------------------------------


def test_flags_are_pinned() -> None:
    """They travel in one byte: message flags below, frame flags above."""
    assert {name: getattr(model, name) for name in model.FLAG_NAMES.values()} == {
        "OOB": 1,
        "DONT_BUNDLE": 2,
        "NO_FC": 4,
        "NO_RELIABILITY": 8,
        "DONT_LOOPBACK": 16,
        "FIRST": 32,
        "RESET": 64,
        "FRAGMENT": 128,
    }
    assert model.MESSAGE_FLAGS == 0x1F


def test_flags_are_named_in_words() -> None:
    assert flag_names(0) == ""
    assert flag_names(model.OOB) == "OOB"
    assert flag_names(model.FIRST | model.OOB | model.DONT_LOOPBACK) == "OOB|DONT_LOOPBACK|FIRST"
    assert flag_names(0xFF) == "|".join(model.FLAG_NAMES.values())


# -- Deliveries ----------------------------------------------------------------------------------


def delivery(*payloads: bytes, before: bytes = b"head") -> Delivery:
    """A delivery of payloads that lie in a body behind something else, as in a frame."""
    lengths = list(map(len, payloads))
    is_equal = len(set(lengths)) == 1
    body = before + b"".join(payloads) + b"tail"
    return Delivery(
        1, 2, 10, 9 + len(payloads), 0, body, len(before), lengths[0] if is_equal else lengths, 3
    )


def test_a_delivery_is_a_sequence_of_its_messages() -> None:
    messages = [b"one", b"two", b"three", b"", b"five"]
    batch = delivery(*messages)
    assert len(batch) == 5
    assert list(batch) == messages
    assert (batch[0], batch[-1], batch[2]) == (b"one", b"five", b"three")
    assert list(batch[1:3]) == [b"two", b"three"]
    assert list(batch[::-2]) == [b"five", b"three", b"one"]
    assert list(reversed(batch)) == messages[::-1]
    assert b"two" in batch
    assert b"four" not in batch
    assert batch.index(b"three") == 2
    assert (batch.lo, batch.hi) == (10, 14)
    with pytest.raises(IndexError):
        batch[5]


def test_a_delivery_of_equal_messages_is_a_sequence_too() -> None:
    batch = delivery(b"aa", b"bb", b"cc")
    assert list(batch) == [b"aa", b"bb", b"cc"]
    assert list(batch[1:]) == [b"bb", b"cc"]
    assert batch[-1] == b"cc"


def test_counting_messages_does_not_cut_them() -> None:
    """The body here is too short for the lengths; only who looks at a message finds out."""
    batch = Delivery(1, 2, 10, 14, 0, b"", 0, [100] * 5, 1)
    assert len(batch) == 5


def test_messages_are_cut_once() -> None:
    batch = delivery(b"one", b"three")
    assert batch.messages is batch.messages
    assert batch[1] is batch[1]


@pytest.mark.parametrize("others", [[], [0], [1], [VIEW_FROM_BYTES]])
def test_large_messages_are_views_and_small_ones_copies(others: list[int]) -> None:
    """From 1 KiB a view is cheaper; below it, bytes are, and they do not keep the frame alive."""
    small = delivery(*map(bytes, [VIEW_FROM_BYTES - 1, *others]))[0]
    large = delivery(*map(bytes, [VIEW_FROM_BYTES, *others]))[0]
    assert isinstance(small, bytes)
    assert isinstance(large, memoryview)
    assert large == bytes(VIEW_FROM_BYTES)


@pytest.mark.parametrize("size", [VIEW_FROM_BYTES - 1, VIEW_FROM_BYTES])
def test_equal_messages_are_views_or_copies_alike(size: int) -> None:
    kinds = {type(message) for message in delivery(*[bytes(size)] * 3)}
    assert kinds == {bytes if size < VIEW_FROM_BYTES else memoryview}


def test_a_view_looks_into_the_frame_and_copies_nothing() -> None:
    body = bytes(range(256)) * 8
    (message,) = split_payloads(body, 4, 2000, 1)
    assert isinstance(message, memoryview)
    assert message.obj is body
    assert message == body[4:2004]


@pytest.mark.parametrize("count", [1, 2, CUT_AT_ONCE - 1, CUT_AT_ONCE, CUT_AT_ONCE + 1, 65535])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_equal_payloads_are_cut_in_any_number(size: int, count: int) -> None:
    payloads = [bytes([number & 255]) * size for number in range(count)]
    assert list(split_payloads(b"??" + b"".join(payloads), 2, size, count)) == payloads


@given(
    payloads=st.lists(st.binary(max_size=30) | st.builds(bytes, st.integers(1020, 1030))),
    before=st.binary(max_size=10),
    viewed=st.booleans(),
)
def test_unequal_payloads_are_cut_where_they_end(
    payloads: list[bytes], before: bytes, *, viewed: bool
) -> None:
    body: Payload = before + b"".join(payloads)
    if viewed:
        body = memoryview(body)
    cut = split_payloads(body, len(before), list(map(len, payloads)), len(payloads))
    assert list(cut) == payloads
