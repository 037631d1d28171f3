"""Tasks on Spark: a function is called once for each of many items, on all hosts of a cluster.

Only the name of the function is sent: the workers have its package. The function must store its
results where they outlive the task, for a task whose host dies is run again.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stormcast.pipeline.questions import CannotError
from stormcast.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_SECONDS: Final = 0.5
STOP_SECONDS: Final = 2.0
"""Seconds that cancelled tasks may take to end."""
FAILURES: Final = 4
"""Failures of one task after which all are given up: Spark's default, but for one machine."""
IDLE_SECONDS: Final = 30.0
"""If no task has run for so long, a warning is printed: workers may be missing."""

Work = Callable[[Any], str | None]


class TasksError(CannotError):
    """Tasks failed repeatedly; the text is the last error."""


class SparkTasks:
    """Runs tasks in an open Spark context."""

    def __init__(self, context: SparkContext, say: Callable[[str], None]) -> None:
        self._context = context
        self._say = say

    def run(self, work: Work, items: Sequence[Any], look: Callable[[], None]) -> list[str]:
        """Call `work` with each item, and meanwhile `look` twice a second; returns all results but
        None. An exception or interrupt cancels the tasks."""
        if not items:
            return []
        job = _Job(self._context, work, items)
        job.start()
        idle_since = time.monotonic()
        try:
            while job.is_alive():
                job.join(LOOK_SECONDS)
                look()
                if self._is_busy():
                    idle_since = time.monotonic()
                elif time.monotonic() > idle_since + IDLE_SECONDS:
                    idle_since = time.monotonic()
                    self._say(
                        f"no task has run for {IDLE_SECONDS:g}s: has {self._context.master} "
                        "workers with free cores and memory?"
                    )
        except BaseException:
            self._context.cancelAllJobs()
            job.join(STOP_SECONDS)
            raise
        return job.result()

    def _is_busy(self) -> bool:
        tracker = self._context.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


class _Job(threading.Thread):
    """A thread that waits for one job: PySpark blocks its caller until the job ends."""

    def __init__(self, context: SparkContext, work: Work, items: Sequence[Any]) -> None:
        super().__init__(daemon=True)
        self._tasks = context.parallelize(items, len(items)).mapPartitions(_Each(work))
        self._returned: list[str | None] = []
        self._error: Exception | None = None

    def run(self) -> None:
        """Wait for the job."""
        try:
            self._returned = self._tasks.collect()
        except Exception as error:  # noqa: BLE001 it is raised again where somebody waits for it
            self._error = error

    def result(self) -> list[str]:
        """Return the results of the tasks but None; TasksError if they failed."""
        if self._error is not None:
            raise TasksError(_last_word(self._error)) from self._error
        return [one for one in self._returned if one is not None]


class _Each:
    """Calls a function for all items of a partition. An instance of an installed class is sent by
    name; a lambda would be sent as code."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, things: Iterable[Any]) -> Iterator[str | None]:
        return map(self._work, things)


@contextmanager
def spark_tasks(
    master: str,
    who: str,
    *,
    more: Mapping[str, str],
    packages: Sequence[Path] = (),
    say: Callable[[str], None],
) -> Iterator[SparkTasks]:
    """Provide Spark for tasks; `packages` are sent to all workers."""
    told = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with spark_session(_patient(master), rows=0, who=who, more=more) as session:
        # Restore our signal handlers: Spark's own would cancel jobs in the middle of other calls.
        for number, handler in told.items():
            signal.signal(number, handler)
        for package in packages:
            session.sparkContext.addPyFile(str(package))
        yield SparkTasks(session.sparkContext, say)


def _patient(master: str) -> str:
    """Return the master with retries for one machine, where Spark by default gives up at the first
    task that fails."""
    cores = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{cores[1] or 1},{FAILURES}]" if cores else master


def _last_word(error: Exception) -> str:
    """Return the Python exception of a failed task as text, or else the first line of the error."""
    lines = str(error).splitlines()
    raised = [line for line in lines if re.match(r"(?:\w+\.)*\w+(?:Error|Exception): ", line)]
    python = [line for line in raised if not line.startswith(("org.", "java."))]
    return (python or raised or lines or [repr(error)])[-1 if python else 0]
