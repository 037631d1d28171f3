"""Ctrl-C, SIGTERM and SIGKILL end commands that run many things at once, with all processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import pytest

from stormcast.chaos.campaigns.pool import ProcessPool
from tests.helpers.sessions import session_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
SECONDS = 30.0
"""For what takes a fraction of one on a machine that has nothing else to do."""
SEARCH = ("search", "--seeds", "100000", "--workers", "2", "--out", "kept")
CHAOS_TEST = ("chaos-test", "--backend", "sim", "--workers", "2", "--out", "kept")


@contextmanager
def running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, so that what it leaves is found."""
    with subprocess.Popen(
        [sys.executable, "-m", "stormcast", *words],
        cwd=folder,
        env=HERE,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [SEARCH, CHAOS_TEST], ids=["search", "chaos-test"])
def test_a_command_ends_with_what_it_has_and_leaves_no_process(
    tmp_path: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    """The signal goes to the command alone, as that of `kill` does."""
    with running(tmp_path, *words) as process:
        wait_for(lambda: len(session_of(process.pid)) == 3)
        wait_for(lambda: any((tmp_path / "kept").glob("rows/*" if "search" in words else "*/seed")))
        process.send_signal(number)
        said, talk = process.communicate(timeout=SECONDS)
        assert process.returncode == 130, talk
        assert session_of(process.pid) == []
    assert "interrupted after " in talk
    assert "Traceback" not in talk
    if "search" in words:
        assert "to go on: stormcast search --seeds 100000 --from 0 --out kept" in talk
        assert " seeds from 0, 0 violated, " in said
    else:
        assert said.startswith("scenario ") or said.strip() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_soak_ends_with_the_windows_that_it_has(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "soak", "--for", "8h", "--out", "kept") as process:
        windows = tmp_path / "kept" / "windows.jsonl"
        wait_for(lambda: windows.is_file() and windows.read_bytes().count(b"\n") >= 1)
        process.send_signal(number)
        said, talk = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, talk
    assert "interrupted: what was judged is kept" in talk
    assert said.startswith("soak: holds ")
    assert '"is_over": true' in (tmp_path / "kept" / "status.json").read_text()
    assert (tmp_path / "kept" / "report.html").is_file()


def test_ctrl_c_at_a_terminal_reaches_all_processes_and_only_the_first_acts(tmp_path: Path) -> None:
    with running(tmp_path, *SEARCH) as process:
        wait_for(lambda: any((tmp_path / "kept").glob("rows/*")))
        os.killpg(process.pid, signal.SIGINT)
        _said, talk = process.communicate(timeout=SECONDS)
        assert process.returncode == 130
        assert session_of(process.pid) == []
    assert "Traceback" not in talk


def test_processes_end_when_who_started_them_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, *SEARCH) as process:
        wait_for(lambda: len(session_of(process.pid)) == 3)
        process.kill()
        process.wait()
        wait_for(lambda: session_of(process.pid) == [])


def test_what_was_killed_goes_on_without_what_it_has(tmp_path: Path) -> None:
    """Killed in the middle of a part: the rows stay, and the second run counts each seed once."""
    words = ("search", "--seeds", "10", "--workers", "2", "--out", "kept", "--json")
    with running(tmp_path, *words) as process:
        wait_for(lambda: any(file.stat().st_size for file in tmp_path.glob("kept/rows/*")))
        process.kill()
        process.wait()
        wait_for(lambda: session_of(process.pid) == [])
    rows = b"".join(file.read_bytes() for file in tmp_path.glob("kept/rows/*")).count(b"\n")
    assert rows >= 1
    with running(tmp_path, *words) as process:
        said, _talk = process.communicate(timeout=4 * SECONDS)
    assert '"seeds": 10, "violations": 0, "unknown": 0' in said
    assert f'"resumed": {rows}' in said


def test_a_process_of_the_search_that_dies_costs_no_seed(tmp_path: Path) -> None:
    """Not the one that was asked to search: the others run again what has no row."""
    words = ("search", "--seeds", "30", "--workers", "2", "--out", "kept", "--json")
    with running(tmp_path, *words) as process:
        wait_for(lambda: any(file.stat().st_size for file in tmp_path.glob("kept/rows/*")))
        os.kill(
            max(one.pid for one in session_of(process.pid) if one.pid != process.pid),
            signal.SIGKILL,
        )
        said, talk = process.communicate(timeout=4 * SECONDS)
        assert process.returncode == 0, talk
    assert '"seeds": 30, "violations": 0, "unknown": 0' in said


# -- The pool --------------------------------------------------------------------------------------


def test_a_pool_that_is_done_has_done_all() -> None:
    with ProcessPool(2) as pool:
        futures = [pool.submit(divmod, number, 3) for number in range(10)]
    assert [future.result() for future in futures] == [divmod(number, 3) for number in range(10)]


def test_a_pool_that_is_left_does_not_wait_for_what_was_submitted() -> None:
    began = time.monotonic()
    with pytest.raises(LookupError), ProcessPool(2) as pool:  # noqa: PT012 it is left in the middle
        futures = [pool.submit(time.sleep, 600.0) for _ in range(5)]
        wait_for(futures[0].running)
        raise LookupError
    assert time.monotonic() - began < SECONDS
    assert all(future.cancelled() or future.exception() for future in futures)


def test_who_ignores_that_it_shall_end_is_killed() -> None:
    with pytest.raises(LookupError), ProcessPool(1, _deaf) as pool:  # noqa: PT012 as above
        wait_for(pool.submit(time.sleep, 0.0).done)
        future = pool.submit(time.sleep, 600.0)
        wait_for(future.running)
        raise LookupError
    assert isinstance(future.exception(), BrokenProcessPool)


def _deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
