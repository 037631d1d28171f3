"""`stormcast executor`: an executor of Spark, in a pod that a driver has started for it.

Spark on Kubernetes starts the image of an executor with this one word, and tells it all else by
variables. There is nothing for a person to call.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
MEMORY: Final = "SPARK_EXECUTOR_MEMORY"
JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
"""Numbered from 0 on."""
TOLD: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Arguments of the backend, and the variables that the driver sets for them."""


def executor(argv: Sequence[str]) -> int:
    """Become the process that runs the driver's tasks."""
    argparse.ArgumentParser(
        prog="stormcast executor",
        description="Run tasks of Spark, in a pod that Spark's driver has started with the one "
        "word `executor`; the driver says all else by variables.",
        allow_abbrev=False,
    ).parse_args(argv)
    try:
        session.check_pyspark("executor")
        session.check_java("executor")
        words = command(os.environ, _spark_home())
    except CannotError as error:
        print(f"stormcast executor: {error}", file=sys.stderr)
        return Exit.USAGE
    return os.execv(words[0], words)  # noqa: S606 Java, by the words above


def command(variables: Mapping[str, str], home: Path) -> list[str]:
    """Return the words that start Java; CannotError where a variable is missing."""
    missing = [name for name in (MEMORY, *TOLD.values()) if not variables.get(name)]
    if missing:
        raise CannotError(f"Spark starts this in its pods, and sets {', '.join(missing)}")
    memory = variables[MEMORY]
    jars = ":".join(filter(None, (f"{home}/jars/*", variables.get("SPARK_CLASSPATH"))))
    told = [word for flag, name in TOLD.items() for word in (flag, variables[name])]
    return [
        _java(variables), *_java_options(variables), f"-Xms{memory}", f"-Xmx{memory}",
        "-cp", jars, BACKEND, *told,
    ]  # fmt: skip  # one command


def _java_options(variables: Mapping[str, str]) -> list[str]:
    names = (f"{JAVA_OPTION}{number}" for number in count())
    options = []
    while (name := next(names)) in variables:
        options.append(variables[name])
    return options


def _java(variables: Mapping[str, str]) -> str:
    home = variables.get("JAVA_HOME")
    return f"{home}/bin/java" if home else str(shutil.which("java"))


def _spark_home() -> Path:
    import pyspark  # noqa: PLC0415 only where it is there

    return Path(pyspark.__file__).parent
