"""The examples of docs/api.md, as they stand there: programs that do what the page says."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stormcast

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
EXAMPLES = re.findall(r"^```python example\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
FILES = PAGE.parents[1] / "examples"
PORTS = count(20_000)


def program(number: int, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An example as a module; its group is its own, so that examples may run side by side."""
    load = stormcast.load_settings

    def apart(stack: str, timing: str, protocols: dict[str, dict[str, object]]) -> Any:
        return load(
            stack, timing, protocols={"UDP": {**protocols["UDP"], "mcast_port": next(PORTS)}}
        )

    monkeypatch.setattr(stormcast, "load_settings", apart)
    module = ModuleType("example")
    exec(compile(EXAMPLES[number], f"{PAGE}:{number}", "exec"), module.__dict__)  # noqa: S102 our own page
    return module


def run(number: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    main = program(number, monkeypatch).main
    return asyncio.run(asyncio.wait_for(main(), 30))


def test_there_are_three_and_two_of_them_are_files() -> None:
    assert len(EXAMPLES) == 3
    for text, name in zip(EXAMPLES, ("chat.py", "replicated_set.py"), strict=False):
        about, _, program = (FILES / name).read_text().partition("\n\n")
        assert about.startswith('"""')
        assert program == text


def test_the_chat_shows_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = re.search(r"sender's own:\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert printed is not None
    wanted = printed[1].splitlines()
    shown = run(0, monkeypatch)
    assert sorted(shown) == sorted(wanted)
    # What each of them sees has its order.
    for name in ("ann is", "bob is"):
        assert [line for line in shown if name in line] == [line for line in wanted if name in line]


def test_the_sets_converge_and_a_newcomer_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(1, monkeypatch) == [{"pear", "plum", "cherry"}] * 3


def test_the_server_answers_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(2, monkeypatch) == [number**2 for number in range(1000)]


def test_an_example_runs_as_a_program(tmp_path: Path) -> None:
    """The last one, for it needs no group that other members of this host might be in."""
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=PAGE.parents[1],
        env={"PYTHONPATH": str(PAGE.parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("998001\n", "")
