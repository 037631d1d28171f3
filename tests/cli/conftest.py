"""What all tests of the command start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.shell import Shell


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """The command, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)
