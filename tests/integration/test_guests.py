"""Guests on real networks: Redis from Debian's package, and small programs of the test's own.

Nothing here depends on how fast the machine is: scenarios wait for what they need, and a failover
that did not come about is no result.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.netns.network import namespaces
from tests.helpers.leaving_nothing import nothing_is_left

pytestmark = [pytest.mark.root, pytest.mark.slow]
_nothing_is_left = pytest.fixture(scope="module", autouse=True)(nothing_is_left)

ROOT = Path(__file__).parents[2]
REDIS = ROOT / "examples" / "redis"
needs_redis = pytest.mark.skipif(
    not (shutil.which("redis-server") and shutil.which("redis-cli")),
    reason="there is no redis-server or redis-cli: apt-get install redis-server redis-tools",
)
ATTEMPTS = 3
"""A sentinel that is not let run for two seconds does nothing for the next thirty."""
SERVER = "{python} -m http.server --bind {address} 8000"
CLIENT = """\
import json, os, signal, sys, time
zero, over, number = float(os.environ["STORMCAST_ZERO"]), [], 0
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
def note(kind, f, **more):
    line = {"process": 0, "type": kind, "f": f, **more, "time": time.monotonic() - zero}
    print(json.dumps(line), flush=True)
while not over:
    note("invoke", "add", value=number); time.sleep(0.01); note("ok", "add"); number += 1
note("invoke", "read"); note("ok", "read", value=list(range(number)))
"""


def run(file: Path, out: Path, *more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        (sys.executable, "-m", "stormcast", "run", str(file), "--out", str(out), *more),
        capture_output=True, text=True, timeout=240, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def written(
    folder: Path, timeline: str, more: str = "", server: str = SERVER, within: str = "60s"
) -> Path:
    (folder / "client.py").write_text(CLIENT)
    file = folder / "scenario.yaml"
    file.write_text(
        "name: mine\n"
        f'guests:\n  a: {{command: "{server}", ready: {{tcp: 8000, within: 60s}}}}\n'
        'client: {command: "{python} {folder}/client.py", model: set}\n'
        f"timeline:\n{timeline}"
        f"expect: {{ready_within: {within}}}\nlimits: {{run: 100s}}\n{more}"
    )
    return file


def findings(out: Path) -> dict[str, str]:
    verdict: dict[str, Any] = json.loads((out / "verdict.json").read_text())
    return {f"{one['guarantee']} {one['verdict']}": one["detail"] for one in verdict["findings"]}


def failover(name: str, folder: Path) -> tuple[int, Path]:
    """Run a scenario until its failover came about."""
    for attempt in range(ATTEMPTS):
        out = folder / f"run-{attempt}"
        code, _said, wrong = run(REDIS / name, out)
        assert (out / "verdict.json").exists(), wrong
        if "+switch-master" in "".join(p.read_text() for p in out.glob("logs/sentinel/*.log")):
            return code, out
    pytest.skip("the sentinel made no failover here; the machine is too busy for it")


@needs_redis
def test_redis_loses_acknowledged_writes_in_a_failover(tmp_path: Path) -> None:
    code, out = failover("failover.yaml", tmp_path)
    assert code == 1
    verdict = json.loads((out / "verdict.json").read_text())
    [lost] = [one for one in verdict["findings"] if one["verdict"] == "violated"]
    assert lost["guarantee"] == "H2"
    assert "lost" in lost["detail"]
    # The witness is one acknowledged add, and the read that lacks it.
    [add, read] = lost["witness"]
    assert ": add " in add
    assert ", ok at line" in add
    assert ": read, ok [" in read
    assert verdict["faults"]["split"] > 0
    assert (out / "history.jsonl").stat().st_size > 0
    assert (out / "report.html").exists()


@needs_redis
def test_redis_keeps_what_a_replica_has_acknowledged(tmp_path: Path) -> None:
    code, out = failover("failover-with-wait.yaml", tmp_path)
    assert (code, set(findings(out))) == (0, {"H2 holds", "H5 holds"})


def test_a_guest_that_is_killed_paused_and_started_again_is_ready_again(tmp_path: Path) -> None:
    steps = (
        "  - {at: 1s, do: pause, member: a, for: 1s}\n  - {at: 3s, do: crash, member: a, for: 1s}\n"
    )
    code, said, wrong = run(written(tmp_path, steps), tmp_path / "run")
    assert code == 0, said + wrong
    assert json.loads((tmp_path / "run/verdict.json").read_text())["faults"] == {"f1": 1, "f2": 1}


def test_a_fault_that_meets_no_packet_proves_nothing(tmp_path: Path) -> None:
    steps = "  - {at: 1s, do: cut, from: client, to: a, for: 1s}\n"
    code, said, _ = run(written(tmp_path, steps), tmp_path / "run")
    assert code == 3
    assert "fault f1 had no effect" in said


def test_a_guest_that_dies_by_itself_is_a_doubt_with_its_code_and_last_words(
    tmp_path: Path,
) -> None:
    dies = (
        "{python} -m http.server --bind {address} 8000 & sleep 4; echo I am done; kill $!; exit 7"
    )
    steps = "  - {at: 6s, do: pause, member: a, for: 1s}\n"
    code, said, _ = run(written(tmp_path, steps, server=dies, within="3s"), tmp_path / "run")
    assert code == 3
    assert "a ended by itself with 7; its last line: I am done" in said


def test_a_client_that_fails_in_its_end_is_a_doubt(tmp_path: Path) -> None:
    file = written(tmp_path, "  - {at: 1s, do: pause, member: a, for: 1s}\n")
    (tmp_path / "client.py").write_text(f"{CLIENT}sys.exit('the disk is full')\n")
    code, said, _ = run(file, tmp_path / "run")
    assert code == 3
    assert "the client ended with 1 in place of 0: the disk is full" in said


@pytest.mark.parametrize("backend", ["sim", "docker", "nowhere"])
def test_guests_live_in_namespaces_only(tmp_path: Path, backend: str) -> None:
    file = written(tmp_path, "  - {at: 1s, do: pause, member: a, for: 1s}\n")
    code, said, wrong = run(file, tmp_path / "run", "--backend", backend)
    assert (code, said) == (3, "")
    assert f"and not on {backend}; drop --backend" in wrong
    assert not (tmp_path / "run").exists()


def test_a_guest_that_is_never_ready_leaves_nothing(tmp_path: Path) -> None:
    file = written(tmp_path, "  - {at: 1s, do: pause, member: a, for: 1s}\n", server="exit 5")
    code, said, wrong = run(file, tmp_path / "run")
    assert (code, said) == (3, "")
    assert "a ended by itself with 5; its last line: nothing" in wrong
    assert len(wrong.strip().splitlines()) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_rig_that_is_ended_leaves_nobody(tmp_path: Path, how: signal.Signals) -> None:
    steps = "  - {at: 1s, do: pause, member: a, for: 50s}\n"
    # The guest's shell has a child, which the kernel does not end with the rig.
    file = written(tmp_path, steps, server=f"{SERVER}; true")
    rig = subprocess.Popen(
        (sys.executable, "-m", "stormcast", "run", str(file), "--out", str(tmp_path / "run")),
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    history = tmp_path / "run" / "history.jsonl"
    until(lambda: history.exists() and history.stat().st_size > 20_000)
    rig.send_signal(how)
    rig.communicate(timeout=60)
    assert rig.returncode == (-how if how is signal.SIGKILL else 130)
    ours = f"sc{rig.pid}-"
    until(lambda: not any(space.startswith(ours) for space in namespaces()))
    assert not [pid for pid in living() if f"SC_RUN={ours}" in environ(pid)]
    if how is not signal.SIGKILL:
        assert "run unknown" in findings(tmp_path / "run")


def living() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def until(is_done: Any, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not is_done():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.05)


def replay(run_folder: Path, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        (sys.executable, "-m", "stormcast", "replay", str(run_folder)),
        capture_output=True, text=True, timeout=240, check=False, cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_run_is_done_again_from_its_directory_and_its_verdicts_are_compared(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, "  - {at: 500ms, do: pause, member: random, for: 1s}\n")
    code, out, errors = run(file, tmp_path / "first", "--seed", "7")
    assert code == 0, out + errors
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, out, errors = replay(tmp_path / "first", elsewhere)
    assert code == 0, out + errors
    assert out.rstrip().endswith("by real programs; the verdict is the same")
    assert (elsewhere / "runs" / "mine-7" / "report.html").exists()

    kept = tmp_path / "first" / "verdict.json"
    kept.write_text(kept.read_text().replace('"verdict": "holds"', '"verdict": "violated"', 1))
    code, out, _errors = replay(tmp_path / "first", elsewhere)
    assert (code, "the verdict is another: it was violated" in out) == (1, True)

    told = json.loads(kept.read_text()) | {"folder": str(tmp_path / "gone")}
    kept.write_text(json.dumps(told))
    code, _out, errors = replay(tmp_path / "first", elsewhere)
    assert (code, errors.count("\n")) == (2, 1)
    assert "the folder of its scenario" in errors
