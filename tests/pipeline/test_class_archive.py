"""Java's own archive: made by the first command, and mapped by the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stormcast.pipeline import session

COUNTS = """
from stormcast.pipeline import session
with session.spark_session("local[1]", rows=0) as spark:
    print(spark.range(3).count())
"""


def counted(**more: str) -> str:
    """What a command prints that counts three rows."""
    return subprocess.run(
        [sys.executable, "-c", COUNTS],
        env=os.environ | more,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def test_the_next_java_maps_what_the_first_one_has_written(tmp_path: Path) -> None:
    """And it says nothing of that where results are printed."""
    session.check_java()
    assert counted(XDG_CACHE_HOME=str(tmp_path)) == "3\n"
    (archive,) = (tmp_path / "stormcast").iterdir()
    assert archive.stat().st_size > 10 << 20

    seen = tmp_path / "classes"
    words = f"-Xlog:class+load:file={seen}"
    assert counted(XDG_CACHE_HOME=str(tmp_path), JDK_JAVA_OPTIONS=words) == "3\n"

    # Not those that were loaded, and never linked, as one so short leaves many.
    lines = seen.read_text().splitlines()
    mapped = [line for line in lines if line.endswith("shared objects file (top)")]
    assert len([line for line in mapped if "org.apache.spark" in line]) > 1000
