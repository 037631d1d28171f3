"""`stormcast verify` from end to end, and what it says where it cannot."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest
from pyarrow import parquet
from xxhash import xxh3_64_intdigest as hash64

from stormcast import verify as glue
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.exits import Exit
from stormcast.findings import Finding, Verdict
from stormcast.node import trace
from stormcast.node.core.names import printable
from stormcast.node.trace.export import export
from stormcast.node.trace.files import find_sources
from stormcast.node.trace.tracer import Tracer
from stormcast.pipeline import cli, session
from stormcast.pipeline.evidence import digest_of
from stormcast.pipeline.findings import SPARK
from stormcast.pipeline.judgement import Figures, Judgement
from stormcast.pipeline.questions import CannotError, Question, VerifyError
from stormcast.pipeline.report.run_files import read_run
from stormcast.pipeline.report.run_report import run_report
from tests.oracles.story import Story
from tests.pipeline.batch import write_run

SLOW = """
name: slow
guarantees: [G1]
cluster: {members: 2, settings: {window_messages: 10}}
workload:
  - {do: unicast, from: n0, to: n1, count: 100, rate: 100/s, size: 16B}
timeline:
  - {at: 100ms, do: cut, from: n0, to: n1, for: 1800ms}
limits: {run: LIMIT, settle: 5s}
"""


def _verify(*words: str | Path) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "stormcast", "verify", *map(str, words)]
    return run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for Spark here made a mistake."""
    monkeypatch.setattr(cli, "verify", lambda _order: pytest.fail("Spark was started"))


@pytest.fixture
def is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java and PySpark, whatever is installed."""
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setattr(session, "check_pyspark", lambda: None)


@pytest.mark.usefixtures("is_here")
@pytest.mark.parametrize("place", ["run", "out"])
def test_of_two_that_verify_into_one_directory_the_second_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would remove what the other has exported and written."""
    for folder in ("run", "other/run"):
        (tmp_path / folder).mkdir(parents=True)
    first, second = "run", "run" if place == "run" else "other/run"
    out = [] if place == "run" else ["--out", "out"]
    codes: list[int] = []

    def meanwhile(_order: cli.Order) -> int:
        if not codes:
            codes.append(-1)
            codes.append(glue.verify([second, *out]))
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(glue, "_question", lambda _run, **_more: None)
    monkeypatch.setattr(cli, "verify", meanwhile)
    assert glue.verify([first, *out]) == 0
    assert codes == [-1, Exit.USAGE]
    said = capsys.readouterr().err.splitlines()
    directory = "run" if place == "run" else "out/run"
    assert len(said) == 1
    assert re.fullmatch(
        rf"stormcast verify: another stormcast verify writes to {directory} "
        rf"\((process {os.getpid()}|another process)\): wait for it, or end it",
        said[0],
    )
    assert glue.verify([second, *out]) == 0, "it is free again"


@pytest.mark.usefixtures("nothing_started")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere is no directory: name what stormcast run has left"),
        (["empty"], "empty holds no traces: name what stormcast run has left"),
        (["run", "run"], "run is named twice"),
        (["broken"], "verdict.json is no JSON"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "check_java", lambda: None)
    (tmp_path / "empty").mkdir()
    write_run(Story().a_clean_exchange().told(), tmp_path / "run")
    write_run(Story().a_clean_exchange().told(), tmp_path / "broken")
    (tmp_path / "broken/verdict.json").write_text("{half")

    assert glue.verify(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


@pytest.mark.usefixtures("nothing_started")
def test_without_a_java_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert glue.verify(["anything"]) == 3
    assert capsys.readouterr().err == (
        "stormcast verify: verify needs a Java runtime, 17 or newer: "
        "install one (apt-get install openjdk-17-jre-headless), or set JAVA_HOME\n"
    )


def test_an_old_java_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(CannotError, match=r"needs Java 17 or newer, and .*java is 11"):
        session.check_java()


def test_a_java_is_asked_once_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command asks early, and once more as Spark starts: to ask takes a second each time."""
    java, asked = tmp_path / "bin/java", tmp_path / "asked"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho once >>'{asked}'\necho 'openjdk version \"17.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    session.check_java()
    session.check_java("search")
    assert asked.read_text() == "once\n"


def test_without_pyspark_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(CannotError, match=r"pip install 'stormcast\[verify\]'"):
        session.check_pyspark()


def test_the_link_to_the_latest_run_is_no_second_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "latest").symlink_to("b")
    assert [run.name for run in glue._named(sorted(tmp_path.iterdir()))] == ["a", "b"]
    assert [run.name for run in glue._named([tmp_path / "latest"])] == ["b"]


def test_a_run_is_the_one_that_the_link_led_to_whatever_begins_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    link = tmp_path / "runs/latest"
    link.symlink_to("a")
    monkeypatch.chdir(tmp_path)
    (run_,) = glue._named([Path("runs/latest")])

    link.unlink()
    link.symlink_to("b")

    assert (run_.path, run_.name) == (Path("runs/a"), "a")


def test_two_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [write_run(Story().told(), tmp_path / way / "run") for way in ("udp", "tcp")]

    runs = glue._named(paths)
    assert [each.name for each in runs] == [str(path) for path in paths]


@pytest.mark.parametrize(("limit", "is_complete"), [("20s", True), ("2s", False)])
def test_a_run_that_was_too_short_for_its_load_is_known_for_it(
    limit: str, *, is_complete: bool, tmp_path: Path
) -> None:
    """As the runner leaves it: what was held up until 1.9 s has not arrived at 2 s."""
    scenario = parse_scenario(SLOW.replace("LIMIT", limit))
    run_scenario(scenario, 1, out=tmp_path / "run")

    (run_,) = glue._named([tmp_path / "run"])
    assert glue._question(run_).is_complete is is_complete


def test_parquet_is_made_anew_of_other_traces_however_old_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(Story().a_clean_exchange().told(), tmp_path / "run")
    (run_,) = glue._named([path])

    exported = glue._question(run_).traces
    assert parquet.read_table(exported / "n0.parquet")["run"][0].as_py() == "run"
    capsys.readouterr()
    os.utime(path / "trace/n0.trace")
    glue._question(run_)
    assert capsys.readouterr().err == ""

    other = write_run(Story().a_clean_exchange().at(2.0).sends(6).told(), tmp_path / "other")
    (other / "trace/n0.trace").replace(path / "trace/n0.trace")
    os.utime(path / "trace/n0.trace", (1.0, 1.0))
    glue._question(run_)
    assert "exporting" in capsys.readouterr().err


def test_parquet_is_made_anew_by_other_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older exporter may have left out what a check needs today."""
    (run_,) = glue._named([write_run(Story().a_clean_exchange().told(), tmp_path / "run")])
    glue._question(run_)
    capsys.readouterr()
    glue._question(run_)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(glue, "versions", lambda: {"code": "other"})
    glue._question(run_)
    assert "exporting" in capsys.readouterr().err


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """What a run has left, with its verdict."""
    run_scenario(parse_scenario(SLOW.replace("LIMIT", "20s")), 1, out=tmp_path / "run")
    return tmp_path / "run"


def test_the_rig_the_pipeline_and_a_shell_name_one_digest(ran: Path) -> None:
    words = "LC_ALL=C; sha256sum scenario.yaml seed trace/*.trace | sha256sum"
    (by_hand, _dash) = run(
        ["/bin/sh", "-c", words], cwd=ran, capture_output=True, text=True, check=True
    ).stdout.split()
    said = json.loads((ran / "verdict.json").read_text())["evidence_digest"]
    assert said == digest_of(ran) == by_hand


@pytest.mark.parametrize("name", ["scenario.yaml", "seed", "trace/n0-1.trace"])
def test_a_verdict_is_not_believed_beside_what_it_was_not_made_from(
    name: str, ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by Spark, which then says so itself, nor by a report."""
    (run_,) = glue._named([ran])
    question = glue._question(run_)
    assert question.about["evidence_digest"] == digest_of(ran)
    assert {str(told.verdict) for told in question.own} == {"holds"}
    assert read_run(ran).verdict.verdict == "holds"

    with (ran / name).open("ab") as file:
        file.write(b"\n")
    capsys.readouterr()
    question = glue._question(run_)
    (told,) = question.own
    assert (told.guarantee, str(told.verdict)) == ("run", "unknown")
    assert "was made from other traces" in told.detail
    assert "was made from other traces" in capsys.readouterr().err

    kept = read_run(ran)
    assert kept.verdict.verdict == "unknown"
    assert "was made from other traces" in run_report(kept)


@pytest.mark.parametrize("is_other", [False, True])
def test_of_a_run_without_a_verdict_of_its_own_nobody_knows_its_end(
    ran: Path, *, is_other: bool
) -> None:
    """It was killed before it was judged, or its traces are others: what is missing might have
    come."""
    if is_other:
        with (ran / "seed").open("ab") as file:
            file.write(b"\n")
    else:
        (ran / "verdict.json").unlink()
    (run_,) = glue._named([ran])
    question = glue._question(run_)
    assert (question.is_complete, question.is_interrupted) == (False, True)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"findings": []}',
        '{"verdict": "holds", "findings": null}',
        '{"verdict": "holds", "findings": ["G1"]}',
    ],
)
def test_what_is_no_verdict_is_refused(ran: Path, text: str) -> None:
    (ran / "verdict.json").write_text(text)
    with pytest.raises(VerifyError, match=r"verdict\.json is no verdict: run it again"):
        glue._question(*glue._named([ran]))


@pytest.mark.parametrize("said", ["violated", "unknown"])
def test_a_verdict_that_is_worse_than_its_findings_is_told(ran: Path, said: str) -> None:
    """Somebody has removed them."""
    own = json.loads((ran / "verdict.json").read_text())
    (ran / "verdict.json").write_text(json.dumps({**own, "verdict": said}))
    told = glue._question(*glue._named([ran])).own[-1]
    assert (told.guarantee, str(told.verdict), told.by) == ("run", said, "run")
    assert "no finding in it says why" in told.detail


def test_what_spark_found_in_other_traces_is_no_second_judge(ran: Path) -> None:
    """As a directory looks in which a run was written over another that was verified."""
    own = json.loads((ran / "verdict.json").read_text())
    (ran / "verify").mkdir()
    spark = ran / "verify" / "verdict.json"
    spark.write_text(json.dumps(own))
    assert read_run(ran).is_verified

    spark.write_text(json.dumps({**own, "evidence_digest": "0" * 64}))
    kept = read_run(ran)
    assert (kept.is_verified, kept.verdict.verdict) == (False, "holds")
    page = run_report(kept)
    assert "The verdict of Spark was made from other traces" in page
    assert "Two judges agree" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_runs_are_verified_in_one_go_and_the_worst_is_the_exit_code(tmp_path: Path) -> None:
    sound = write_run(Story().a_clean_exchange().told(), tmp_path / "sound")
    lossy = write_run(Story().a_clean_exchange().at(2.0).sends(6).told(), tmp_path / "lossy")
    (lossy / "verdict.json").write_text('{"verdict": "holds", "findings": [], "seed": 7}\n')

    done = _verify(sound, lossy, "--json")
    assert done.returncode == 1, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["verdict"], second["verdict"]) == ("holds", "violated")
    assert second["findings"][0]["witness"] == ["n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6"]
    assert (second["seed"], second["scenario"], second["messages"]) == (7, "lossy", 6)
    # Progress and nothing else; the run's own verdict is not touched.
    assert all(line.startswith("stormcast verify: ") for line in done.stderr.splitlines())
    assert json.loads((lossy / "verdict.json").read_text())["verdict"] == "holds"

    kept = lossy / "verify"
    assert json.loads((kept / "verdict.json").read_text()) == second
    (violation,) = parquet.read_table(kept / "violations").to_pylist()
    assert (violation["guarantee"], violation["member"], violation["position"]) == ("G1", "n0", 4)
    assert (lossy / "report.html").exists() or (kept / "report.html").exists()


# -- Names and texts from outside ----------------------------------------------------------------

EVIL = "n0\x1b]0;mine\x07\x1b[2J\nG1  holds\r\x9b31m\u202e"
"""A name that would clear a terminal, and make a line of its own."""


def test_a_witness_is_shown_as_plain_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever names and texts of a trace hold: one line stays one line, and rings no bell."""
    detail, witness = f"{EVIL} got it twice", (f"{EVIL}#1", EVIL)
    finding = Finding("G2", Verdict.VIOLATED, detail, witness, by=SPARK)
    question = Question(run=EVIL, traces=tmp_path)
    judgement = Judgement(
        question=question,
        findings=(finding,),
        figures=Figures(bites={}),
        violations={"G2": 1},
        not_judged=("G9",),
    )
    task = cli.Task(question=question, directory=tmp_path)

    cli.tell(cli.Order(tasks=[task], shown=printable), [judgement])
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 1 + 1 + 2 + 1 + 1 + 1
    assert all(line.isprintable() for line in lines)
    assert "\\x1b" in lines[2]

    cli.tell(cli.Order(tasks=[task], shown=printable, as_json=True), [judgement])
    (told, rest) = capsys.readouterr().out.split("\n")
    assert told.isprintable()
    assert rest == ""


def test_what_parquet_holds_of_names_and_texts_is_printable(tmp_path: Path) -> None:
    """So is what is made of it: verdicts, violations, metrics and reports."""
    blocks: list[bytes] = []
    tracer = Tracer(7, 0, hash64, blocks.append)
    tracer.record(trace.START, 0.0, text=f"{EVIL.replace(' ', '')} {7:032x} {{}}")
    tracer.record(trace.ALARM, 1.0, peer=8, text=EVIL)
    tracer.seal()
    (tmp_path / "n0-1.trace").write_bytes(b"".join(blocks))

    sources = find_sources(tmp_path)
    (file,) = export(sources, tmp_path / "parquet", EVIL, {7: EVIL, 8: EVIL}, [])
    rows = parquet.read_table(file.path).to_pylist()
    texts = [value for row in rows for value in row.values() if isinstance(value, str)]
    assert any("\\x1b" in text for text in texts)
    assert all(text.isprintable() for text in texts), texts


def test_the_report_shows_no_control_characters(tmp_path: Path) -> None:
    """Not those of a verdict that a run wrote itself, which nothing has gone over."""
    write_run(Story().a_clean_exchange().told(), tmp_path / "run")
    finding = {"guarantee": "G2", "verdict": "violated", "detail": EVIL, "witness": [EVIL, EVIL]}
    said = {"scenario": EVIL, "verdict": "violated", "findings": [finding]}
    (tmp_path / "run/verdict.json").write_text(json.dumps(said))
    page = run_report(read_run(tmp_path / "run"))
    assert "G2" in page
    assert not set("\x1b\x07\x9b\u202e") & set(page)
