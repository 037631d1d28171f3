"""A standalone cluster of Spark on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyspark

ROOT = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
HERE = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_DAEMON_MEMORY": "256m",
    # Its port would be the same for all masters of this machine.
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
}
SECONDS = 240.0
"""For what takes ten on a machine that has nothing else to do."""


def wait_for(is_so: Callable[[], Any], what: Callable[[], str]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := is_so()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
    return found


class Cluster:
    """A master and workers with one core each, on loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir()
        try:
            self._start("master", f"{DEPLOY}.master.Master", "--port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def add_worker(self) -> subprocess.Popen[bytes]:
        name = f"worker-{len(self._processes)}"
        words = ("--cores", "1", "--memory", "512m", "--work-dir", str(self._folder / name))
        worker = self._start(name, f"{DEPLOY}.worker.Worker", *words, self.url)
        self._said(name, r"(Successfully registered with master)")
        return worker

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [SPARK_CLASS, *words, "--host", "127.0.0.1", "--webui-port", "0"],
                env=HERE,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _said(self, name: str, pattern: str) -> str:
        log = self._log(name)
        found = wait_for(lambda: re.search(pattern, log.read_text()), log.read_text)
        return str(found[1])
