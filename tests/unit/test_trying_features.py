"""Trying what a machine can do leaves nothing behind, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns.process import environment

pytestmark = pytest.mark.slow

# A machine that has everything; its network waits until the test ends it.
SCRIPT = """
import os, signal, sys, time
from stormcast.chaos.backends.netns import backend

class Network(backend.Network):
    def make(self):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        time.sleep(30)
        sys.exit("it went on")

    def remove(self):
        print("removed", flush=True)

backend.what_is_missing = lambda: None
backend.Network = Network
try:
    backend.features_here()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_trial_that_is_told_to_end_undoes_what_it_made(number: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, number],
        env=environment({"TMPDIR": str(tmp_path)}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip  # one command
    assert (done.returncode, done.stdout) == (130, "removed\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
