"""A soak for tests: a gentle storm, and the windows that it has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

GENTLE: Final = """\
name: gentle
cluster: {members: 3, stack: udp, timing: fast}
kinds: [delay, loss]
window: 10s
loads: 1
rate: 5/s..10/s
sizes: [16B..100B]
"""


def windows(directory: str | Path) -> list[int]:
    """The numbers of the windows that were judged, as they stand in the soak's directory."""
    lines = Path(directory, "windows.jsonl").read_text().splitlines()
    return [json.loads(line)["window"] for line in lines]
