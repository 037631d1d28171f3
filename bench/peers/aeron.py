"""Aeron: how its driver, sender and receiver are started, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.errors import BenchError
from bench.peers.jars import Artifact, class_path
from bench.work import Work

ARTIFACT: Final = Artifact("io.aeron", "aeron-all", "1.46.7")
MTUS: Final = {"aeron": 1408, "aeron-60k": 61440}
"""Aeron's default, and datagrams as large as ours."""
PORTS: Final = {"aeron": 40123, "aeron-60k": 40124}
TERM: Final = "64m"
"""Bytes of a log buffer; with fewer, large datagrams wait for the rotation of terms."""
OPENED: Final = ("java.base/sun.nio.ch", "java.base/java.util.zip")
"""Packages of the JDK that its driver reaches into."""


def commands(name: str, work: Work, directory: Path) -> list[list[str]]:
    """Return the one command; its log buffers go to `directory`, best in memory."""
    if (work.mode, work.transport) != ("unicast", "udp"):
        raise BenchError(f"--peer {name} is for one-way unicast over udp")
    return [process_command(name, directory, class_path(ARTIFACT, "AeronPeer.java"))]


def process_command(name: str, directory: Path, classes: str) -> list[str]:
    """Return the command, given the class path."""
    return [
        "java",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
        "-cp",
        classes,
        "AeronPeer",
        f"aeron:udp?endpoint=127.0.0.1:{PORTS[name]}|term-length={TERM}",
        str(MTUS[name]),
        str(directory / name),
    ]
