"""The command, run in process: what it answers, and what it leaves in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stormcast.cli import main


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)


class Shell:
    """Runs the command in process, in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: object) -> Said:
        self._capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as done:  # As argparse leaves.
            code = int(done.code or 0)
        out, err = self._capsys.readouterr()
        return Said(code, out, err)

    def said(self) -> tuple[str, str]:
        """What was printed since the last command."""
        out, err = self._capsys.readouterr()
        return out, err

    def write(self, text: str, name: str = "scenario.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, text: str, *words: object) -> Said:
        return self("run", self.write(text), *words)
