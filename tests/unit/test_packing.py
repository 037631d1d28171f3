"""Bodies of control frames: what is written is read, and what is not whole is refused (P-23)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import MAX_MEMBERS, MAX_TEXT, Reader, Writer

PLACE_A = "04 68 5b 31 5d"
A = Address(0xA0000000000000000000000000000001, "a", "h[1]")
B = Address(0xB0000000000000000000000000000002, "b")
VIEW = View(ViewId(7, B), (A, B))
DIGEST = Digest({2: (3, 4), 1: (0, 0)})
BIG = (1 << 64) - 1

IDENTITY_A = "a0 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01"
IDENTITY_B = "b0 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02"

# What stands in a body, how it is written, how it is read, and the bytes that pin it.
NOUNS: dict[str, tuple[object, Writer, Callable[[Reader], object], str]] = {
    "u8": (0x12, Writer().u8(0x12), Reader.u8_untrusted, "12"),
    "u16": (0x1234, Writer().u16(0x1234), Reader.u16_untrusted, "12 34"),
    "u32": (0x12345678, Writer().u32(0x12345678), Reader.u32_untrusted, "12 34 56 78"),
    "u64": (BIG - 1, Writer().u64(BIG - 1), Reader.u64_untrusted, "ff ff ff ff ff ff ff fe"),
    "text": ("né", Writer().text("né"), Reader.text_untrusted, "03 6e c3 a9"),
    "no text": ("", Writer().text(""), Reader.text_untrusted, "00"),
    "address": (
        A,
        Writer().address(A),
        Reader.address_untrusted,
        f"{IDENTITY_A} 01 61 {PLACE_A}",
    ),
    "addresses": (
        (B, A),
        Writer().addresses([B, A]),
        Reader.addresses_untrusted,
        f"00 02 {IDENTITY_B} 01 62 00 {IDENTITY_A} 01 61 {PLACE_A}",
    ),
    "nobody": ((), Writer().addresses([]), Reader.addresses_untrusted, "00 00"),
    "view id": (
        VIEW.id,
        Writer().view_id(VIEW.id),
        Reader.view_id_untrusted,
        f"00 00 00 00 00 00 00 07 {IDENTITY_B} 01 62 00",
    ),
    "view": (
        VIEW,
        Writer().view(VIEW),
        Reader.view_untrusted,
        f"00 00 00 00 00 00 00 07 {IDENTITY_B} 01 62 00 "
        f"00 02 {IDENTITY_A} 01 61 {PLACE_A} {IDENTITY_B} 01 62 00",
    ),
    # Ascending, whatever order it was made in: equal digests are equal bytes.
    "digest": (
        DIGEST,
        Writer().digest(DIGEST),
        Reader.digest_untrusted,
        "00 02 "
        "00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
        "00 00 00 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 04",
    ),
    "empty digest": (Digest(), Writer().digest(Digest()), Reader.digest_untrusted, "00 00"),
}


def reason_of(act: Callable[[], object]) -> str:
    with pytest.raises(BadFrame) as refused:
        act()
    return refused.value.reason


def read(body: bytes, verb: Callable[[Reader], object]) -> object:
    """One noun, and nothing after it."""
    reader = Reader(body)
    value = verb(reader)
    reader.end_untrusted()
    return value


# -- Round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_is_the_bytes_that_it_always_was(name: str) -> None:
    value, writer, verb, pinned = NOUNS[name]
    assert writer.bytes().hex(" ") == pinned
    assert read(bytes.fromhex(pinned), verb) == value


def test_nouns_follow_each_other_without_a_gap() -> None:
    body = b"".join(writer.bytes() for _value, writer, _verb, _pinned in NOUNS.values())
    reader = Reader(body)
    assert [verb(reader) for _value, _writer, verb, _pinned in NOUNS.values()] == [
        value for value, _writer, _verb, _pinned in NOUNS.values()
    ]
    reader.end_untrusted()


PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
TEXTS = st.text(PRINTABLE, max_size=60)
ADDRESSES = st.builds(Address, st.integers(1, (1 << 128) - 1), TEXTS, TEXTS)
MEMBERS = st.lists(ADDRESSES, min_size=1, max_size=8, unique_by=lambda member: member.short)
VIEW_IDS = st.builds(ViewId, st.integers(0, BIG), ADDRESSES)
VIEWS = st.builds(View, VIEW_IDS, MEMBERS.map(tuple))
PAIRS = st.tuples(st.integers(0, wire.MAX_SEQNO), st.integers(0, wire.MAX_SEQNO)).map(
    lambda pair: (min(pair), max(pair))
)
DIGESTS = st.dictionaries(st.integers(1, (1 << 32) - 1), PAIRS, max_size=8).map(Digest)


@given(ADDRESSES)
def test_any_address_comes_out_as_it_went_in(address: Address) -> None:
    back = read(Writer().address(address).bytes(), Reader.address_untrusted)
    assert isinstance(back, Address)
    assert (back, back.short, back.name) == (address, address.short, address.name)
    assert back.where == address.where


@given(VIEWS)
def test_any_view_comes_out_as_it_went_in(view: View) -> None:
    """Identities, names and ranks, and whoever made it, member or not."""
    back = read(Writer().view(view).bytes(), Reader.view_untrusted)
    assert isinstance(back, View)
    assert back == view
    assert str(back) == str(view)


@given(DIGESTS)
def test_any_digest_comes_out_as_it_went_in(digest: Digest) -> None:
    body = Writer().digest(digest).bytes()
    assert read(body, Reader.digest_untrusted) == digest
    # One value, one form: a body can be compared, and hashed, without being taken apart.
    again = Digest(dict(reversed(list(digest.seqnos.items()))))
    assert Writer().digest(again).bytes() == body


@given(DIGESTS, DIGESTS)
def test_digests_merge_on_either_side_of_the_wire_alike(one: Digest, other: Digest) -> None:
    """P-19: the maximum of what was read is what was the maximum when it was written."""
    read_one, read_other = (
        read(Writer().digest(digest).bytes(), Reader.digest_untrusted) for digest in (one, other)
    )
    assert isinstance(read_one, Digest)
    assert isinstance(read_other, Digest)
    assert read_one.merged(read_other) == one.merged(other)


@given(st.text(PRINTABLE | st.just("\ud800"), max_size=400))
def test_a_text_comes_out_as_it_went_in_up_to_its_255_bytes(text: str) -> None:
    body = Writer().text(text).bytes()
    back = read(body, Reader.text_untrusted)
    assert isinstance(back, str)
    if len(text.encode(errors="replace")) <= 255:
        assert back == text.encode(errors="replace").decode()
    else:
        # The cut may go through the middle of its last character.
        assert len(body) == 256
        assert text.encode(errors="replace").decode().startswith(back.rstrip("\ufffd"))


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("x" * 255, "x" * 255),
        ("x" * 256, "x" * 255),
        ("x" * 254 + "é", "x" * 254 + "\ufffd"),
        ("half a pair: \ud800", "half a pair: ?"),
    ],
)
def test_a_text_that_does_not_fit_is_cut_and_never_an_error(text: str, back: str) -> None:
    assert read(Writer().text(text).bytes(), Reader.text_untrusted) == back


# -- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_cut_short_is_refused(name: str) -> None:
    _value, writer, verb, _pinned = NOUNS[name]
    body = writer.bytes()
    for size in range(len(body)):
        assert reason_of(partial(verb, Reader(body[:size]))) in {"body-short", "count"}


@pytest.mark.parametrize("name", NOUNS)
def test_a_noun_with_something_behind_it_is_refused(name: str) -> None:
    _value, writer, verb, _pinned = NOUNS[name]
    assert reason_of(lambda: read(writer.bytes() + b"\0", verb)) == "body-long"


def test_an_identity_of_zeros_is_nobody() -> None:
    assert reason_of(lambda: Reader(bytes(18)).address_untrusted()) == "address"
    assert Reader(bytes(15) + b"\x01\x00\x00").address_untrusted() == Address(1, "")


def entries(*listed: tuple[int, int, int], count: int | None = None) -> bytes:
    number = len(listed) if count is None else count
    return struct.pack(">H", number) + b"".join(struct.pack(">IQQ", *one) for one in listed)


def test_a_digest_holds_at_its_limits_and_is_refused_just_past_them() -> None:
    """A member is somebody, has one entry, has not delivered more than it received, and no seqno is
    beyond all seqnos."""
    most = wire.MAX_SEQNO
    for good in [(1, 0, 0), (1, 5, 5), (1, most, most), (0xFFFFFFFF, 0, most)]:
        digest = Reader(entries(good)).digest_untrusted()
        assert digest.seqnos == {good[0]: good[1:]}
    for bad in [(0, 1, 1), (1, 6, 5), (1, 0, most + 1), (1, most + 1, most + 1), (1, BIG, BIG)]:
        assert reason_of(Reader(entries(bad)).digest_untrusted) == "digest-entry"
    twice = entries((1, 2, 3), (1, 2, 3))
    assert reason_of(lambda: Reader(twice).digest_untrusted()) == "digest-entry"


def test_a_view_has_members_and_can_tell_them_apart() -> None:
    """Frames name members by short ids: two with one would be one."""

    def view(*members: Address) -> bytes:
        return Writer().view_id(VIEW.id).addresses(members).bytes()

    twin = Address((1 << 96) + A.short, "not a")
    assert (twin.short, twin != A) == (A.short, True)
    assert Reader(view(A)).view_untrusted().members == (A,)
    for members in [(), (A, A), (A, twin), (A, B, twin)]:
        assert reason_of(Reader(view(*members)).view_untrusted) == "view-members"


def test_a_count_is_believed_only_when_the_entries_can_be_there() -> None:
    """A frame of a few bytes must not make a reader loop 65,535 times (G5)."""
    body = entries((1, 0, 0), (2, 0, 0))
    assert len(Reader(body).digest_untrusted().seqnos) == 2
    liar = entries((1, 0, 0), (2, 0, 0), count=3)
    assert reason_of(lambda: Reader(liar).digest_untrusted()) == "count"
    assert reason_of(lambda: Reader(b"\xff\xff").addresses_untrusted()) == "count"
    liar = struct.pack(">H", 2) + Writer().address(A).bytes()
    assert reason_of(lambda: Reader(liar).addresses_untrusted()) == "count"


def test_no_body_names_more_members_than_a_group_may_have() -> None:
    most = [(member, 0, 0) for member in range(1, MAX_MEMBERS + 2)]
    assert len(Reader(entries(*most[:-1])).digest_untrusted().seqnos) == MAX_MEMBERS
    assert reason_of(lambda: Reader(entries(*most)).digest_untrusted()) == "count"
    crowd = [Address(number, "") for number, _delivered, _received in most]
    body = Writer().addresses(crowd[:-1]).bytes()
    assert len(Reader(body).addresses_untrusted()) == MAX_MEMBERS
    body = Writer().addresses(crowd).bytes()
    assert reason_of(lambda: Reader(body).addresses_untrusted()) == "count"


# -- Any bytes -----------------------------------------------------------------------------------

REASONS = {"body-short", "address", "count", "view-members", "digest-entry"}
VERBS = st.sampled_from([verb for _value, _writer, verb, _pinned in NOUNS.values()])
HEALTHY = st.sampled_from([writer.bytes() for _value, writer, _verb, _pinned in NOUNS.values()])


@st.composite
def nearly_right(draw: st.DrawFn) -> bytes:
    """Healthy nouns in a row, a few bytes of which were changed."""
    data = bytearray(b"".join(draw(st.lists(HEALTHY, max_size=4))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@given(st.binary(max_size=120) | nearly_right(), st.lists(VERBS, max_size=6))
def test_any_bytes_are_what_they_say_or_refused(
    data: bytes, verbs: list[Callable[[Reader], object]]
) -> None:
    """Whatever a stranger writes, and in whatever order it is read: a value that the product could
    have written, or BadFrame with a reason from a short list. Never another error."""
    reader = Reader(data)
    values: list[object] = []
    reason = ""
    try:
        values += [verb(reader) for verb in verbs]
    except BadFrame as bad:
        reason = bad.reason
    assert reason in {"", *REASONS}
    for value in values:
        if isinstance(value, View):
            assert read(Writer().view(value).bytes(), Reader.view_untrusted) == value
        elif isinstance(value, Digest):
            assert read(Writer().digest(value).bytes(), Reader.digest_untrusted) == value


# -- Texts that somebody else chose ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("né", "né"),
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("a\\nb", "a\\nb"),
    ],
)
def test_a_name_from_the_network_can_be_printed(name: str, shown: str) -> None:
    """Escaped where it is read: views, logs, answers and labels of metrics get no other."""
    where = f"{name}[1]"
    body = Writer().address(Address(1, name, where)).bytes()
    read = Reader(body).address_untrusted()
    assert read.name == shown
    assert read.where == f"{shown}[1]"


def test_an_escaped_name_is_no_longer_than_a_frame_takes_and_stays_as_it_is() -> None:
    """What one member escapes, others hear from it: all must know the same name."""
    once = Reader(Writer().text("é" + "\x1b" * (MAX_TEXT - 2)).bytes()).text_untrusted()
    assert len(once.encode()) <= MAX_TEXT
    assert Reader(Writer().text(once).bytes()).text_untrusted() == once
