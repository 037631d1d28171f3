"""A keeper's endpoints, and folders as a tar; the rest is shown with real processes."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from stormcast.node.control.answers import RefusedError
from stormcast.node.control.settings import ControlSettings
from stormcast.node.keeper.endpoints import endpoints
from stormcast.node.keeper.keeper import Keeper, KeeperSettings
from stormcast.node.keeper.tar_stream import CHUNK, tar_of
from stormcast.node.trace.journal import segment_name

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


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {one.name: tar.extractfile(one) for one in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


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
