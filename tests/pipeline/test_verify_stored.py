"""`stormcast verify s3a://…`: runs in a store are judged as those in directories are."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import BufferReader, parquet
from pyspark.sql import SparkSession

from stormcast import verify as glue
from stormcast.exits import Exit
from stormcast.pipeline import cli, measure, session, stored_run
from stormcast.pipeline.evidence import digest_of
from stormcast.pipeline.store import Store
from tests.helpers.bucket import Bucket, refuses
from tests.oracles.story import Story
from tests.pipeline.batch import write_run

NETWORK = "AWS Error NETWORK_CONNECTION during ListObjectsV2: curlCode: 28, Timeout was reached; D"
DENIED = "AWS Error ACCESS_DENIED during PutObject operation: no"


def clean() -> dict[str, bytes]:
    return Story().a_clean_exchange().told()


def a_loss() -> dict[str, bytes]:
    return Story().a_clean_exchange().at(2.0).sends(6).told()


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket with a sound run, in place of the store of the environment; whatever comes of a
    test, nothing is left of what it has fetched."""
    made, temporary = Bucket(), tmp_path / "tmp"
    temporary.mkdir()
    made.take_in(write_run(clean(), tmp_path / "made/sound"), "bkt/runs/sound")
    monkeypatch.setattr(stored_run, "connect", lambda: Store(made, "test"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.chdir(tmp_path)
    yield made
    assert list(temporary.iterdir()) == []


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[cli.Order]:
    """What is asked of Spark, which judges nothing."""
    asked: list[cli.Order] = []

    def take(order: cli.Order) -> int:
        for task in order.tasks:
            assert task.question.traces.is_dir()
        asked.append(order)
        return 0

    monkeypatch.setattr(cli, "verify", take)
    return asked


@pytest.mark.usefixtures("bucket")
def test_urls_and_paths_are_judged_together(orders: list[cli.Order], tmp_path: Path) -> None:
    """Each by its name, or, where two have the same, by URL and path."""
    write_run(clean(), tmp_path / "here/sound")
    write_run(a_loss(), tmp_path / "lossy")
    assert glue.verify(["lossy", "s3://bkt/runs/sound/", "here/sound"]) == 0
    (order,) = orders
    assert [task.question.run for task in order.tasks] == [
        "lossy",
        "s3a://bkt/runs/sound",
        str(tmp_path / "here/sound"),
    ]
    assert [task.place for task in order.tasks] == [
        "lossy/verify",
        "s3a://bkt/runs/sound/verify",
        "here/sound/verify",
    ]
    about = order.tasks[1].question.about
    assert about["run"] == "s3a://bkt/runs/sound"
    assert about["evidence_digest"] == digest_of(tmp_path / "made/sound")


@pytest.mark.usefixtures("orders")
def test_parquet_goes_to_the_store_once_and_what_says_that_it_is_whole_comes_last(
    bucket: Bucket,
) -> None:
    bucket.store("bkt/runs/sound/parquet/of", b"others")
    bucket.store("bkt/runs/sound/parquet/n9.parquet", b"others")
    assert glue.verify(["s3a://bkt/runs/sound"]) == 0
    at = "bkt/runs/sound/parquet/"
    written = [f"put {at}{name}.parquet" for name in ("n0", "n1", "rig")]
    assert bucket.log == [f"remove {at}of", f"remove {at}n9.parquet", *written, f"put {at}of"]
    table = parquet.read_table(BufferReader(bucket.objects[f"{at}n0.parquet"]))
    assert table["run"][0].as_py() == "sound"

    bucket.log.clear()
    assert glue.verify(["s3a://bkt/runs/sound"]) == 0
    assert bucket.log == []


def test_with_out_nothing_is_written_to_the_store(
    bucket: Bucket, orders: list[cli.Order], tmp_path: Path
) -> None:
    assert glue.verify(["s3a://bkt/runs/sound", "--out", "out"]) == 0
    (task,) = orders[0].tasks
    assert (task.place, task.results) == ("out/sound", None)
    assert bucket.log == []
    assert (tmp_path / "out/sound").is_dir()


def test_what_was_changed_while_it_was_fetched_is_a_doubt_of_its_run(
    bucket: Bucket, orders: list[cli.Order]
) -> None:
    path = "bkt/runs/sound/trace/n0.trace"
    bucket.on("read", path, lambda: bucket.store(path, bucket.objects[path]))
    assert glue.verify(["s3a://bkt/runs/sound"]) == 0
    (task,) = orders[0].tasks
    assert task.question.doubts == ("it was changed while it was fetched: trace/n0.trace",)


@pytest.mark.usefixtures("orders")
def test_what_is_noted_of_a_trace_names_its_run_in_the_store(bucket: Bucket) -> None:
    """Parquet stays when the copy is gone."""
    path = "bkt/runs/sound/trace/n0.trace"
    bucket.store(path, bucket.objects[path][:-3])
    assert glue.verify(["s3a://bkt/runs/sound"]) == 0
    said = parquet.read_metadata(BufferReader(bucket.objects["bkt/runs/sound/parquet/n0.parquet"]))
    (note,) = json.loads(said.metadata[b"stormcast.notes"])
    assert note.startswith("s3a://bkt/runs/sound/trace/n0.trace: torn")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["s3a://bkt/runs/sound", "nowhere"], 2, "nowhere is no directory: name what"),
        (
            ["s3a://bkt/runs/sound", "s3://bkt/runs/sound/"],
            2,
            "s3a://bkt/runs/sound is named twice",
        ),
        (["s3a://bkt/runs/none"], 2, "s3a://bkt/runs/none holds no traces: name what"),
        (["s3a://bkt/broken"], 2, "s3a://bkt/broken/verdict.json is no JSON"),
        (["s3a://bkt/far"], 3, "no connection with test (Timeout was reached): see AWS_ENDPOINT_"),
        (
            ["s3a://bkt/shut"],
            2,
            "s3a://bkt/shut/parquet/rig.parquet must not be written (ACCESS_DEN",
        ),
        (["s3a://bkt/runs/sound", "--master", "spark://h:1"], 2, "name storage that all its hosts"),
    ],
)
def test_what_cannot_be_judged_is_told_in_one_line(
    words: list[str],
    code: int,
    said: str,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "verify", lambda _order: pytest.fail("Spark was started"))
    for name in ("broken", "shut"):
        bucket.take_in(tmp_path / "made/sound", f"bkt/{name}")
    bucket.store("bkt/broken/verdict.json", b"{half")
    bucket.on("list", "bkt/far", refuses(NETWORK))
    bucket.on("write", "bkt/shut/parquet/rig.parquet", refuses(DENIED))
    assert glue.verify(words) == code
    told = capsys.readouterr().err.splitlines()
    refusals = [line for line in told if "fetching" not in line and "exporting" not in line]
    assert len(refusals) == 1
    assert said in refusals[0]
    assert "nowhere" not in words or told == refusals, "nothing is fetched before"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["s3a://bkt"], "argument RUN: s3a://bkt is a bucket: name a run in it"),
        (["x", "--out", "s3a://bkt/out"], "argument --out: it is a directory; the results"),
        (["x", "--tables", "s3a://bkt/t"], "argument --tables: it is a directory"),
    ],
)
def test_a_url_where_none_can_be_is_a_mistake_of_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        glue.verify(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_ctrl_c_leaves_nothing(bucket: Bucket) -> None:
    """Neither here, where the fixture looks, nor in the store."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    before = dict(bucket.objects)
    bucket.on("read", "bkt/runs/sound/trace/n1.trace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        glue.verify(["s3a://bkt/runs/sound"])
    assert bucket.objects == before


# -- With Spark ------------------------------------------------------------------------------------


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Spark of all tests, in place of one of its own."""

    @contextmanager
    def ours(*_words: object, **_more: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "spark_session", ours)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_results_lie_beside_each_run_the_verdicts_before_anything_is_measured(
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What an older judgement left there is gone; where the copy lay, nothing says. A run that was
    changed meanwhile is unknown, whatever its traces say."""
    bucket.take_in(write_run(a_loss(), tmp_path / "made/lossy"), "bkt/runs/lossy")
    bucket.take_in(tmp_path / "made/sound", "bkt/runs/moved")
    moved = "bkt/runs/moved/trace/n0.trace"
    bucket.on("read", moved, lambda: bucket.store(moved, bucket.objects[moved]))
    for older in ("metrics.json", "verdict.json", "violations/old.parquet"):
        bucket.store(f"bkt/runs/moved/verify/{older}", b"old")
    kept_then: list[set[str]] = []
    whole = measure.measure_runs

    def measuring(*words: Any) -> Any:
        kept_then.append({path for path in bucket.objects if "/verify/" in path})
        return whole(*words)

    monkeypatch.setattr(measure, "measure_runs", measuring)
    names = ("sound", "lossy", "moved")
    assert glue.verify([f"s3a://bkt/runs/{name}" for name in names] + ["--json"]) == Exit.VIOLATED

    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["verdict"] for one in told] == ["holds", "violated", "unknown"]
    assert told[2]["findings"][0]["detail"] == (
        "it was changed while it was fetched: trace/n0.trace"
    )
    for name, one in zip(names, told, strict=True):
        assert json.loads(bucket.objects[f"bkt/runs/{name}/verify/verdict.json"]) == one
        assert one["run"] == f"s3a://bkt/runs/{name}"
        assert f"bkt/runs/{name}/verify/verdict.json" in kept_then[0]
        page = bucket.objects[f"bkt/runs/{name}/report.html"].decode()
        assert f"s3a://bkt/runs/{name}; below, a copy in {name}" in page
        assert f"stormcast trace cat {name}<" in page
    assert bucket.below("bkt/runs/sound/verify") == {"verdict.json", "metrics.json"}
    assert bucket.below("bkt/runs/moved/verify") == {"verdict.json"}
    lossy = bucket.below("bkt/runs/lossy/verify")
    assert {"verdict.json", "metrics.json"} < lossy
    assert any(name.startswith("violations/") for name in lossy)
    assert not [path for path, data in bucket.objects.items() if str(tmp_path).encode() in data]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "what",
    [
        "verify/verdict.json",
        pytest.param("verify/metrics.json", marks=pytest.mark.long),
        "report.html",
    ],
)
def test_what_cannot_be_put_into_the_store_is_one_line_and_the_verdict_is_told(
    what: str, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.on("write", f"bkt/runs/sound/{what}", refuses(DENIED))
    is_verdict = what == "verify/verdict.json"
    assert glue.verify(["s3a://bkt/runs/sound"]) == (Exit.UNKNOWN if is_verdict else Exit.HOLDS)
    out, err = capsys.readouterr()
    assert "sound: holds" in out
    refused = f"s3a://bkt/runs/sound/{what} must not be written (ACCESS_DENIED)"
    assert refused in (out if is_verdict else err)
    assert ("written to s3a://bkt/runs/sound/verify" in out) is not is_verdict
