"""Where Java's archive of Spark's classes is kept, and for whom."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stormcast.pipeline import class_archive
from stormcast.pipeline.class_archive import FOLDER, ClassArchive

JAVA = 'openjdk version "17.0.15"'


class Session:
    """Stands for one whose Java writes its archive, or cannot."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


def dump(session: Any, path: Path) -> None:
    path.write_bytes(b"half of it")
    if session.error is not None:
        raise session.error
    path.write_bytes(b"classes")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive, "_dump", dump)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / FOLDER


def test_the_first_command_makes_it_and_the_next_one_uses_it(cache: Path) -> None:
    first = ClassArchive(JAVA)
    assert "SharedArchiveFile" not in first.options

    first.keep(Session())  # type: ignore[arg-type]

    (made,) = cache.iterdir()
    assert made.read_bytes() == b"classes"
    assert f"-XX:SharedArchiveFile={made}" in ClassArchive(JAVA).options
    assert cache.stat().st_mode & 0o777 == 0o700


def test_what_is_there_is_not_made_again(cache: Path) -> None:
    ClassArchive(JAVA).keep(Session())  # type: ignore[arg-type]
    (made,) = cache.iterdir()
    made.write_bytes(b"as it is")

    ClassArchive(JAVA).keep(Session())  # type: ignore[arg-type]

    assert made.read_bytes() == b"as it is"


def test_those_of_three_javas_are_kept(cache: Path) -> None:
    for java in ("first", "second", "third", "fourth"):
        archive = ClassArchive(java)
        archive.keep(Session())  # type: ignore[arg-type]
        for made in cache.iterdir():
            if f"SharedArchiveFile={made}" not in archive.options:
                os.utime(made, ns=(0, made.stat().st_mtime_ns - 10**9))

    assert len(list(cache.iterdir())) == 3
    assert "SharedArchiveFile" not in ClassArchive("first").options
    assert "SharedArchiveFile" in ClassArchive("fourth").options


def test_one_that_cannot_be_written_whole_is_none(cache: Path) -> None:
    archive = ClassArchive(JAVA)

    archive.keep(Session(OSError("no space left on device")))  # type: ignore[arg-type]

    assert list(cache.iterdir()) == []
    assert "SharedArchiveFile" not in archive.options


def test_what_a_killed_command_left_of_one_is_removed(cache: Path) -> None:
    cache.mkdir(parents=True)
    of_the_dead, of_the_living = cache / "spark-a.4194305", cache / f"spark-b.{os.getppid()}"
    of_the_dead.touch()
    of_the_living.touch()

    ClassArchive(JAVA).keep(Session())  # type: ignore[arg-type]

    assert not of_the_dead.exists()
    assert of_the_living.exists()


def test_where_nobody_may_write_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    ClassArchive(JAVA).keep(Session())  # type: ignore[arg-type]

    assert not cache.exists()


@pytest.mark.parametrize("folder", ["not/absolute", "/with a space"])
def test_a_cache_that_is_no_word_for_java_is_not_used(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", folder)

    archive = ClassArchive(JAVA)

    assert archive.options == ""
    archive.keep(Session(AssertionError("it is not asked")))  # type: ignore[arg-type]
