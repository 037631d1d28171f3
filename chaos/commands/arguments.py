"""Arguments that sub-commands of the rig share: flags, and readers of their values."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from stormcast.chaos.backends.by_name import BACKENDS
from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.quantities import DURATION, SIZE, UnitError

OF_ONE_BACKEND: Final = {
    "namespace": "kubernetes",
    "release": "kubernetes",
    "ca_file": "kubernetes",
    "ipv6": "docker",
}
"""Arguments of one backend, as its flags and its constructor call them, and that backend."""


def parser_of(name: str, about: str) -> argparse.ArgumentParser:
    """Return a parser for the arguments of a sub-command."""
    return argparse.ArgumentParser(prog=f"stormcast {name}", description=about, allow_abbrev=False)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the argument `file`, which names the scenario."""
    parser.add_argument(
        "file",
        help="the scenario file, or the name of one that ships (stormcast scenarios lists them)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--backend`."""
    parser.add_argument(
        "--backend", default="sim", help=f"where members live: {', '.join(BACKENDS)} (default sim)"
    )


def add_flags_of_one_backend(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only one backend has."""
    parser.add_argument("--namespace", help="of the members in Kubernetes")
    parser.add_argument("--release", help="of the chart in Kubernetes")
    parser.add_argument(
        "--ipv6", action="store_true", default=None, help="members in docker speak IPv6"
    )
    _add_ca_file(parser)


def own_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what was given of the arguments that only the chosen backend has; ConfigError for an
    argument of another one."""
    given = {name: getattr(args, name) for name in OF_ONE_BACKEND}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if (backend := OF_ONE_BACKEND[name]) != args.backend:
            raise ConfigError(f"--{name.replace('_', '-')} is of --backend {backend}; drop it")
    return given


def _add_ca_file(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--ca-file`."""
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="in the network of a Kubernetes cluster: ask keepers and agents at their pods' own "
        "addresses, and verify their certificate by this file (default: ask through the API "
        "server, which does not verify it)",
    )


def way_not_verified(backend: str, ca_file: str | None) -> str | None:
    """Return what is to be said where a backend asks pods whose certificate nobody verifies; None
    where it does not."""
    if backend != "kubernetes" or ca_file:
        return None
    from stormcast.chaos.backends.kubernetes.release_access import CA_FILE_VARIABLE  # noqa: PLC0415 of this backend alone

    if os.environ.get(CA_FILE_VARIABLE):
        return None
    return (
        "keepers and agents are asked through the API server, which does not verify their "
        "certificate; from within the cluster --ca-file does (docs/security.md)"
    )


def add_seed(
    parser: argparse.ArgumentParser, about: str = "chooses everything that is left to chance"
) -> None:
    """Add the flag `--seed`."""
    parser.add_argument("--seed", type=read_seed, default=1, help=f"{about} (default 1)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON value on stdout")


def add_spark_settings(parser: argparse._ActionsContainer) -> None:
    """Add the flag `--conf`, whose values are pairs of key and value."""
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_read_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.executor.memory=2g",
    )


def _read_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE")
    return key, value


def read_seed(text: str) -> int:
    """Read a whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: write a whole number from 0")
    return int(text)


def read_count(text: str) -> int:
    """Read a whole number from 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1")
    return int(text)


def read_size(text: str) -> int:
    """Read bytes from a text such as 512MiB."""
    try:
        return int(SIZE.parse(text))
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def read_duration(text: str) -> float:
    """Read seconds from a text such as 5min."""
    try:
        return DURATION.parse(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
