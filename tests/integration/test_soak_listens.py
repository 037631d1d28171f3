"""A soak that listens stays, when its time is over, to tell what came of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stormcast.cli import Exit
from tests.helpers.soaks import GENTLE

pytestmark = pytest.mark.slow


def test_it_stays_until_a_signal(tmp_path: Path) -> None:
    Path(tmp_path, "gentle.yaml").write_text(GENTLE)
    with subprocess.Popen(
        (sys.executable, "-m", "stormcast", "soak", "--storm", "gentle.yaml", "--go-on", "kept",
         "--for", "5s", "--listen", "127.0.0.1:0", "--tls", "none"),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as soak:  # fmt: skip
        try:
            assert soak.stderr is not None
            where = next(line for line in soak.stderr if "listens on" in line).split()[-1]
            while "told until SIGTERM" not in soak.stderr.readline():
                assert soak.poll() is None
            with urllib.request.urlopen(f"{where}/metrics") as answer:  # noqa: S310 its own server
                text = answer.read().decode()
            assert 'stormcast_soak_windows{verdict="violated"} 0.0' in text
            assert 'stormcast_soak_windows{verdict="holds"} 1.0' in text
            assert "stormcast_soak_over 1.0" in text
            with urllib.request.urlopen(f"{where}/readyz") as answer:  # noqa: S310 as above
                assert json.loads(answer.read()) == {"ready": True}
            soak.send_signal(signal.SIGTERM)
            assert soak.wait(60) == Exit.HOLDS
        finally:
            soak.kill()
