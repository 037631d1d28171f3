"""Jars from Maven and classes from our sources, kept in a cache outside the tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stormcast.node.core.errors import NodeError

FETCH_SECONDS: Final = 300
COMPILE_SECONDS: Final = 120
_SHOWN: Final = 200
"""Characters of what a program has said that an error shows."""


class JarError(NodeError):
    """A peer cannot be had on this machine; one line says why, with the remedy."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar that Maven knows."""

    group: str
    name: str
    version: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


def cache() -> Path:
    """Return the folder in which jars and classes are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "stormcast" / "peers"


def missing(*artifacts: Artifact) -> str | None:
    """Say what this machine lacks to run a peer; None if nothing can be told beforehand."""
    for program, package in (("java", "a JRE"), ("javac", "a JDK")):
        if shutil.which(program) is None:
            return f"no {program}: install {package}"
    for artifact in artifacts:
        if shutil.which("mvn") is None and not (cache() / artifact.file).exists():
            return f"no mvn to fetch {artifact.coordinates} with: install maven"
    return None


def class_path(artifacts: Sequence[Artifact], sources: Sequence[Path]) -> str:
    """Return the class path of jars and compiled sources; fetch and compile what is missing."""
    if reason := missing(*artifacts):
        raise JarError(reason)
    jars = [_jar(artifact) for artifact in artifacts]
    return os.pathsep.join(map(str, [*jars, _classes(jars, sources)]))


def _jar(artifact: Artifact) -> Path:
    """Return the jar: kept, or copied out of the local Maven repository, or fetched into that."""
    jar = cache() / artifact.file
    if jar.exists():
        return jar
    print(f"fetching {artifact.coordinates}", file=sys.stderr)
    jar.parent.mkdir(parents=True, exist_ok=True)
    words = ["-q", "-B", f"-Dartifact={artifact.coordinates}"]
    # Beside its place, then moved: a jar that is there is whole.
    aside = jar.parent / f"fetched-{os.getpid()}"
    copy = ["mvn", "dependency:copy", *words, f"-DoutputDirectory={aside}"]
    try:
        failure = f"{artifact.coordinates} could not be fetched"
        _run(copy, failure, "look whether Maven reaches a repository", FETCH_SECONDS)
        (aside / artifact.file).replace(jar)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return jar


def _classes(jars: Sequence[Path], sources: Sequence[Path]) -> Path:
    """Return the folder of the compiled peer, named by a hash of what it was made from."""
    content = [source.read_bytes() for source in sources]
    named = "".join(jar.name for jar in jars).encode()
    made_from = hashlib.sha256(b"".join([*content, named])).hexdigest()[:16]
    folder = cache() / f"{sources[0].stem}-{made_from}"
    if not folder.exists():
        aside = folder.with_name(f"{folder.name}-{os.getpid()}")
        path = os.pathsep.join(map(str, jars))
        words = ["javac", "-nowarn", "-cp", path, "-d", str(aside), *map(str, sources)]
        failure = f"{sources[0].name} could not be compiled"
        _run(words, failure, "install a JDK of version 17 or newer", COMPILE_SECONDS)
        try:
            aside.rename(folder)
        except OSError:
            # Another process was faster, with the same result.
            shutil.rmtree(aside, ignore_errors=True)
    return folder


def _run(words: list[str], failure: str, remedy: str, timeout: float) -> None:
    try:
        done = subprocess.run(  # noqa: S603 an argv of our own making
            words, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarError(f"{failure}: {words[0]} took more than {timeout:.0f} s; {remedy}") from None
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())[:_SHOWN]
        raise JarError(f"{failure} ({said}); {remedy}")
