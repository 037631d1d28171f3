"""What Debian has to install before anything can be run on real packets.

Only where somebody asked for it: a command that installs what it likes surprises whoever runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Final

from stormcast.chaos.backends.netns.running import NEEDED

PROGRAMS: Final = NEEDED | {"tc": "iproute2", "iptables": "iptables"}
"""What real packets take, and the Debian packages that have it. Without iptables the rig can run,
but holds no packet back where the kernel's nftables has no queue."""
LONGEST_SECONDS: Final = 600.0
"""Of one call of apt-get."""


class InstallError(Exception):
    """Why nothing could be installed; the text says what is missing."""


def lacking() -> list[str]:
    """Packages of which a program is missing."""
    missing = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    return sorted(missing)


def install_lacking(say: Callable[[str], None]) -> None:
    """Install what is missing, and say what before it is done; InstallError where that cannot
    be."""
    packages = lacking()
    if not packages:
        return
    words = " ".join(packages)
    if os.geteuid() != 0:
        raise InstallError(f"real packets need root, and these packages: {words}")
    if shutil.which("apt-get") is None:
        raise InstallError(
            f"these packages are missing, by their names in Debian: {words}; there is no apt-get "
            "here that could install them"
        )
    say(
        f"installing what real packets take: {words} (apt-get; about a minute; "
        "make chaos-test SYSTEM=no installs nothing)"
    )
    why = _apt("install", "--yes", "--no-install-recommends", *packages)
    if why:
        # A fresh system knows no package before it was told which there are.
        say("apt-get knows no such packages yet, or cannot get them: updating its lists")
        why = _apt("update") or _apt("install", "--yes", "--no-install-recommends", *packages)
    if still := lacking():
        raise InstallError(f"apt-get could not install {' '.join(still)}: {why or 'it says not'}")
    say(f"installed: {words}")


def _apt(*words: str) -> str:
    """Why it failed, as its last line says; empty: it did not."""
    argv = ("apt-get", "--quiet", *words)
    try:
        done = subprocess.run(  # noqa: S603 our own words, and no shell
            argv,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
