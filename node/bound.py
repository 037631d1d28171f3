"""Programs that the kernel kills when the thread that started them ends, for whatever reason, and
even while they are stopped.

A program asks for that itself (PR_SET_PDEATHSIG), a moment after it was started. A parent that was
killed before that moment is no parent any more, and its end signals nothing. So the program looks
for its parent once more after it has asked, and ends if somebody else has inherited it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

_UNLESS_INHERITED: Final = 'test "$PPID" = "$0" && exec "$@"'
"""A shell reads $PPID when it begins, and so after `setpriv` has asked; $0 is the parent that the
program was started by."""


def bound_to_me(argv: Sequence[str], *, by: str = "KILL") -> tuple[str, ...]:
    """Return the words of a program that does not outlive this process: it is sent the signal `by`.
    Its pid stays the same: one program becomes the next."""
    asks = ("setpriv", "--pdeathsig", by)
    return (*asks, "sh", "-c", _UNLESS_INHERITED, str(os.getpid()), *argv)
