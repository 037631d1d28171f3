"""Key files: made once, for their owner alone, read with errors that show nothing of a key."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError
from stormcast.node.keys.cli import key
from stormcast.node.keys.cluster_keys import (
    ClusterKey,
    new_key,
    read_keys,
    write_keys,
    write_new_key,
)
from stormcast.node.keys.key_file import KeyFile

MEMBER = 10001
"""A group of members."""


@pytest.fixture
def file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "cluster.key"
    assert key(["new", str(path)]) == Exit.HOLDS
    assert read_keys(str(path))[0].name in capsys.readouterr().out
    return path


def step(path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = key([what, str(path)])
    told = capsys.readouterr()
    return code, told.out + told.err


def names(path: Path) -> list[str]:
    return [one.name for one in read_keys(str(path))]


def test_only_its_owner_reads_it(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_is_never_overwritten(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text()
    code, told = step(file, "new", capsys)
    assert code == Exit.USAGE
    assert "never overwritten" in told
    assert file.read_text() == before


def test_no_step_shows_a_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("show", "add", "show", "turn", "drop"):
        secrets = [one.secret.hex() for one in read_keys(str(file))]
        code, told = step(file, what, capsys)
        assert code == Exit.HOLDS
        assert not any(secret[:8] in told for secret in secrets)
    assert "secret" not in repr(new_key())


def test_keys_are_changed_in_three_steps(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old,) = names(file)
    step(file, "add", capsys)
    first, new = names(file)
    assert first == old
    step(file, "turn", capsys)
    assert names(file) == [new, old]
    step(file, "drop", capsys)
    assert names(file) == [new]
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_step_keeps_the_mode_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.chmod(0o400)
    assert step(file, "add", capsys)[0] == Exit.HOLDS
    assert file.stat().st_mode & 0o777 == 0o400


def test_a_step_through_a_link_changes_the_file_itself(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Members may read it by its own name."""
    link = tmp_path / "elsewhere" / "cluster.key"
    link.parent.mkdir()
    link.symlink_to(file)
    assert step(link, "add", capsys)[0] == Exit.HOLDS
    assert link.is_symlink()
    assert len(names(file)) == 2


def given_to_a_group(file: Path) -> None:
    """A member's group may read it, and root changes it: as a Secret is mounted."""
    os.chown(file, 0, MEMBER)
    file.chmod(0o640)


@pytest.mark.root
@pytest.mark.parametrize("steps", [["add"], ["add", "turn"], ["add", "turn", "drop"]])
def test_a_step_that_root_does_leaves_the_file_to_its_group(
    file: Path, steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given_to_a_group(file)
    for what in steps:
        assert step(file, what, capsys)[0] == Exit.HOLDS
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, MEMBER, 0o640)


@pytest.mark.root
def test_a_step_that_would_take_the_file_from_its_group_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_to_a_group(file)
    before = file.read_text()

    def refuse(_descriptor: int, _user: int, _group: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    code, told = step(file, "add", capsys)
    assert code == Exit.USAGE
    assert told.count("\n") == 1
    assert f"{file}: it belongs to user 0 and group {MEMBER}, and you may not give" in told
    assert {one: one.read_text() for one in file.parent.iterdir()} == {file: before}


def test_a_step_out_of_order_says_which_one_is_due(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "add one first" in step(file, "turn", capsys)[1]
    assert "never dropped" in step(file, "drop", capsys)[1]
    step(file, "add", capsys)
    code, told = step(file, "add", capsys)
    assert code == Exit.USAGE
    assert "drop the old one first" in told


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_of_others_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {file}"):
        read_keys(str(file))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a key is a line of 64"),
        ("short", "a key is a line of 64"),
        ("0" * 63, "a key is a line of 64"),
        ("G" * 64, "a key is a line of 64"),
        ("é" * 64, "not plain text"),
        ("\n".join(f"{number:064x}" for number in range(3)), "drop the oldest"),
        ("\n".join(["0" * 64] * 2), "stands twice"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=why) as refused:
        read_keys(str(path))
    assert not text or text[:16] not in str(refused.value)


@pytest.mark.parametrize("step_", ["new", "add"])
def test_what_cannot_be_written_whole_leaves_nothing(
    tmp_path: Path,
    step_: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a full disk, for instance: neither an empty key file nor half of another."""
    path = tmp_path / "key"
    if step_ == "add":
        write_new_key(path)
    before = {one: one.read_text() for one in tmp_path.iterdir()}

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, told = step(path, step_, capsys)
    assert code == Exit.UNKNOWN
    assert told.count("\n") == 1
    assert "no space left on device; make room on that disk" in told
    assert {one: one.read_text() for one in tmp_path.iterdir()} == before


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file.*stormcast key new"):
        read_keys(str(tmp_path / "none"))


def test_the_id_of_a_key_stays_the_same() -> None:
    """It travels, so two versions must agree on it."""
    assert ClusterKey(bytes(range(32))).name == "806c6810"


def spoil(file: Path) -> None:
    file.write_text("half a k")


def test_members_follow_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that cannot be read they say so once, and go on with what they have."""
    monkeypatch.setattr("stormcast.node.keys.key_file.LOOK_SECONDS", 0.01)
    said: list[str] = []
    watched = KeyFile(str(file), said.append)
    watched.read()

    async def story() -> list[list[str]]:
        seals = watched.start(7, 1, asyncio.get_running_loop())
        seen = [seals.names]
        write_keys(file, (new_key(), *read_keys(str(file))))
        await asyncio.sleep(0.1)
        seen.append(seals.names)
        spoil(file)
        await asyncio.sleep(0.1)
        seen.append(seals.names)
        watched.close()
        return seen

    before, after, at_last = asyncio.run(story())
    assert after[1:] == before
    assert at_last == after
    assert len(said) == 2
    assert said[0] == f"seals with key {after[0]}, and opens what key {after[1]} sealed"
    assert "the keys stay as they were" in said[1]


def close_to_others(file: Path) -> None:
    file.chmod(0o600)


def allow_others(file: Path, _more: pytest.MonkeyPatch) -> None:
    """As `cp` leaves it; the mend is the one that the member names."""
    file.chmod(0o644)


def exhaust(_file: Path, more: pytest.MonkeyPatch) -> None:
    """The process has no descriptor left, for a while."""

    def fail(_path: str) -> tuple[ClusterKey, ...]:
        raise ConfigError("key_file: Too many open files")

    more.setattr("stormcast.node.keys.key_file.read_keys", fail)


@pytest.mark.parametrize("hinder", [allow_others, exhaust])
def test_keys_that_could_not_be_read_once_are_read_when_they_can(
    file: Path, monkeypatch: pytest.MonkeyPatch, hinder: Callable[[Path, Any], None]
) -> None:
    """What hindered is said once, however often it is tried, and its end changes nothing in the
    bytes of the file."""
    monkeypatch.setattr("stormcast.node.keys.key_file.LOOK_SECONDS", 0.01)
    said: list[str] = []
    watched = KeyFile(str(file), said.append)
    watched.read()
    (old,) = names(file)

    async def story() -> tuple[str, ...]:
        seals = watched.start(7, 1, asyncio.get_running_loop())
        with pytest.MonkeyPatch.context() as more:
            write_keys(file, (new_key(), *read_keys(str(file))))
            hinder(file, more)
            await asyncio.sleep(0.1)
            assert list(seals.names) == [old]
        close_to_others(file)
        await asyncio.sleep(0.1)
        watched.close()
        return tuple(seals.names)

    found = asyncio.run(story())
    assert list(found) == names(file)
    refused, changed = said
    assert "the keys stay as they were" in refused
    assert changed == watched.describe()
