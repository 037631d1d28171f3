"""Requests are what they say to be, and an answer that must not be is a finding."""

from __future__ import annotations

from collections import Counter

import h11
import pytest

from tests.fuzz.requests import CHUNK, MANY_CHUNKS, Door, Request, RequestAttack, requests
from tests.fuzz.tallies import Tally

DOOR = Door(
    name="n0", host="198.18.0.2", port=7801, token="t" * 20, reads=("/state",),
    commands=("/claim", "/member/consume"), largest=1 << 16,
)  # fmt: skip  # two lines
BULKY = ("largest", "largest-chunked", "larger-chunked", "tiny", "many-tiny")


def made(count: int = 500) -> list[Request]:
    return [one for chunk in range(count) for one in requests(DOOR, 1, chunk)]


def parsed(data: bytes) -> tuple[h11.Request, list[int]]:
    """A request, and the sizes of the pieces of its body."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(data)
    head, sizes = server.next_event(), list[int]()
    assert isinstance(head, h11.Request)
    while isinstance(event := server.next_event(), h11.Data):
        sizes.append(len(event.data))
    assert isinstance(event, h11.EndOfMessage)
    return head, sizes


@pytest.mark.slow
def test_bulky_requests_are_whole_with_the_token_and_without() -> None:
    seen = Counter[str]()
    for request in made():
        kind = request.recipe.removesuffix("-no-token")
        if kind not in BULKY:
            continue
        seen[request.recipe] += 1
        head, sizes = parsed(request.data)
        has_token = any(name == b"authorization" for name, _value in head.headers)
        assert has_token is (kind == request.recipe)
        assert (401 in request.wanted) is not has_token
        if kind.startswith("large"):
            assert sum(sizes) == DOOR.largest + (kind == "larger-chunked")
        if kind == "larger-chunked":
            assert 413 in request.wanted
        if "tiny" in kind:
            assert max(sizes) <= 3
        if kind == "many-tiny":
            assert sum(sizes) == MANY_CHUNKS
    assert seen.keys() == {f"{kind}{token}" for kind in BULKY for token in ("", "-no-token")}


def test_requests_are_the_same_each_time() -> None:
    assert requests(DOOR, 1, 7) == requests(DOOR, 1, 7)
    assert [one.number for one in requests(DOOR, 1, 7)] == list(range(7 * CHUNK, 8 * CHUNK))
    assert requests(DOOR, 1, 7) != requests(DOOR, 2, 7)


@pytest.mark.parametrize(("status", "finding"), [(400, ""), (503, ""), (200, "tiny: answered 200")])
def test_an_answer_that_does_not_fit_is_found(status: int, finding: str) -> None:
    tally = Tally()
    request = Request(7, b"", "tiny", frozenset({400}), is_last=True)
    RequestAttack(DOOR, 1)._judge(request, status, tally)
    assert tally.findings == ([(7, finding)] if finding else [])
