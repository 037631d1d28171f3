"""A process of its own that waits for the end of the rig, however it ends, and then ends all guests
and removes their networks: the kernel ends only what the rig itself has started, and guests start
others."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

END_SECONDS: Final = 10.0
_ENDS: Final = """
cat >/dev/null
for look in 1 2 3; do
  for space in "$@"; do
    for pid in $(ip netns pids "$space" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
  done
done
for space in "$@"; do ip netns del "$space" 2>/dev/null; done
"""
"""Its input ends with whoever may write there. One that is killed may have started another one."""


class Guard:
    """Ends what lives in some namespaces of ours, and them, when this process is gone."""

    def __init__(self, spaces: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 our own words
            ("sh", "-c", _ENDS, "sh", *spaces),  # noqa: S607 wherever this system has it
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is to reach only the rig, whose end is what this one waits for.
            process_group=0,
        )

    def close(self) -> None:
        """Have it do its work now, and end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
