"""The flag `--key-file`: members seal what they send by the keys of a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from stormcast.chaos.commands.output import say
from stormcast.node.keys.cluster_keys import ClusterKey, read_keys

Keys = tuple[ClusterKey, ...]
OF_A_RELEASE: Final = "--key-file: members of a release have its key, and no other; drop it"


def add_key_file(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--key-file`."""
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="members seal what they send by the keys of this file (stormcast key makes one), as "
        "with `sealed: true` in the scenario",
    )


def read_key_file(path: Path | None) -> Keys:
    """Return the keys of the file that was given, and say which of them seals; () without one."""
    if path is None:
        return ()
    keys = read_keys(str(path), "--key-file")
    say(f"members seal with key {keys[0].name}")
    return keys
