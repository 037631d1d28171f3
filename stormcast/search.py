"""`stormcast search`: with --master its tasks go to Spark.

This is glue: the rig knows nothing of Spark, and the pipeline nothing of seeds.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.campaigns.search import Engine, SearchError
from stormcast.chaos.commands import search as command
from stormcast.chaos.commands.output import say
from stormcast.node.core.errors import ConfigError

WHO: Final = "search --master"
REMEDY: Final = (
    ": install on each worker the version of stormcast that is here, or send it with --py-files"
)


def search(argv: list[str]) -> int:
    """Search on this machine, or on Spark."""
    return command.search(argv, _on_spark)


def _on_spark(args: Namespace) -> AbstractContextManager[Engine]:
    """An engine that is not started yet; what it lacks is said before anything is written."""
    # Where the rig alone is installed, searches run without it.
    try:
        from stormcast.pipeline import session  # noqa: PLC0415 only where it is asked for
    except ImportError as error:
        raise Unsupported(f"{WHO} needs the pipeline of stormcast: {error}") from None
    from stormcast.pipeline.questions import CannotError  # noqa: PLC0415 as above

    try:
        session.check_pyspark(WHO)
        session.check_java(WHO)
    except CannotError as error:
        raise Unsupported(str(error)) from None
    for package in args.py_files:
        if not package.is_file():
            raise ConfigError(f"--py-files {package} is no file")
    return _tasks(args, dict(args.conf))


@contextmanager
def _tasks(args: Namespace, more: dict[str, str]) -> Iterator[Engine]:
    from stormcast.pipeline.questions import CannotError  # noqa: PLC0415 only where it is asked for
    from stormcast.pipeline.tasks import spark_tasks  # noqa: PLC0415 as above

    try:
        with spark_tasks(args.master, WHO, more=more, packages=args.py_files, say=say) as tasks:
            yield tasks
    except CannotError as error:
        remedy = REMEDY if "ModuleNotFoundError" in str(error) else ""
        raise SearchError(f"{error}{remedy}") from error
