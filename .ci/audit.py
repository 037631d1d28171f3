# ruff: noqa: INP001  A script of the Makefile, not a package: only it and one test start this.
"""Looks pinned versions up among known flaws: `audit.py PIP-AUDIT REQUIREMENTS…`, by `make audit`.

pip-audit calls it a success when the index knows nothing of a package: a mirror, for instance, that
has no advisories. Here what was not looked up is not passed. Exit codes: 0 no known flaw; 1 some; 3
not all could be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

SECONDS: Final = 900
CLEAN, FLAWED, UNKNOWN = 0, 1, 3


class Found(NamedTuple):
    """What was found out about the pins of some files."""

    sound: int
    """Packages that were looked up, without a known flaw."""
    flaws: list[str]
    not_looked_up: list[str]
    """Packages, each with the reason."""
    broken: list[str]
    """Files that could not be looked up as a whole, each with the reason."""


def look_up(tool: str, files: Sequence[str]) -> Found:
    """Look the pins of all files up."""
    found = Found(0, [], [], [])
    for file in files:
        words = [tool, "--requirement", file, "--require-hashes", "--disable-pip"]
        words += ["--progress-spinner", "off", "--format", "json"]
        try:
            done = subprocess.run(  # noqa: S603 the tool that the Makefile names
                words, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            listed = json.loads(done.stdout)["dependencies"]
        except subprocess.TimeoutExpired:
            found.broken.append(f"{file}: no answer within {SECONDS} s")
        except (ValueError, KeyError):
            found.broken.append(f"{file}: {_last_line(done.stderr)}")
        else:
            found = _with(found, listed)
    return found


def _with(found: Found, listed: Sequence[dict[str, Any]]) -> Found:
    sound = found.sound
    for package in listed:
        if "skip_reason" in package:
            found.not_looked_up.append(str(package["skip_reason"]))
        elif package["vulns"]:
            found.flaws.extend(_flaw(package, flaw) for flaw in package["vulns"])
        else:
            sound += 1
    return found._replace(sound=sound)


def _flaw(package: dict[str, Any], flaw: dict[str, Any]) -> str:
    mended = f"mended in {', '.join(flaw['fix_versions'])}" if flaw["fix_versions"] else "open"
    names = ", ".join([flaw["id"], *flaw.get("aliases", ())])
    return f"{package['name']} {package['version']}: {names}; {mended}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "pip-audit said nothing"


def verdict(found: Found) -> tuple[int, list[str]]:
    """Return the exit code, and what to say: flaws line by line, then one line about all."""
    missing = len(found.not_looked_up)
    total = found.sound + len({flaw.partition(":")[0] for flaw in found.flaws}) + missing
    doubts = list(found.broken)
    if missing:
        doubts.append(f"{missing} of {total} packages were not looked up: {found.not_looked_up[0]}")
    if doubts:
        doubts.append("run it where the advisories of the package index can be reached")
    if found.flaws:
        return FLAWED, [*found.flaws, "; ".join([f"{len(found.flaws)} known flaws", *doubts])]
    if doubts:
        return UNKNOWN, ["; ".join(doubts)]
    return CLEAN, [f"no known flaw in {found.sound} packages"]


def main(words: Sequence[str]) -> int:
    """Run the command."""
    tool, *files = words
    code, lines = verdict(look_up(tool, files))
    print("\n".join(f"audit: {line}" for line in lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
