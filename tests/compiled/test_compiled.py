"""A wheel whose protocols are compiled does what the sources do: `make test-compiled`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from setup import ROOMS, compiled_modules

REPOSITORY = Path(__file__).parents[2]
COMPILED = os.environ.get("STORMCAST_COMPILED", "")
"""The programs of an environment that has such a wheel."""
SEEDS = 120

needs_wheel = pytest.mark.skipif(
    not COMPILED, reason="needs an environment with a compiled wheel: make test-compiled"
)


def run(programs: Path, *words: object, code: int = 0, folder: Path) -> str:
    """Run a program where no source of this repository is found before the wheel."""
    call = [str(programs / "python"), "-I", *map(str, words)]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_what_is_compiled_is_what_runs_for_each_frame() -> None:
    modules = set(compiled_modules(REPOSITORY))
    assert {
        "stormcast/node/core/window.py",
        "stormcast/node/protocols/unicast/incoming.py",
        "stormcast/node/protocols/multicast/incoming.py",
        "stormcast/node/protocols/gms/coordinator.py",
        "stormcast/node/stack/stack.py",
        "stormcast/node/trace/tracer.py",
    } <= modules
    there = sum(len(list((REPOSITORY / room).rglob("*.py"))) for room in ROOMS)
    assert len(modules) > 0.6 * there  # of files, `__init__.py` among them


@needs_wheel
def test_its_modules_are_compiled(tmp_path: Path) -> None:
    ask = "import stormcast.node.core.window as it; print(it.__file__)"
    assert run(Path(COMPILED).resolve(), "-c", ask, folder=tmp_path).strip().endswith(".so")


@needs_wheel
def test_seeds_have_the_same_results(tmp_path: Path) -> None:
    both = []
    for name, programs in (("sources", Path(sys.executable).parent), ("wheel", Path(COMPILED))):
        rows = tmp_path / name
        words = ("-m", "stormcast", "search", "--seeds", SEEDS, "--from", 31_000, "--out", rows)
        run(programs.absolute(), *words, folder=tmp_path)
        both.append(rows_in(rows))
    sources, wheel = both
    assert len(sources) == SEEDS
    assert wheel == sources


def rows_in(folder: Path) -> list[dict[str, Any]]:
    rows = [
        {name: value for name, value in json.loads(line).items() if name != "seconds"}
        for file in (folder / "rows").iterdir()
        for line in file.read_text().splitlines()
    ]
    return sorted(rows, key=lambda row: row["seed"])


@needs_wheel
@pytest.mark.parametrize("scenario", ["order-under-loss", "group-under-bursty-loss"])
def test_a_run_is_replayed_to_the_byte(scenario: str, tmp_path: Path) -> None:
    words = ("-m", "stormcast", "run", scenario, "--backend", "sim", "--out", tmp_path / "run")
    run(Path(sys.executable).parent, *words, folder=tmp_path)

    said = run(
        Path(COMPILED).absolute(), "-m", "stormcast", "replay", tmp_path / "run", folder=tmp_path
    )

    assert "identical" in said


@needs_wheel
@pytest.mark.root
def test_members_on_real_packets_keep_their_promises(tmp_path: Path) -> None:
    words = ("-m", "stormcast", "run", "order-under-loss", "--backend", "netns")
    run(Path(COMPILED).absolute(), *words, "--out", tmp_path / "run", folder=tmp_path)
