"""A soak of real processes in network namespaces: short windows, and journals that do not grow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stormcast.cli import Exit
from tests.helpers.shell import Shell

pytestmark = [pytest.mark.root, pytest.mark.slow]

STORM = """\
name: short
cluster: {members: 3, stack: udp, timing: fast}
kinds: [loss, delay, pause, crash]
every: 1s..3s
lasting: 200ms..2s
window: 8s
loads: 2
rate: 100/s..200/s
sizes: [1KB..8KB]
"""


@pytest.mark.long
def test_members_live_on_and_their_journals_do_not_grow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path, capsys)
    storm = shell.write(STORM, "storm.yaml")

    done = shell(
        "soak", "--backend", "netns", "--storm", storm, "--for", "24s", "--seed", 2, "--out", "kept"
    )

    assert done.code == Exit.HOLDS, done.err
    windows = [json.loads(line) for line in Path("kept/windows.jsonl").read_text().splitlines()]
    assert len(windows) >= 2
    assert all(window["verdict"] == "holds" for window in windows)
    written = sum(window["trace_bytes"] for window in windows)
    kept = sum(path.stat().st_size for path in Path("kept/logs").rglob("*.trace"))
    # Of each member its first block and the last segment, of 4 MiB at most, stay.
    assert kept < max(written / 2, 3 * (5 << 20))
