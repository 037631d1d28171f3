"""Runs in an object store: what is fetched of them, what is refused, and what is said."""

from __future__ import annotations

import errno
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from stormcast.pipeline import stored_run
from stormcast.pipeline.evidence import digest_of
from stormcast.pipeline.questions import CannotError, VerifyError
from stormcast.pipeline.store import Store, Url, address_of, connect, read_url
from stormcast.pipeline.stored_run import Fetched, StoredRun, fetch, scratch
from tests.helpers.bucket import Bucket, refuses
from tests.oracles.story import Story
from tests.pipeline.batch import export_run, write_run

URL = Url("b", "runs/x")
HIDDEN = "d0-not-repeat"


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A bucket with a run, as `stormcast run` and others leave it."""
    run = write_run(Story().a_clean_exchange().told(), tmp_path / "run")
    for name in ("scenario.yaml", "seed", "verdict.json", "plan.txt", "trace/note", "parquet/of"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(f"{name}\n")
    journal = run / "trace/n7-1"
    journal.mkdir()
    (journal / "000001.trace").write_bytes(b"segment")
    made = Bucket()
    made.take_in(run, "b/runs/x")
    for other in ("verify/verdict.json", "parquet/n0.parquet", "verify/violations/a.parquet"):
        made.store(f"b/runs/x/{other}", b"old")
    return made


@pytest.fixture
def fetched(bucket: Bucket, tmp_path: Path) -> Callable[[], StoredRun]:
    return lambda: fetch(Store(bucket, "test"), URL, tmp_path / "0/x", lambda _text: None)


def below(directory: Path) -> set[str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix() for path in files}


# -- Names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3a://b-1.x/runs/x", Url("b-1.x", "runs/x")),
        ("s3://bucket/x/", Url("bucket", "x")),
        ("s3a:/bucket/x", None),
        ("runs/latest", None),
        ("https://bucket/x", None),
    ],
)
def test_a_url_names_bucket_and_run(text: str, url: Url | None) -> None:
    assert read_url(text) == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3a://bucket", "is a bucket: name a run in it, s3a://bucket/PATH"),
        ("s3://bucket//", "is a bucket"),
        ("s3a://bucket/a//x", "a part of its path is empty"),
        ("s3a://bucket/../x", "'..' or odd"),
        ("s3a://bucket/x\x1b[2J", "odd"),
        (f"s3a://bucket/{'x' * 201}", "odd"),
        (f"s3a://key:{HIDDEN}@bucket/x", r"read from the environment \(AWS_ENDPOINT_URL, AWS_ACC"),
        (f"s3a://bucket/x?secret_key={HIDDEN}", "without '@'"),
        (f"s3a://bucket/x#{HIDDEN}", "without '@'"),
    ],
)
def test_a_url_that_names_no_run_is_refused_and_a_secret_in_it_not_repeated(
    text: str, why: str
) -> None:
    with pytest.raises(VerifyError, match=why) as told:
        read_url(text)
    assert HIDDEN not in str(told.value)


# -- The connection --------------------------------------------------------------------------------


def test_endpoint_and_region_are_of_the_environment_and_credentials_stay_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pyarrow reads them itself. What does not answer is given up within seconds."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(fs, "S3FileSystem", lambda **words: made.append(words))
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", HIDDEN)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")
    connect()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://store.example")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    connect()
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    connect()

    assert [
        (words.get("scheme"), words.get("endpoint_override"), words.get("region")) for words in made
    ] == [
        ("http", "127.0.0.1:9000", "us-east-1"),
        ("https", "store.example", "eu-west-1"),
        (None, None, None),
    ]
    for words in made:
        assert words["connect_timeout"] <= 3
        assert words["request_timeout"] <= 5
        assert words["retry_strategy"].max_attempts == 2
        assert HIDDEN not in str(words)


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:9000",
        f"http://me:{HIDDEN}@host",
        f"http://host/?k={HIDDEN}",
        "http://[",
        "ftp://h",
    ],
)
def test_an_endpoint_that_is_none_is_refused_and_not_repeated(endpoint: str) -> None:
    with pytest.raises(VerifyError, match="AWS_ENDPOINT_URL must be a URL such as http") as told:
        address_of(endpoint)
    assert HIDDEN not in str(told.value)


def test_without_pyarrow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CannotError, match=r"needs pyarrow: pip install 'stormcast\[verify\]'"):
        connect()


LISTING = "When listing objects under key 'runs/x/' in bucket 'b': AWS Error "


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        ("NO_SUCH_BUCKET during ListObjectsV2: gone", VerifyError, "test has no bucket b"),
        ("ACCESS_DENIED during ListObjectsV2: no", VerifyError, r"must not be read \(ACCESS_DEN"),
        (
            "UNKNOWN (HTTP status 400) during X: Unable to parse ExceptionName: ExpiredToken M: x",
            VerifyError,
            r"must not be read \(ExpiredToken\): see AWS_ACCESS_KEY_ID",
        ),
        ("UNKNOWN (HTTP status 403) during X: y", VerifyError, r"must not be read \(UNKNOWN\)"),
        (
            "UNKNOWN (HTTP status 301) during X: ExceptionName: PermanentRedirect Message: x",
            VerifyError,
            r"cannot be read \(PermanentRedirect, HTTP status 301\): .*, AWS_REGION, AWS_ACC",
        ),
        (
            "NETWORK_CONNECTION during X: curlCode: 7, Could not connect to server; Details: x",
            CannotError,
            r"no connection with test \(Could not connect to server\): see AWS_ENDPOINT_URL",
        ),
    ],
)
def test_what_the_store_refuses_is_told_in_one_line_of_ours(
    said: str,
    kind: type[VerifyError],
    why: str,
    bucket: Bucket,
    fetched: Callable[[], StoredRun],
) -> None:
    """A text of the store is not repeated: it may hold anything."""
    bucket.on("list", "b/runs/x", refuses(f"{LISTING}{said} {HIDDEN}\x1b[2J\nG1 holds"))
    with pytest.raises(VerifyError, match=why) as told:
        fetched()
    assert type(told.value) is kind
    assert str(told.value).startswith("s3a://b/runs/x")
    assert HIDDEN not in str(told.value)
    assert str(told.value).isprintable()


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_what_is_no_store_is_told(
    kind: type[Exception], bucket: Bucket, fetched: Callable[[], StoredRun]
) -> None:
    bucket.on("read", "b/runs/x/seed", refuses("unexpected end of XML", kind))
    with pytest.raises(
        VerifyError, match=r"x/seed cannot be read: AWS_ENDPOINT_URL names no store"
    ):
        fetched()


def test_who_may_not_write_is_told_of_another_place(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    bucket.on("write", "b/f", refuses("AWS Error ACCESS_DENIED during PutObject: no"))
    with pytest.raises(VerifyError, match=r"s3a://b/f must not be written .* with --out"):
        Store(bucket, "test").put(tmp_path / "f", "b/f")


# -- What is fetched -------------------------------------------------------------------------------


def test_what_a_verdict_is_made_from_is_fetched_and_no_more(
    fetched: Callable[[], StoredRun], tmp_path: Path
) -> None:
    """To the byte: the digest is that of the run. Parquet is made anew of traces."""
    run = fetched()
    assert run.doubts == ()
    assert below(run.directory) == {
        "scenario.yaml",
        "seed",
        "verdict.json",
        "parquet/of",
        "trace/n0.trace",
        "trace/n1.trace",
        "trace/rig.trace",
        "trace/n7-1/000001.trace",
    }
    assert digest_of(run.directory) == digest_of(tmp_path / "run")


def test_parquet_is_fetched_where_there_are_no_traces(tmp_path: Path) -> None:
    run, bucket = write_run(Story().a_clean_exchange().told(), tmp_path / "run"), Bucket()
    export_run(run)
    shutil.rmtree(run / "trace")
    bucket.take_in(run, "b/runs/x")
    told = fetch(Store(bucket, "test"), URL, tmp_path / "x", lambda _text: None)
    assert below(told.directory) == below(run)


@pytest.mark.parametrize("key", ["runs/y", "runs", "runs/x/parquet/of"])
def test_where_no_run_lies_that_is_said(key: str, bucket: Bucket, tmp_path: Path) -> None:
    for path in [path for path in bucket.objects if path.endswith(".trace")]:
        if key == "runs":
            bucket.objects[path.replace("/x/", "/x/y/z/")] = bucket.objects.pop(path)
            bucket.changed[path.replace("/x/", "/x/y/z/")] = 1
    with pytest.raises(VerifyError, match="holds no traces: name what stormcast run has left"):
        fetch(Store(bucket, "test"), Url("b", key), tmp_path / "0", lambda _text: None)
    assert not (tmp_path / "0").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../escaped.trace",
        "trace/../../escaped.trace",
        "/escaped.trace",
        "trace//escaped.trace",
        "trace/bell\x07.trace",
        f"trace/{'n' * 250}.trace",
    ],
)
def test_a_name_that_no_run_has_is_not_followed_and_makes_the_run_unknown(
    name: str, bucket: Bucket, fetched: Callable[[], StoredRun], tmp_path: Path
) -> None:
    before = below(tmp_path)
    bucket.store(f"b/runs/x/{name}", b"theirs")
    run = fetched()
    (doubt,) = run.doubts
    assert doubt.startswith("not fetched, because of names that no run has: ")
    assert doubt.isprintable()
    assert len(doubt) < 200
    assert not any((tmp_path / each).read_bytes() == b"theirs" for each in below(tmp_path) - before)


def test_a_file_and_a_folder_of_one_name_make_the_run_unknown(
    bucket: Bucket, fetched: Callable[[], StoredRun]
) -> None:
    bucket.store("b/runs/x/n0.trace", b"file")
    bucket.store("b/runs/x/n0.trace/000001.trace", b"folder")
    assert fetched().doubts == (
        "not fetched, because of names that no run has: n0.trace/000001.trace",
    )


@pytest.mark.parametrize("change", ["other", "longer", "shorter", "gone", "new"])
def test_a_run_that_is_changed_while_it_is_fetched_is_known_for_it(
    change: str, bucket: Bucket, fetched: Callable[[], StoredRun]
) -> None:
    """By what was listed before and after; whether it is read before or after the change."""
    path = "b/runs/x/trace/n1.trace"
    content = bucket.objects[path]
    deeds: dict[str, Callable[[], object]] = {
        "other": lambda: bucket.store(path, content[::-1]),
        "longer": lambda: bucket.store(path, content + b"x"),
        "shorter": lambda: bucket.store(path, content[:-1]),
        "gone": lambda: bucket.objects.pop(path),
        "new": lambda: bucket.store("b/runs/x/trace/n2.trace", content),
    }
    bucket.on("read", path, deeds[change])
    name = "trace/n2.trace" if change == "new" else "trace/n1.trace"
    assert fetched().doubts == (f"it was changed while it was fetched: {name}",)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_file_of_another_size_than_is_listed_is_not_whole(
    by: int, bucket: Bucket, fetched: Callable[[], StoredRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else shows it. No more is read than to know that."""
    monkeypatch.setattr("stormcast.pipeline.store.CHUNK", 16)
    path = "b/runs/x/trace/n1.trace"
    listed = bucket.sizes[path] = len(bucket.objects[path]) + by
    bucket.objects[path] += b"x" * 1000 if by < 0 else b""
    run = fetched()
    assert run.doubts == ("it was changed while it was fetched: trace/n1.trace",)
    assert (run.directory / "trace/n1.trace").stat().st_size <= listed + 16


@pytest.mark.parametrize("what", ["FOLDERS", "FILES"])
def test_a_run_is_bounded(
    what: str, fetched: Callable[[], StoredRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds at the limit, and is refused just past it: x, trace, n7-1, parquet, verify and
    violations; and its four traces, three named files, and two of Parquet."""
    limit = {"FOLDERS": 6, "FILES": 9}[what]
    monkeypatch.setattr(stored_run, f"MOST_{what}", limit)
    shutil.rmtree(fetched().directory)
    monkeypatch.setattr(stored_run, f"MOST_{what}", limit - 1)
    with pytest.raises(VerifyError, match="as no run does: name one run in it"):
        fetched()


def test_a_run_for_which_there_is_no_room_is_not_fetched(
    bucket: Bucket, fetched: Callable[[], StoredRun], tmp_path: Path
) -> None:
    bucket.sizes["b/runs/x/trace/n1.trace"] = 1 << 60
    with pytest.raises(CannotError, match=r"takes [\d,.]+ MiB to be judged, .* with TMPDIR"):
        fetched()
    assert below(tmp_path / "0") == set()


def test_a_disk_that_fills_up_meanwhile_is_told(
    fetched: Callable[[], StoredRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_words: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "a copy")

    monkeypatch.setattr(Store, "fetch", full)
    with pytest.raises(CannotError, match=r"x cannot be fetched to .*: No space left on device: "):
        fetched()


# -- Where it is fetched to ------------------------------------------------------------------------


def test_a_cluster_must_see_what_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="with --tables DIR"), scratch(None, is_local=False):
        pass
    with scratch(tmp_path / "shared", is_local=False) as folder:
        assert folder.parent == tmp_path / "shared"
        assert folder.stat().st_mode & 0o777 == 0o755
    with scratch(tmp_path / "shared", is_local=True) as folder:
        assert folder.parent != tmp_path / "shared"
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CannotError, match=r"--tables .*file: "),
        scratch(tmp_path / "file", is_local=False),
    ):
        pass


def test_texts_name_runs_as_they_were_asked_for(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_run, "connect", lambda: Store(bucket, "test"))
    fetched, told = Fetched(), []
    (directory,) = fetched.fetch([URL], tmp_path / "s", told.append)
    assert directory.name == "x"
    assert fetched.named(f"{directory}/seed is odd") == "s3a://b/runs/x/seed is odd"
    assert re.fullmatch(r"fetching s3a://b/runs/x: 8 files, 0\.\d MiB", *told)
    results = fetched.results(directory)
    assert results is not None
    assert results.place(directory / "verify") == "s3a://b/runs/x/verify"
    assert fetched.results(tmp_path) is None
