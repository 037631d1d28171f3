"""Shares of the descriptors that a process may have: each use has some, and all have no more than
there are."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.descriptors import FILES, LEAST, own_shares, share


@pytest.mark.parametrize("limit", [LEAST, 200, 256, 1000, 1024, 4096, 1 << 20])
def test_all_shares_fit_the_limit_and_none_is_empty(limit: int) -> None:
    shares = share(limit)
    assert FILES + sum(shares) <= limit
    assert min(shares) >= 7


def test_with_more_descriptors_no_share_is_smaller_and_each_has_a_bound_but_that_of_members() -> (
    None
):
    before = share(LEAST)
    for limit in range(LEAST, 20_000, 7):
        now = share(limit)
        assert all(one >= other for one, other in zip(now[:-1], before[:-1], strict=True))
        before = now
    assert share(1 << 20)[:-1] == share(1 << 30)[:-1] == (32, 16, 1024, 256, 256, 256)


def test_too_few_descriptors_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError) as refused:
        share(LEAST - 1)
    assert str(refused.value) == (
        "this process may have 127 file descriptors open, and a member needs 128; raise the limit "
        "(ulimit -n 128, or more)"
    )


def test_the_limit_is_the_soft_one_that_this_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (256, 4096))
    assert own_shares() == share(256)
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (resource.RLIM_INFINITY,) * 2)
    assert own_shares() == share(1 << 20)


def test_the_docs_tell_the_shares() -> None:
    text = (Path(__file__).parents[2] / "docs" / "transports.md").read_text()
    section = text.partition("\n## Descriptors\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    for column, limit in ((1, 256), (2, 1024)):
        assert [int(row[column]) for row in rows[2:]] == [FILES, *share(limit)]
