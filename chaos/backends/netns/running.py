"""Runs commands: through this module alone the network of a run changes the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from stormcast.node.core.errors import NodeError

Run = Callable[[Sequence[str], str], str]
"""Runs a program (arguments, standard input) and returns its output; CommandError if it fails."""

TIMEOUT_SECONDS: Final = 20.0
"""Commands take milliseconds; one that takes this long is taken to hang."""
NEEDED: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "setpriv": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""The programs that are needed, and the Debian packages that contain them."""


class CommandError(NodeError):
    """A program failed, or is missing; the text names the program and its output."""


def run_command(argv: Sequence[str], stdin: str = "") -> str:
    """Run a program to its end."""
    try:
        done = subprocess.run(  # noqa: S603 our own words, and no shell
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            # Ctrl-C is to reach only this process: half a removal would leave the other half.
            process_group=0,
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
    """Return why this machine cannot make network namespaces; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            return f"there is no program {program}: apt-get install {package}"
    return None
