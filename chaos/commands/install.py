"""Installs the Debian packages that runs on real packets need.

Only when asked for (`--install`): a command that installs packages unasked surprises its user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Final

from stormcast.chaos.backends.netns.running import NEEDED

PROGRAMS: Final = NEEDED | {"tc": "iproute2", "iptables": "iptables"}
"""The programs for runs on real packets, and the Debian packages that contain them. Without
iptables the rig can run, but holds no packet back where the kernel's nftables has no queue."""
LONGEST_SECONDS: Final = 600.0
"""Seconds that one call of apt-get may take."""


class InstallError(Exception):
    """Packages could not be installed; the text names them, and says why."""


def lacking() -> list[str]:
    """Return the packages of which a program is missing."""
    missing = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    return sorted(missing)


def install_lacking(say: Callable[[str], None]) -> None:
    """Install the missing packages, after naming them by `say`; InstallError if that fails."""
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
        # A fresh system has no lists of packages before `apt-get update`.
        say("apt-get knows no such packages yet, or cannot get them: updating its lists")
        why = _apt("update") or _apt("install", "--yes", "--no-install-recommends", *packages)
    if still := lacking():
        raise InstallError(
            f"apt-get could not install {' '.join(still)}: {why or 'it gave no reason'}"
        )
    say(f"installed: {words}")


def _apt(*words: str) -> str:
    """Run apt-get; returns why it failed, by its last line, or an empty text."""
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
