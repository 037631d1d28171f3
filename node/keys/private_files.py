"""The rights of files with secrets: keys, tokens and private keys are for their reader alone."""

from __future__ import annotations

import os
import stat
from typing import Final

from stormcast.node.core.errors import require

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_ROOT: Final = 0


def check_private(found: os.stat_result, what: str, path: str) -> None:
    """Refuse a file that others own, read or write; `what` is the setting that names it. A Secret
    that Kubernetes mounts belongs to root and may be read by the pod's group: whoever reads it does
    not own it, or is the pod's root, whose own group is another one."""
    reader = os.geteuid()
    # Root can read what belongs to anybody: it must not take a secret that its owner can change.
    require(
        found.st_uid in (_ROOT, reader),
        f"{what} {path}: it belongs to user {found.st_uid}, who can read and change it; "
        f"chown {reader} {path}",
    )
    others = found.st_mode & _OTHERS
    if found.st_uid == _ROOT and (reader != _ROOT or found.st_gid != _ROOT):
        others &= ~stat.S_IRGRP
    require(
        not others,
        f"{what} {path}: others can read or change it (mode {stat.S_IMODE(found.st_mode):o}); "
        f"chmod 600 {path}",
    )
