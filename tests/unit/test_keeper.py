"""A keeper's endpoints, and folders as a tar; the rest is shown with real processes."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from stormcast.node.control.answers import Answer, RefusedError
from stormcast.node.control.settings import ControlSettings
from stormcast.node.keeper.endpoints import endpoints
from stormcast.node.keeper.folders import INCARNATIONS
from stormcast.node.keeper.incarnation import Incarnation
from stormcast.node.keeper.keeper import Keeper, KeeperSettings
from stormcast.node.keeper.tar_stream import CHUNK, tar_of
from stormcast.node.trace.segments import segment_name

DOCS = Path(__file__).parents[2] / "docs"


def keeper(folder: Path) -> Keeper:
    settings = KeeperSettings(control=ControlSettings(path="x.sock"), folder=folder)

    async def make() -> Keeper:
        return Keeper(settings, {}, lambda _line: None)

    return asyncio.run(make())


def test_the_docs_list_every_endpoint_of_a_keeper(tmp_path: Path) -> None:
    text = (DOCS / "node.md").read_text()
    table = text.partition("<!-- keeper -->")[2].partition("<!-- /keeper -->")[0]
    told = set(re.findall(r"`(GET|POST|DELETE) (/[a-z/-]+)`", table))
    there = endpoints(keeper(tmp_path))
    assert told == {(method, path) for path, methods in there.items() for method in methods}


@pytest.mark.parametrize("run", ["", "r" * 201, "a\nkeeper: all is well", "\x1b[2J", 7])
def test_a_run_that_is_no_word_does_not_get_into_the_log(tmp_path: Path, run: object) -> None:
    claim = endpoints(keeper(tmp_path))["/claim"]["POST"]
    with pytest.raises(RefusedError, match="write a word for the run") as refused:
        claim(json.dumps({"run": run}).encode())
    assert refused.value.status == 400
    assert str(refused.value).isprintable()


def test_journals_of_ended_incarnations_are_forgotten_and_no_others(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    for number in (1, 2, 3):
        (tmp_path / INCARNATIONS / f"{number:06}").mkdir(parents=True)
    forget = endpoints(kept)["/journals/forget"]["POST"]
    answer = forget(json.dumps({"incarnations": [1, 3, 9]}).encode())
    assert isinstance(answer, Answer)
    assert json.loads(answer.body) == {"deleted": 2}
    assert [path.name for path in (tmp_path / INCARNATIONS).iterdir()] == ["000002"]
    for numbers in ([0], ["../x"], [True], 1, None):
        with pytest.raises(RefusedError, match="numbers of incarnations"):
            forget(json.dumps({"incarnations": numbers}).encode())


def test_where_no_member_runs_there_is_nothing_to_weigh(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        endpoints(keeper(tmp_path))["/weight"]["GET"](b"")
    assert refused.value.status == 409


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {one.name: tar.extractfile(one) for one in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


class Ending(Keeper):
    """Its member takes a while to end. It starts nothing but notes, or its disk is full."""

    def __init__(self, folder: Path, *, is_full: bool = False) -> None:
        self.said: list[str] = []
        settings = KeeperSettings(
            control=ControlSettings(path="x.sock"), folder=folder, starts=True
        )
        super().__init__(settings, {}, self.said.append)
        self.may_end = asyncio.Event()
        self.starts = 0
        self._is_full = is_full

    @property
    def is_alive(self) -> bool:
        return not self.may_end.is_set()

    async def kill(self) -> None:
        await self.may_end.wait()

    def start(self, config: Mapping[str, Any] | None = None) -> Incarnation:
        assert config is None
        if self._is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.starts += 1
        return cast(Incarnation, None)


@pytest.mark.parametrize("is_claimed", [True, False])
def test_what_another_run_claims_while_a_member_ends_is_left_to_that_run(
    tmp_path: Path, *, is_claimed: bool
) -> None:
    async def story() -> int:
        kept = Ending(tmp_path)
        kept.claim.take("a", 30.0)
        giving = asyncio.ensure_future(kept.give_back("a"))
        await asyncio.sleep(0)
        if is_claimed:
            assert kept.claim.take("b", 30.0), "nobody has it"
        kept.may_end.set()
        await giving
        return kept.starts

    assert asyncio.run(story()) == (0 if is_claimed else 1)


def test_it_is_said_when_the_default_member_cannot_start_after_a_lost_run(tmp_path: Path) -> None:
    async def story() -> list[str]:
        kept = Ending(tmp_path, is_full=True)
        kept.may_end.set()
        kept.claim.take("a", 0.01)
        await asyncio.sleep(0.1)
        return kept.said

    assert "No space left" in asyncio.run(story())[-1]


def test_a_folder_comes_out_of_its_tar_as_it_was(tmp_path: Path) -> None:
    files = {
        "a": b"",
        "b/c": b"x" * 511,
        "b/d": b"y" * 512,
        f"b/{'e' * 150}/{'f' * 150}": b"z" * (CHUNK * 2 + 1),
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert unpacked(b"".join(tar_of(tmp_path))) == files


def test_a_file_that_grows_while_it_is_sent_is_as_long_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (3 * CHUNK))
    parts = tar_of(tmp_path)
    sent = [next(parts), next(parts)]
    with (tmp_path / "a").open("ab") as file:
        file.write(b"y" * CHUNK)
    assert unpacked(b"".join([*sent, *parts])) == {"a": b"x" * (3 * CHUNK)}


def test_a_file_that_shrinks_while_it_is_sent_breaks_the_answer_off(tmp_path: Path) -> None:
    """Rather than to send zeros for what is not there."""
    (tmp_path / "a").write_bytes(b"x" * (3 * CHUNK))
    parts = tar_of(tmp_path)
    next(parts)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError, match="shorter"):
        list(parts)


@pytest.mark.parametrize(
    "gone",
    [f"journal/{segment_name(1)}", f"journal/{segment_name(2)}", "member.log", "journal"],
)
def test_a_file_that_is_deleted_while_others_are_sent_breaks_the_answer_off(
    gone: str, tmp_path: Path
) -> None:
    """Another run has the keeper, and deletes: the tar would be taken for a whole one."""
    journal(tmp_path, 3)
    parts = tar_of(tmp_path)
    next(parts)
    if gone == "journal":
        shutil.rmtree(tmp_path / gone)
    else:
        (tmp_path / gone).unlink()
    with pytest.raises(FileNotFoundError):
        list(parts)


def test_of_a_full_journal_the_oldest_segments_may_go_while_others_are_sent(tmp_path: Path) -> None:
    journal(tmp_path, 3)
    parts = tar_of(tmp_path)
    sent = [next(parts)]
    for number in range(2):
        (tmp_path / "journal" / segment_name(number)).unlink()
    names = set(unpacked(b"".join([*sent, *parts])))
    assert names == {"config.json", f"journal/{segment_name(2)}", "member.log"}


def journal(folder: Path, segments: int) -> None:
    (folder / "journal").mkdir()
    for number in range(segments):
        (folder / "journal" / segment_name(number)).write_bytes(b"x")
    (folder / "config.json").write_bytes(b"{}")
    (folder / "member.log").write_bytes(b"n0: left")


def test_no_folder_is_an_empty_tar(tmp_path: Path) -> None:
    assert unpacked(b"".join(tar_of(tmp_path / "none"))) == {}
