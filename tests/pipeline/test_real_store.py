"""`stormcast verify s3a://…` with a real server of S3: STORMCAST_S3 says where one is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from stormcast import verify as glue
from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.store import address_of
from tests.oracles.story import Story
from tests.pipeline.batch import write_run

ENDPOINT = os.environ.get("STORMCAST_S3", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ENDPOINT,
        reason="STORMCAST_S3 names no server of S3, as http://127.0.0.1:7070 (docs/testing.md)",
    ),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> fs.S3FileSystem:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ENDPOINT)
    scheme, host = address_of(ENDPOINT)
    return fs.S3FileSystem(
        scheme=scheme,
        endpoint_override=host,
        region=os.environ.get("AWS_REGION", "us-east-1"),
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )


@pytest.fixture
def bucket(server: fs.S3FileSystem) -> Iterator[str]:
    """A bucket of this test, which is removed with all that is in it."""
    name = f"stormcast-{uuid4().hex[:12]}"
    server.create_dir(name)
    yield name
    found = server.get_file_info(fs.FileSelector(name, recursive=True))
    # Files first, and the deepest folders: a store may refuse to remove one that is not empty.
    for one in sorted(found, key=lambda one: (one.is_file, one.path.count("/")), reverse=True):
        (server.delete_file if one.is_file else server.delete_dir)(one.path)
    server.delete_dir(name)


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Spark of all tests, in place of one of its own."""

    @contextmanager
    def ours(*_words: object, **_more: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "spark_session", ours)


@pytest.mark.usefixtures("here")
def test_runs_on_a_server_are_judged_as_they_are_in_a_directory(
    server: fs.S3FileSystem,
    bucket: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second time beside a path, and over the results of the first."""
    stories = {"sound": Story().a_clean_exchange()}
    stories["lossy"] = Story().a_clean_exchange().at(2.0).sends(6)
    for name, story in stories.items():
        run = write_run(story.told(), tmp_path / name)
        fs.copy_files(str(run), f"{bucket}/runs/{name}", destination_filesystem=server)
    urls = [f"s3a://{bucket}/runs/{name}" for name in stories]
    told = []
    for places in (urls, [urls[0], str(tmp_path / "lossy")]):
        assert glue.verify([*places, "--json"]) == Exit.VIOLATED
        out, err = capsys.readouterr()
        assert "not written" not in err
        told.append([json.loads(line) for line in out.splitlines()])
    for run in (one for each in told for one in each):
        run.pop("run")
    assert told[0] == told[1]

    found = server.get_file_info(fs.FileSelector(f"{bucket}/runs", recursive=True))
    files = {one.path.removeprefix(f"{bucket}/runs/") for one in found if one.is_file}
    for name in stories:
        for result in ("verify/verdict.json", "verify/metrics.json", "report.html", "parquet/of"):
            assert f"{name}/{result}" in files
    assert any(path.startswith("lossy/verify/violations/") for path in files)
    assert not any(path.startswith("sound/verify/violations/") for path in files)


@pytest.mark.parametrize(
    ("changes", "place", "code", "said"),
    [
        ({}, "{bucket}/runs/none", Exit.USAGE, "holds no traces"),
        ({}, "stormcast-no-such-bucket/x", Exit.USAGE, "has no bucket stormcast-no-such-bucket"),
        ({"AWS_SECRET_ACCESS_KEY": "d0-not-repeat"}, "{bucket}/x", Exit.USAGE, "must not be read"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "{bucket}/x", Exit.UNKNOWN, "no connection"),
    ],
)
def test_what_a_server_refuses_is_told_in_one_line_within_seconds(
    changes: dict[str, str],
    place: str,
    code: Exit,
    said: str,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "check_java", lambda: None)
    began = time.monotonic()
    with monkeypatch.context() as now:
        for name, value in changes.items():
            now.setenv(name, value)
        assert glue.verify([f"s3a://{place.format(bucket=bucket)}"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "d0-not-repeat" not in line
    assert time.monotonic() - began < 30
