"""Java's archive of the classes that Spark loads, kept from one command to the next.

A small run is judged by thousands of classes that are loaded, checked and prepared anew each time,
which takes as long as a third of all the rest. Java maps them from an archive in a moment.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "stormcast"
_NAME: Final = "spark-{}.jsa"
_PART: Final = "spark-*.[0-9]*"
"""An archive while it is written: with the number of the process."""
_MOST: Final = 3
"""As many are kept, of different Javas and PySparks: each takes 130 MB."""
_UNTOLD: Final = "-Xlog:cds*=off"
"""An archive that does not fit is no matter: classes are loaded as if there were none."""


class ClassArchive:
    """The archive for one Java and one PySpark; nowhere if this user has no cache."""

    def __init__(self, java: str) -> None:
        """`java` is what it says of its version."""
        self._path: Path | None = None
        if (folder := _cache()) is not None:
            self._path = folder / FOLDER / _NAME.format(_digest(java, str(_jars())))

    @property
    def options(self) -> str:
        """The options with which Java uses the archive, or can make it."""
        if self._path is None:
            return ""
        if self._path.exists():
            return f"{_UNTOLD} -XX:SharedArchiveFile={self._path}"
        return f"{_UNTOLD} -XX:+RecordDynamicDumpInfo"

    def keep(self, session: SparkSession) -> None:
        """Make the archive of what a session has loaded, if there is none. It is no matter if that
        cannot be: there is no room, or nobody may write there."""
        if self._path is None or self._path.exists():
            return
        fresh = self._path.with_suffix(f".{os.getpid()}")
        with suppress(Exception):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in self._path.parent.glob(_PART):
                # Of a command that was killed meanwhile.
                if not Path("/proc", part.suffix[1:]).exists():
                    part.unlink()
            _dump(session, fresh)
            fresh.rename(self._path)
            kept = sorted(
                self._path.parent.glob(_NAME.format("*")), key=lambda one: -one.stat().st_mtime
            )
            for old in kept[_MOST:]:
                old.unlink()
        with suppress(OSError):
            fresh.unlink()


def _cache() -> Path | None:
    """Return the folder of this user's caches, if it can be named as one of Java's options."""
    named = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):
        folder = Path(named) if named else Path.home() / ".cache"
        if folder.is_absolute() and not any(letter.isspace() for letter in str(folder)):
            return folder
    return None


def _jars() -> tuple[str, int]:
    """Return where PySpark's classes are, and when they came."""
    found = find_spec("pyspark")
    folder = Path(found.origin or "").parent / "jars" if found else Path()
    return str(folder), folder.stat().st_mtime_ns if folder.exists() else 0


def _digest(*words: str) -> str:
    return sha256("\n".join(words).encode()).hexdigest()[:16]


def _dump(session: SparkSession, path: Path) -> None:
    """Have the Java of a session write its loaded classes, as `jcmd` would."""
    context: Any = session.sparkContext
    jvm = context._jvm  # noqa: SLF001 there is no public way

    def array(kind: Any, *items: Any) -> Any:  # noqa: ANN401 Py4J has no types
        made = context._gateway.new_array(kind, len(items))  # noqa: SLF001 as above
        for place, item in enumerate(items):
            made[place] = item
        return made

    text, thing = jvm.java.lang.String, jvm.java.lang.Object
    class_of = jvm.java.lang.Class.forName
    # The server's own class is none that others may call: only by its interface.
    kinds = ("javax.management.ObjectName", "java.lang.String")
    arrays = ("[Ljava.lang.Object;", "[Ljava.lang.String;")
    signature = array(jvm.java.lang.Class, *map(class_of, (*kinds, *arrays)))
    invoke = class_of("javax.management.MBeanServer").getMethod("invoke", signature)
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    # It says that it does so, on the stream of our results.
    jvm.java.lang.System.setOut(
        jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream())
    )
    words = array(text, "dynamic_dump", str(path))
    given = array(thing, words)
    invoke.invoke(server, array(thing, commands, "vmCds", given, array(text, arrays[1])))
