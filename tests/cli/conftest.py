"""What all tests of the command start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.sim.backend import SimBackend
from tests.helpers.shell import Shell
from tests.helpers.soaks import GENTLE


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """The command, in a folder of its own, on a machine on which nothing is left of killed runs:
    other tests kill some at the same time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stormcast.chaos.commands.output.leftovers_of", lambda _backend: [])
    return Shell(tmp_path, capsys)


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Called with n: has Ctrl-C come once, within the n-th simulated run from then on."""
    wait = SimBackend.wait
    seen: list[SimBackend] = []

    def in_run(number: int) -> None:
        def interrupted(backend: SimBackend, *words: Any, **more: Any) -> bool:
            if not any(backend is one for one in seen):
                seen.append(backend)
                if len(seen) == number:
                    raise KeyboardInterrupt
            return wait(backend, *words, **more)

        monkeypatch.setattr(SimBackend, "wait", interrupted)

    return in_run


@pytest.fixture(name="storm")
def _storm(tmp_path: Path) -> str:
    """The path of a gentle storm."""
    path = tmp_path / "gentle.yaml"
    path.write_text(GENTLE)
    return str(path)
