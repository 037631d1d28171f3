"""Where Spark and PySpark put what is temporary: in a folder that `clean` knows by its name."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from stormcast.pipeline import session

pyspark = pytest.importorskip("pyspark.sql")


class _Builder:
    """Of sessions that are none; as PySpark does, it makes a folder for Java's first words."""

    def __init__(self, made: list[Path]) -> None:
        self._made = made

    def __getattr__(self, _name: str) -> object:
        return lambda *_words: self

    def getOrCreate(self) -> _Builder:  # noqa: N802 as PySpark calls it
        self._made.append(Path(tempfile.mkdtemp()))
        return self


class _Sessions:
    def __init__(self, made: list[Path]) -> None:
        self.builder = _Builder(made)


def test_all_that_is_temporary_is_in_a_folder_of_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pyspark, "SparkSession", _Sessions(made))
    monkeypatch.setattr(session, "check_java", lambda _who: None)
    with session.spark_session("local[1]", rows=1):
        (scratch,) = tmp_path.iterdir()
        assert scratch.name.startswith(session.own_prefix())
        assert [path.parent for path in made] == [scratch]
        assert tempfile.gettempdir() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
