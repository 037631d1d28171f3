"""Whose files with secrets are taken."""

from __future__ import annotations

import os
import stat

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.keys.private_files import check_private

ROOT, MEMBER = 0, 10001


def found(mode: int, uid: int, gid: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, uid, gid, 10, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "reader"),
    [
        (0o600, MEMBER, MEMBER, MEMBER),
        (0o400, ROOT, ROOT, ROOT),
        # A mounted Secret: of root, and of the group of the pod, in which the agent is root.
        (0o440, ROOT, MEMBER, MEMBER),
        (0o440, ROOT, MEMBER, ROOT),
    ],
)
def test_what_its_reader_alone_can_read_is_taken(
    mode: int, uid: int, gid: int, reader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: reader)
    check_private(found(mode, uid, gid), "token_file", "t")


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "reader"),
    [
        (0o640, MEMBER, MEMBER, MEMBER),
        (0o440, ROOT, ROOT, ROOT),
        (0o444, ROOT, MEMBER, ROOT),
        (0o460, ROOT, MEMBER, MEMBER),
        (0o404, ROOT, MEMBER, MEMBER),
    ],
)
def test_what_others_can_read_or_change_is_refused_with_the_remedy(
    mode: int, uid: int, gid: int, reader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: reader)
    with pytest.raises(ConfigError, match=f"token_file a b: .*mode {mode:o}.*chmod 600 a b$"):
        check_private(found(mode, uid, gid), "token_file", "a b")


@pytest.mark.parametrize(("uid", "reader"), [(MEMBER, ROOT), (MEMBER + 1, MEMBER)])
def test_what_belongs_to_somebody_else_is_refused_with_the_remedy(
    uid: int, reader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can read it, and its owner can change it."""
    monkeypatch.setattr("os.geteuid", lambda: reader)
    with pytest.raises(ConfigError, match=f"token_file t: .*user {uid}.*chown {reader} t$"):
        check_private(found(0o600, uid, uid), "token_file", "t")
