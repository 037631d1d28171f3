"""Membership's bodies, whole and hostile: refused with a reason before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame, ConfigError
from stormcast.node.core.model import View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.gms import GmsConfig, messages
from stormcast.node.protocols.gms.messages import MergeAnswer, MergeId, MergePart, ViewNotice
from tests.helpers.membership import address

A, B = address("A"), address("B")
VIEW = View(ViewId(5, A), (A, B))
DIGEST = Digest({A.short: (3, 4), B.short: (0, 9)})
MERGE = MergeId(A, 1)
PART = MergePart(MERGE, DIGEST, frozenset({A.short}))

BODIES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "address": (messages.pack_address(A), messages.unpack_address_untrusted),
    "join": (messages.pack_join_answer(VIEW, DIGEST), messages.unpack_join_answer_untrusted),
    "refusal": (messages.pack_join_refusal(A, "no"), messages.unpack_join_answer_untrusted),
    "view": (messages.pack_view(VIEW), messages.unpack_view_untrusted),
    "merge-view": (messages.pack_merge_view(VIEW, PART), messages.unpack_view_untrusted),
    "view-id": (messages.pack_view_id(VIEW.id), messages.unpack_view_id_untrusted),
    "merge-id": (messages.pack_merge_id(MERGE), messages.unpack_merge_id_untrusted),
    "merge-answer": (
        messages.pack_merge_answer(MergeAnswer(MERGE, False, VIEW, Digest({A.short: (3, 4)}))),
        lambda body: messages.unpack_merge_answer_untrusted(A.short, body),
    ),
}


def reason_of(act: Callable[[], object]) -> str:
    with pytest.raises(BadFrame) as caught:
        act()
    return caught.value.reason


def test_what_is_packed_is_unpacked() -> None:
    unpacked = {name: unpack(body) for name, (body, unpack) in BODIES.items()}
    assert unpacked == {
        "address": A,
        "join": messages.JoinAnswer(VIEW, DIGEST),
        "refusal": messages.JoinRefusal(A, "no"),
        "view": ViewNotice(VIEW, None),
        "merge-view": ViewNotice(VIEW, PART),
        "view-id": VIEW.id,
        "merge-id": MERGE,
        "merge-answer": MergeAnswer(MERGE, False, VIEW, Digest({A.short: (3, 4)})),
    }


@pytest.mark.parametrize("name", BODIES)
def test_a_body_cut_short_or_continued_is_refused(name: str) -> None:
    body, unpack = BODIES[name]
    for size in range(len(body)):
        with pytest.raises(BadFrame):
            unpack(body[:size])
    assert reason_of(lambda: unpack(body + b"\0")) == "body-long"


@pytest.mark.parametrize("name", BODIES)
@given(data=st.data())
def test_any_bytes_are_taken_apart_or_refused(name: str, data: st.DataObject) -> None:
    body, unpack = BODIES[name]
    at = data.draw(st.integers(0, len(body) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=4))
    for hostile in (body[:at] + patch + body[at + len(patch) :], data.draw(st.binary(max_size=80))):
        with suppress(BadFrame):
            unpack(hostile)


@pytest.mark.parametrize("number", [0, messages.MAX_NUMBER])
def test_a_view_number_that_leaves_no_room_to_count_on_is_refused(number: int) -> None:
    view = View(ViewId(number, A), (A, B))
    assert reason_of(lambda: messages.unpack_view_untrusted(messages.pack_view(view))) == (
        "view-number"
    )


def test_the_highest_view_number_is_still_taken() -> None:
    view = View(ViewId(messages.MAX_NUMBER - 1, A), (A, B))
    assert messages.unpack_view_untrusted(messages.pack_view(view)).view == view


def test_a_joiners_digest_knows_the_members_and_nobody_else() -> None:
    for digest in (Digest({A.short: (0, 0)}), Digest({**DIGEST.seqnos, 99: (0, 0)})):
        body = messages.pack_join_answer(VIEW, digest)
        assert reason_of(lambda body=body: messages.unpack_join_answer_untrusted(body)) == (  # type: ignore[misc]
            "digest-members"
        )


def test_a_member_answers_a_merge_for_itself_only() -> None:
    """Hearsay about B in A's answer, and an answer about a view that A is not in (JGRP-948)."""
    hearsay = messages.pack_merge_answer(MergeAnswer(MERGE, False, VIEW, DIGEST))
    foreign = messages.pack_merge_answer(
        MergeAnswer(MERGE, False, View(ViewId(5, B), (B,)), Digest({A.short: (0, 0)}))
    )
    unpack = messages.unpack_merge_answer_untrusted
    assert reason_of(lambda: unpack(A.short, hearsay)) == "digest-members"
    assert reason_of(lambda: unpack(A.short, foreign)) == "view-members"


def test_a_count_that_the_body_cannot_hold_is_refused() -> None:
    body = Writer().u8(0).u64(5).address(A).u16(4000).address(A).bytes()
    assert reason_of(lambda: messages.unpack_view_untrusted(body)) == "count"


def test_a_view_that_names_a_member_twice_is_refused() -> None:
    body = Writer().u8(0).u64(5).address(A).addresses((A, A)).bytes()
    assert reason_of(lambda: messages.unpack_view_untrusted(body)) == "view-members"


@pytest.mark.parametrize("name", ["merge_timeout", "view_ack_collection_timeout", "join_timeout"])
def test_a_timeout_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"gms.{name} is 0"):
        GmsConfig(**{name: 0.0})  # type: ignore[arg-type]


def test_attempts_may_be_without_limit_but_not_negative() -> None:
    assert GmsConfig(max_join_attempts=0).max_join_attempts == 0
    with pytest.raises(ConfigError, match="max_join_attempts is -1"):
        GmsConfig(max_join_attempts=-1)
