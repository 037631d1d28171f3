"""Describes the machine and the commit of a measurement: a figure is true of these only."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def describe() -> dict[str, Any]:
    """Return commit, Python version, and machine."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "machine": {
            "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            # How busy the machine was with other work when the run began.
            "load": round(os.getloadavg()[0], 2),
        },
    }


def cpu_model(text: str) -> str:
    """Return the processor's name from the text of /proc/cpuinfo."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def commit() -> str | None:
    """Return the commit of this tree, marked if it has changes; None without a repository."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return f"{head}-changed" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 an argv of our own making
            ["git", "-C", str(ROOT), *words],  # noqa: S607 the git of whoever runs this
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
