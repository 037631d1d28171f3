"""`stormcast verify --follow`: judges the chapters of a soak as they come, by a stream of Spark.

The stream is of manifests, small files that announce a chapter each. What became of a chapter is in
the follower's own log. So nothing counts twice where the stream hands out a batch again, as it does
after a kill. Of some chapters the stream tells nothing: the soak has dropped them, or was killed
before it announced them, or their manifest is an empty file. All of them get a verdict: `unknown`.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.chapters import (
    MANIFESTS,
    ChapterVerdict,
    Manifest,
    manifest_of,
    not_judged,
)
from stormcast.pipeline.cli import quiet_logs, say
from stormcast.pipeline.follow_lines import Lines
from stormcast.pipeline.follow_log import FollowLog
from stormcast.pipeline.followed import FollowedSoak
from stormcast.pipeline.questions import CannotError, VerifyError, one_line

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from stormcast.pipeline.chapter_judge import Ask, ChapterJudge

MOST: Final = 12
"""The most chapters of one batch: what is judged together is in memory together."""
POLL_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 15.0
"""How long the stream may leave a manifest alone, once no chapter comes any more."""
SETTINGS: Final[Mapping[str, str]] = {
    # What Spark remembers of jobs that are done, though nobody looks.
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.minBatchesToRetain": "10",
}
NEVER: Final = "it was never announced: the soak was killed before that"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOrder:
    """A soak to follow, and the options for that."""

    soak: FollowedSoak
    ask: Ask
    lines: Lines
    until_over: bool = False
    """Whether to wait until a soak that was killed is resumed."""
    most: int = MOST
    on_end: Callable[[], object] = lambda: None
    """Called when nothing more is judged."""


class _Stopped(BaseException):
    """A signal came: no verdict on what is under way, however it fails now."""


def follow(order: FollowOrder, master: str, settings: Mapping[str, str]) -> int:
    """Judge the chapters of a soak until it is over; returns the exit code of the worst verdict. If
    a signal comes before, and nothing is violated: KeyboardInterrupt."""
    try:
        session.check_pyspark()
        quiet_logs()
        follower = Follower(order)
        follower.open()
        say(f"following {order.lines.shown(str(order.soak.path))}, Spark on {master}")
        more = {**SETTINGS, **settings}
        with session.spark_session(master, rows=0, more=more, lasts=True) as spark:
            is_whole = follower.follow(spark)
    except CannotError as error:
        say(order.lines.shown(str(error)))
        return Exit.UNKNOWN
    except VerifyError as error:
        say(order.lines.shown(str(error)))
        return Exit.USAGE
    order.on_end()
    order.lines.summary(follower.worst, follower.counts)
    code = Exit.of(follower.worst)
    if not is_whole and code is not Exit.VIOLATED:
        raise KeyboardInterrupt
    return code


class Follower:
    """Follows one soak."""

    def __init__(self, order: FollowOrder) -> None:
        self._order = order
        self._soak = order.soak
        self._lines = order.lines
        self._log = FollowLog(order.soak.folder)
        self._lock = threading.RLock()
        """Held while verdicts are made and written: the stream and the loop are two threads."""
        self._stop = threading.Event()
        self._error: BaseException | None = None
        """What ended the stream's last batch, of which Spark has only the text."""

    @property
    def worst(self) -> str:
        return self._log.worst

    @property
    def counts(self) -> Mapping[str, int]:
        return self._log.counts

    def open(self) -> None:
        """Read what was judged before; what a kill has left undone of it is done first."""
        missing = self._log.open(self._clear)
        self._soak.tidy(self._log.is_done)
        if any(self.counts.values()):
            say(f"judged before: {self._lines.in_words(self.counts)}")
        for alarm in missing:
            self._lines.alarm(alarm)

    def follow(self, spark: SparkSession) -> bool:
        """Judge chapters until the soak is over and all are judged; returns False if a signal came
        before that."""
        from stormcast.pipeline.chapter_judge import ChapterJudge  # noqa: PLC0415 it needs PySpark
        from stormcast.pipeline.halves import check_spark  # noqa: PLC0415 as above

        def on_progress(_text: str) -> None:
            self._go_on()

        order = self._order
        judge = ChapterJudge(spark, self._soak.chapters, order.ask, self._lines.shown, on_progress)
        with self._signals():
            try:
                self._stream(spark, judge)
                self._go_on()
                self._finish(judge)
            except _Stopped:
                return False
            except Exception as error:
                check_spark(spark, error)
                raise
        return True

    # -- The stream --------------------------------------------------------------------------------

    def _stream(self, spark: SparkSession, judge: ChapterJudge) -> None:
        """Have the stream hand out chapters, until no more come and it is through with them."""
        from stormcast.pipeline.halves import check_spark  # noqa: PLC0415 it needs PySpark

        query: StreamingQuery | None = None
        try:
            query = self._start(spark, judge)
            self._watch(query)
        except Exception as error:
            self._go_on()
            if self._error is not None:
                raise self._error from None
            check_spark(spark, error)
            raise CannotError(
                f"the stream does not go on ({one_line(error)}); if {self._soak.checkpoint} is "
                "spoiled, remove it: what was judged stays judged"
            ) from error
        finally:
            if query is not None:
                with suppress(Exception):
                    query.stop()

    def _start(self, spark: SparkSession, judge: ChapterJudge) -> StreamingQuery:
        from pyspark.sql import functions as F  # noqa: PLC0415 it needs PySpark

        manifests = (
            spark.readStream.schema(MANIFESTS)
            .option("columnNameOfCorruptRecord", "broken")
            .option("maxFilesPerTrigger", self._order.most)
            # A file that is so much older than the newest one is not looked for any more, so Spark
            # need not remember it. `_finish` looks for all.
            .option("maxFileAge", "1h")
            # A batch that is handed out again may name manifests of chapters that are done.
            .option("ignoreMissingFiles", "true")
            .json(str(self._soak.announced.resolve()))
            .select("*", F.col("_metadata.file_name").alias("file"))
        )

        def on_batch(rows: DataFrame, _number: int) -> None:
            try:
                told = [row.asDict() for row in rows.collect()]
                found = [manifest_of(one, one["file"], self._soak.identity) for one in told]
                self._judge(judge, [one for one in found if one is not None])
            except BaseException as error:
                self._error = error
                # Py4J takes each Exception to the JVM, and leaves it waiting after all else.
                raise RuntimeError(type(error).__name__) from error

        return (
            manifests.writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", str(self._soak.checkpoint.resolve()))
            .trigger(processingTime="1 second")
            .start()
        )

    def _watch(self, query: StreamingQuery) -> None:
        """Wait until nothing more comes, and the stream has handed out all that it will."""
        quiet_since = time.monotonic()
        while not (query.awaitTermination(POLL_SECONDS) or self._stop.is_set()):  # type: ignore[arg-type]  # seconds may be a fraction
            status = query.status
            is_idle = not (status["isDataAvailable"] or status["isTriggerActive"])
            if is_idle:
                self._take_drops()
            now = time.monotonic()
            if not is_idle or not self._soak.is_over(until_over=self._order.until_over):
                quiet_since = now
            elif now - quiet_since > PATIENCE_SECONDS or not self._soak.waiting(self._log.is_done):
                return

    def _finish(self, judge: ChapterJudge) -> None:
        """Judge what the stream has passed over, and say of which windows nothing was announced."""
        paths = self._soak.waiting(self._log.is_done)
        waiting = [one for one in map(self._soak.read, paths) if one is not None]
        for at in range(0, len(waiting), self._order.most):
            self._judge(judge, waiting[at : at + self._order.most])
        self._take_drops()
        for window in self._soak.windows():
            if not self._log.is_done(window):
                never = Manifest(chapter=window, first=window)
                self._take(not_judged(never, NEVER, time.time()))

    # -- Chapters ----------------------------------------------------------------------------------

    def _judge(self, judge: ChapterJudge, manifests: Sequence[Manifest]) -> None:
        """Judge some chapters together, but those that were judged before: after a kill the stream
        hands them out again."""
        with self._lock:
            self._go_on()
            begun = time.monotonic()
            new = {one.chapter: one for one in manifests if not self._log.is_done(one.chapter)}
            verdicts = judge.judge([new[chapter] for chapter in sorted(new)])
            self._go_on()
            dropped = self._drops()
            for verdict in verdicts:
                # What was dropped while it waited here is told so, and not as one that is absent.
                gone = None if verdict.judged else dropped.get(verdict.chapter)
                self._take(gone or verdict)
            for verdict in dropped.values():
                self._take(verdict)
            if new:
                took = time.monotonic() - begun
                all_in_words = self._lines.in_words(self.counts)
                say(f"{len(new)} judged in {took:.0f}s; in all {all_in_words}")

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _take(self, verdict: ChapterVerdict) -> None:
        """Write a verdict, tell it, and remove what nobody needs any more. In this order: a kill
        leaves undone only what the next start can do."""
        if not self._log.is_done(verdict.chapter):
            alarms = self._log.add(verdict)
            self._lines.verdict(verdict, alarms, self._soak.directory(verdict.chapter))
        self._clear(verdict)
        self._soak.end(verdict.chapter)

    def _clear(self, verdict: ChapterVerdict) -> None:
        if verdict.is_through:
            shutil.rmtree(self._soak.directory(verdict.chapter), ignore_errors=True)

    def _drops(self) -> dict[int, ChapterVerdict]:
        """Return the chapters that were dropped meanwhile, and have no verdict yet."""
        now = time.time()
        return {
            manifest.chapter: not_judged(manifest, why, now)
            for manifest, why in self._soak.new_drops()
            if not self._log.is_done(manifest.chapter)
        }

    def _take_drops(self) -> None:
        with self._lock:
            for verdict in self._drops().values():
                self._take(verdict)

    # -- Signals -----------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Have the first SIGINT or SIGTERM end the loop, and the second one all. PySpark's own
        handler cancels all jobs at once: what they were for would look as if it had crashed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: FrameType | None) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()

        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
