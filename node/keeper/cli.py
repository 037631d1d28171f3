"""`stormcast keep`: the command line of a keeper."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.node.control.arguments import add_tls, tls_of
from stormcast.node.control.server import Control
from stormcast.node.control.settings import read_control, read_probes, read_token
from stormcast.node.core.errors import ConfigError, NodeError, require
from stormcast.node.core.names import one_line, printable
from stormcast.node.keeper.endpoints import endpoints, passes
from stormcast.node.keeper.keeper import Keeper, KeeperSettings
from stormcast.node.keys.cluster_keys import read_keys
from stormcast.node.reading.quantities import SETTING_DURATION

MAX_BODY: Final = 1 << 20
"""Bytes of a request's body: a configuration may have a workload in it."""
_PROG: Final = "stormcast keep"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"error: {message}; see {_PROG} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROG,
        description="Start, stop and pause the member of a container, as HTTP requests say. "
        "docs/node.md tells more.",
        allow_abbrev=False,
        epilog="exit codes: 0 after SIGTERM or SIGINT; 2 usage; otherwise what the default member "
        "ended with. A token comes from a file.",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        required=True,
        help="where requests are answered: HOST:PORT or unix:PATH",
    )
    parser.add_argument(
        "--probes",
        metavar="ADDR",
        default="",
        help="another listener for /livez and /readyz alone: HOST:PORT or unix:PATH",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        default="",
        help="file with the token of requests, for its owner only",
    )
    add_tls(parser)
    parser.add_argument(
        "--folder",
        metavar="DIR",
        required=True,
        help="where journals, logs and the member's socket are",
    )
    parser.add_argument("--config", metavar="FILE", help="settings of the default member, in YAML")
    parser.add_argument(
        "--start", action="store_true", help="start the default member, and end if it fails"
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        default="",
        help="file with the cluster's keys, by which all members seal, whatever their settings say",
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        default="12s",
        help="how long a member may take to leave (default 12s)",
    )
    return parser


def keep(argv: Sequence[str]) -> int:
    """Run a keeper until it is told to end, or its default member fails; return the exit code."""
    try:
        settings = _settings(argv)
        return asyncio.run(_run(settings))
    except (NodeError, OSError) as error:
        said = in_words(error) if isinstance(error, OSError) else error
        print(f"{_PROG}: {one_line(said)}", file=sys.stderr)
        return Exit.UNKNOWN if is_exhausted(error) else Exit.USAGE


def _settings(argv: Sequence[str]) -> KeeperSettings:
    words = _parser().parse_args(list(argv))
    token = read_token(words.token_file, os.environ, "--token-file")
    folder = Path(words.folder).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--folder {folder}: {(error.strerror or '').lower()}; name one that can be written to"
        ) from None
    config = Path(words.config) if words.config else None
    require(
        config is None or config.is_file(),
        f"--config {config}: there is no such file; name the default member's settings",
    )
    return KeeperSettings(
        control=read_control(words.listen, token, "--listen", tls_of(words)),
        probes=read_probes(words.probes, "--probes") if words.probes else None,
        folder=folder,
        config=config,
        starts=words.start,
        key_file=_keys(words.key_file),
        grace=SETTING_DURATION.read(words.grace, "--grace"),
    )


def _keys(path: str) -> Path | None:
    """Return where the keys are, if a file is named; ConfigError if it has none: no member could
    start."""
    if not path:
        return None
    read_keys(path, "--key-file")
    return Path(path).absolute()


async def _run(settings: KeeperSettings) -> int:
    keeper = Keeper(settings, os.environ, _say)
    table = endpoints(keeper)
    controls = [
        Control(
            settings.control,
            table,
            _say_failure,
            say=_say,
            max_body=MAX_BODY,
            passes=passes(keeper),
        )
    ]
    if settings.probes is not None:
        controls.append(Control.for_probes(settings.probes, table, _say_failure))
    try:
        for control in controls:
            _say(f"listens on {await control.open()}")
        return await keeper.run()
    finally:
        for control in controls:
            await control.close()


def _say_failure(error: Exception) -> None:
    _say(f"failed: {error!r}")


def _say(line: str) -> None:
    # The reader of stderr may be gone; the keeper goes on.
    with suppress(OSError, ValueError):
        print(printable(f"keeper: {line}"), file=sys.stderr, flush=True)
