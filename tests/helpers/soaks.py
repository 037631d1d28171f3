"""Soaks for tests: a gentle storm, the windows that it has left, and directories of soaks that were
never played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.soak.directory import SoakDirectory
from stormcast.chaos.soak.storm_file import parse_storm

GENTLE: Final = """\
name: gentle
cluster: {members: 3, stack: udp, timing: fast}
kinds: [delay, loss]
window: 10s
loads: 1
rate: 5/s..10/s
sizes: [16B..100B]
"""
STORM: Final = "cluster: {{members: 3, stack: {stack}}}\nkinds: [loss]\n"


def windows(directory: str | Path) -> list[int]:
    """The numbers of the windows that were judged, as they stand in the soak's directory."""
    lines = Path(directory, "windows.jsonl").read_text().splitlines()
    return [json.loads(line)["window"] for line in lines]


def a_soak(folder: Path, stack: str, windows: list[dict[str, Any]], seed: int = 3) -> Path:
    """A directory of a soak with these windows."""
    SoakDirectory(folder).begin(parse_storm(STORM.format(stack=stack)), seed, "sim")
    (folder / "windows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in windows))
    return folder


def a_window(number: int, acks: int, verdict: str = "holds") -> dict[str, Any]:
    """The line of a window in which 1,000 messages were sent; most costs are its number."""
    costs = dict.fromkeys(
        ("frames", "requests", "resent", "syncs", "unacked", "unacked_bytes"), number
    )
    return {
        "window": number,
        "verdict": verdict,
        "seconds": 60.0,
        "sent": 1000,
        "faults": {},
        "weights": {"n0-1": {"memory": 8 << 20}, "judge": {"memory": 99 << 20}},
        "costs": {**costs, "acks": acks, "resync": None},
    }


def disputed(soak: Path, first: int, last: int) -> None:
    """Have Spark find a violation in the chapter of some windows, of which the oracles say that
    they hold, and not judge the next one."""
    told = {"verdict": "violated", "own": "holds", "judged": True, "agrees": False}
    gone = {"verdict": "unknown", "own": "holds", "judged": False, "agrees": False}
    lines = [
        {**told, "first": first, "chapter": last},
        {**gone, "first": last + 1, "chapter": last + 1},
    ]
    (soak / "follow").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (soak / "follow/verdicts.jsonl").write_text(text + '{"chapter": 9, "ver')
