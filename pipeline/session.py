"""A Spark session for one command: with few logs, in UTC, and stopped at the end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from stormcast.pipeline.class_archive import ClassArchive
from stormcast.pipeline.gateway import spare_questions
from stormcast.pipeline.questions import CannotError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_RUN: Final = "SC_RUN"
"""The variable that says whose a process is, to `stormcast clean`."""
VERIFY: Final = "verify"
JAVA: Final = 17
"""The oldest version of Java that Spark 4 runs on."""
ROWS_PER_TASK: Final = 200_000
"""A sort of so many rows fits into the memory of a task on a laptop."""
ROWS_PER_GIB: Final = 250_000
"""So many rows leave room in a worker's memory for their tables as they are. Those of six times as
many ended Java for want of memory, though Spark puts on disk what it counts as too much."""
SERIALIZED: Final = "spark.stormcast.serialized"
"""The setting of ours that says whether kept tables are serialized, which takes time and half of
the memory."""
_BITS_OF_MIB: Final = {"k": 30, "m": 20, "g": 10, "t": 0}
SMALL: Final = 300_000
"""Up to so many rows, generating faster code takes longer than it saves."""
FOR_FEW: Final = {
    # One task has all rows of a table: what sorts, groups and joins them needs no shuffle then.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.maxSinglePartitionBytes": str(1 << 60),
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Where planning costs more than the work."""
_FOR_FEW_JAVA: Final = "-XX:ReservedCodeCacheSize=240m -XX:NewSize=192m"
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_READS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables with more flags for any Java."""
_SHORT: Final = 40_000
"""Up to so many rows, Java ends within seconds."""
_SHORT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.25"
"""A Java that ends within seconds gains nothing by its best compiler, and much by an early one."""
_LONGER_JAVA: Final = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""One that ends within minutes compiles at its best what it calls for each row, and little else: at
four times the calls of a Java that lasts."""
_FOR_MANY_JAVA: Final = f"-XX:ReservedCodeCacheSize=512m {_LONGER_JAVA}"
"""Each plan is code of its own, and what is compiled for it is not thrown out for the next one."""
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
# What a check does wrong is told by its exception, once.
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
logger.hooks.name = org.apache.spark.util.ShutdownHookManager
logger.hooks.level = off
"""


def check_java(who: str = VERIFY) -> None:
    """Raise CannotError if there is no Java that Spark runs on; `who` needs it."""
    java = _java()
    remedy = f"install one (apt-get install openjdk-{JAVA}-jre-headless), or set JAVA_HOME"
    if java is None:
        raise CannotError(f"{who} needs a Java runtime, {JAVA} or newer: {remedy}")
    told = re.search(r'version "(\d+)', _said_by(java))
    if told is None or int(told[1]) < JAVA:
        is_now = f"{java} is {told[1]}" if told else f"{java} does not run"
        raise CannotError(f"{who} needs Java {JAVA} or newer, and {is_now}: {remedy}")


def _java() -> str | None:
    """Return the program that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


@cache
def _said_by(java: str) -> str:
    """Return what a Java says of its version, without the words that it picked up; nothing of the
    kind if it does not run. It takes a second to say so, and is asked again when Spark starts."""
    with _marked():
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 Java's own version
    lines = (said.stderr + said.stdout).splitlines()
    return "\n".join(line for line in lines if "Picked up" not in line)


def check_pyspark(who: str = VERIFY) -> None:
    """Raise CannotError if there is no PySpark; `who` needs it."""
    try:
        import pyspark  # noqa: F401, PLC0415 only to see whether it is there
    except ImportError:
        raise CannotError(f"{who} needs PySpark: pip install 'stormcast[verify]'") from None


def check_pyarrow(who: str = VERIFY) -> None:
    """Raise CannotError if there is no pyarrow; `who` needs it."""
    try:
        import_module("pyarrow")
    except ImportError:
        raise CannotError(f"{who} needs pyarrow: pip install 'stormcast[verify]'") from None


@contextmanager
def spark_session(
    master: str,
    *,
    rows: int,
    who: str = VERIFY,
    more: Mapping[str, str] | None = None,
    shared: Path | None = None,
    lasts: bool = False,
) -> Iterator[SparkSession]:
    """Provide a Spark session for a job over so many rows, or for one after the other of them if it
    `lasts`; the settings `more` override ours.
    Computed tables are kept in `shared`, a folder that all hosts see, where it is given; else each
    worker keeps what it has computed."""
    check_pyspark(who)
    check_java(who)
    from pyspark.sql import SparkSession  # noqa: PLC0415 only where it is there

    with TemporaryDirectory(prefix=own_prefix()) as scratch:
        logging = Path(scratch) / "log4j2.properties"
        logging.write_text(_LOGGING)
        builder = SparkSession.builder.appName(f"stormcast {who}").master(master)
        asked = settings(master, rows, scratch, logging, more=more or {}, lasts=lasts)
        archive = ClassArchive(_said_by(_java() or ""))
        asked["spark.driver.extraJavaOptions"] += f" {archive.options}"
        for key, value in (asked | dict(more or {})).items():
            builder = builder.config(key, value)
        said = Path(scratch) / "stderr"
        try:
            with _stderr_in(said), _temporary_in(scratch), _marked():
                session = builder.getOrCreate()
        except Exception as error:
            raise CannotError(
                f"Spark does not start on {master}: {_last_line(said, error)}"
            ) from error
        spare_questions(session)
        try:
            with _tables_in(shared, session):
                yield session
            archive.keep(session)
        finally:
            _stop(session)


@contextmanager
def _tables_in(shared: Path | None, session: SparkSession) -> Iterator[None]:
    """Have computed tables kept in a folder of this session below `shared`, and remove it."""
    if shared is None:
        yield
        return
    try:
        shared.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=own_prefix(), dir=shared.absolute())
        # Workers may be other users, on other hosts.
        Path(folder).chmod(0o777)
    except OSError as error:
        raise CannotError(f"--tables {shared}: {error.strerror or error}") from None
    try:
        session.sparkContext.setCheckpointDir(folder)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stop(session: SparkSession) -> None:
    """Stop a session. If its JVM is gone, nothing is left to stop, and whoever used it was told."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        session.stop()


@contextmanager
def _temporary_in(folder: str) -> Iterator[None]:
    """Have PySpark make its temporary folders in ours, which is found by its name when this process
    was killed."""
    before = tempfile.tempdir
    tempfile.tempdir = folder
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _marked() -> Iterator[None]:
    """Have each Java that is started meanwhile say whose it is: it ends by itself when this process
    is killed, but only once it has started, and `stormcast clean` ends it before."""
    mark = own_mark()
    before = os.environ.get(OF_RUN)
    if mark:
        os.environ[OF_RUN] = mark
    try:
        yield
    finally:
        if before is not None:
            os.environ[OF_RUN] = before
        else:
            os.environ.pop(OF_RUN, None)


def own_mark() -> str:
    """Return the word by which `stormcast clean` knows what this process has made, and whether it
    still runs: its pid, and the time of its start. Nothing where the system does not tell."""
    try:
        stat = Path("/proc/self/stat").read_text()
    except OSError:
        return ""
    # The second field is the program's name in parentheses, and may hold anything.
    started = stat[stat.rindex(")") + 2 :].split()[19]
    return f"sc{os.getpid()}-{started}-0"


def own_prefix() -> str:
    """Return how the names of this process's temporary folders begin."""
    return f"{own_mark() or 'stormcast'}-verify-"


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Redirect stderr to a file, for the messages that the JVM prints when it is started."""
    ours = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _last_line(path: Path, error: Exception) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else str(error).partition("\n")[0]


def settings(
    master: str,
    rows: int,
    scratch: str,
    logging: Path,
    *,
    more: Mapping[str, str] | None = None,
    lasts: bool = False,
) -> dict[str, str]:
    """Return Spark's settings for this job; those of memory in `more` count."""
    asked = {
        "spark.sql.session.timeZone": "UTC",
        # Constraints that Spark infers for a computed table name columns that it no longer has.
        "spark.sql.constraintPropagation.enabled": "false",
        # A check that fails must fail: no null where a number was too large.
        "spark.sql.ansi.enabled": "true",
        # Where in our code a column was made is not worth a stack trace for each of them.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
    }
    asked |= _for_many(rows) if rows > SMALL else FOR_FEW
    if rows <= SMALL:
        asked["spark.driver.extraJavaOptions"] += f" {_FOR_FEW_JAVA}"
        asked["spark.driver.extraJavaOptions"] += "" if lasts else f" {_java_for(rows)}"
    else:
        asked["spark.driver.extraJavaOptions"] += f" {_FOR_MANY_JAVA}"
        # Before what a site says of its executors, whose pods may have little room for code.
        asked["spark.executor.defaultJavaOptions"] = _LONGER_JAVA
    asked["spark.driver.extraJavaOptions"] += f" {_collector(rows, more or {})}"
    if master.startswith("local"):
        # On one machine all work is done in the driver, and needs no network.
        asked |= {
            "spark.driver.memory": f"{_memory_mib()}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": scratch,
        }
    of_worker = "spark.driver.memory" if master.startswith("local") else "spark.executor.memory"
    memory = _mib((more or {}).get(of_worker) or asked.get(of_worker, "1g"))
    asked[SERIALIZED] = str(rows > max(SMALL, ROWS_PER_GIB * memory >> 10)).lower()
    return asked


def _collector(rows: int, more: Mapping[str, str]) -> str:
    """Return the flag of the garbage collector that takes the least CPU; none where another is
    named, as Java takes no two."""
    named = [os.environ.get(name, "") for name in _JAVA_READS]
    named.append(more.get("spark.driver.defaultJavaOptions", ""))
    if any(map(_COLLECTOR.search, named)):
        return ""
    return "-XX:+UseSerialGC" if rows <= SMALL else "-XX:+UseParallelGC"


def _java_for(rows: int) -> str:
    return _SHORT_JAVA if rows <= _SHORT else _LONGER_JAVA


def _for_many(rows: int) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0))
    return {"spark.sql.shuffle.partitions": str(max(cores, -(-rows // ROWS_PER_TASK)))}


def _mib(memory: str) -> int:
    """Return the MiB of a size as Java writes it; 0 if it is none, which Spark then says."""
    number, unit = memory[:-1], memory[-1:].lower()
    if memory.isdigit():
        number, unit = memory, "m"
    if not number.isdigit() or unit not in _BITS_OF_MIB:
        return 0
    return int(number) << 20 >> _BITS_OF_MIB[unit]


def _memory_mib() -> int:
    """Return half of the machine's memory, from 1 to 4 GiB."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return max(1024, min(4096, pages * size // 2 >> 20))
