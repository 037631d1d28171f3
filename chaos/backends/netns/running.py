"""Running commands: the one place where the network of a run touches the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from stormcast.node.core.errors import NodeError

Run = Callable[[Sequence[str], str], str]
"""Runs a program with its words on a text and returns what it printed; CommandError if it fails."""

TIMEOUT_SECONDS: Final = 20.0
"""A command takes milliseconds; one that takes this long never ends."""
NEEDED: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "setpriv": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Programs, and the Debian packages that have them."""


class CommandError(NodeError):
    """A program failed; the text is what it said."""


def run_command(argv: Sequence[str], stdin: str = "") -> str:
    """Run a program to its end."""
    try:
        done = subprocess.run(  # noqa: S603 our own words, and no shell
            argv, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError:
        remedy = f": apt-get install {NEEDED[argv[0]]}" if argv[0] in NEEDED else ""
        raise CommandError(f"there is no program {argv[0]}{remedy}") from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"{' '.join(argv)}: no end after {TIMEOUT_SECONDS:g}s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise CommandError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
    return done.stdout


def what_is_missing() -> str | None:
    """Why this machine cannot have network namespaces; None: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            return f"there is no program {program}: apt-get install {package}"
    return None
