"""The pytest plugin as its users meet it: what passes, what fails, and what a failure says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.plugin.live_cluster import Chaos, LiveCluster

pytest_plugins = ("pytester",)

WITHOUT_ASYNCIO: Final = ("-p", "no:asyncio")
"""That plugin warns of settings that it wants, and warnings are errors here."""
pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "pytest.md"
EXAMPLES = re.findall(r"^```python example\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
SETTINGS = """
[pytest]
addopts = --strict-markers --strict-config -p no:cacheprovider
filterwarnings = error
"""
SCENARIO = """
name: quiet
guarantees: [G1, G2]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: n0, to: n1, count: 10}
"""
NOT_TOLD = {"abandon", "outcome", "folder"}
"""Of the plugin's own."""
LOSES_THE_LAST = """
def test_the_last_one_arrives(cluster, chaos):
    group = cluster(members=2, stack="unicast-museum", unicast="UNICAST2", max_batch=1,
                    historical={"repair_ends": False}, guarantees=["G1", "G3"])
    with chaos.rule("drop", kind="DATA", seqno=5, source="n0"):
        group.unicast(source="n0", dest="n1", count=5)
        group.wait(3)
"""


class Project:
    """Somebody's tests, and what pytest makes of them."""

    def __init__(self, pytester: pytest.Pytester, plugin: tuple[str, ...]) -> None:
        self.path = pytester.path
        self._pytester = pytester
        self._plugin = plugin
        pytester.makeini(SETTINGS)

    def run(self, body: str, *options: str) -> pytest.RunResult:
        # In one process, modules that only the inner run imports would be there twice afterwards.
        self._pytester.makepyfile(test_it=body)
        return self._pytester.runpytest_subprocess(*self._plugin, *WITHOUT_ASYNCIO, *options)


@pytest.fixture
def project(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> Project:
    for name in ("CI", "BUILD_NUMBER"):  # with one of them, pytest's summary repeats each failure
        monkeypatch.delenv(name, raising=False)
    is_installed = pytestconfig.pluginmanager.has_plugin("stormcast")
    return Project(pytester, () if is_installed else ("-p", "stormcast.chaos.plugin.fixtures"))


def text_of(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)


def traces(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.trace")}


def test_what_holds_passes_and_leaves_nothing(project: Project) -> None:
    result = project.run("""
def test_order(cluster, chaos):
    group = cluster(members=3)
    with chaos.loss("10%") as loss:
        group.multicast(count=50, rate="100/s")
        group.wait_until_delivered()
    assert loss.bites > 0
    assert group.finish().verdicts()["G3"] == "holds"
""")
    result.assert_outcomes(passed=1)
    assert "replay" not in text_of(result)


def test_a_cluster_that_another_fixture_makes_after_the_body_is_judged(project: Project) -> None:
    """Unless the test has failed, or was skipped."""
    result = project.run("""
import pytest

@pytest.fixture
def late(cluster):
    yield
    cluster(members=3)

def test_passes(late): pass
def test_fails(late): assert False
def test_is_skipped(late): pytest.skip("not today")
""")
    result.assert_outcomes(passed=1, failed=1, skipped=1, errors=1)
    shown = text_of(result)
    assert "ERROR at teardown of test_passes" in shown
    assert "run unknown: nothing was sent" in shown
    assert "pytest_plugin.py" not in shown, "where it was judged says nothing"


def test_a_cluster_that_the_backend_refuses_leaves_no_directory(project: Project) -> None:
    """It would be a run that began, and was never judged."""
    result = project.run(
        """
from stormcast.chaos.backends.base import Unsupported

def test_it(cluster, monkeypatch):
    def refuse(session):
        raise Unsupported("not here")
    monkeypatch.setattr("stormcast.chaos.plugin.live_cluster.StepwiseSession.open", refuse)
    cluster(members=3)
""",
        "--stormcast-keep",
        "kept",
    )
    result.assert_outcomes(skipped=1)
    assert not list(Path(project.path, "kept").rglob("begun"))


def test_a_guarantee_that_is_broken_fails_with_its_witness_and_how_to_repeat_it(
    project: Project,
) -> None:
    """The test itself never asks for a verdict."""
    result = project.run(LOSES_THE_LAST, "--stormcast-seed", "7")
    result.assert_outcomes(failed=1)
    shown = text_of(result)
    assert re.search(r"^G1 violated: .*seqno 5", shown, re.MULTILINE)
    assert re.search(r"^ +n0.* sent to n1 .*5..5", shown, re.MULTILINE)
    assert "pytest_plugin.py" not in shown, "where it was judged says nothing"
    assert shown.count("replay:") == 1
    command = (
        "pytest test_it.py::test_the_last_one_arrives --stormcast-backend sim --stormcast-seed 7"
    )
    assert command in shown
    (folder,) = {Path(found) for found in re.findall(r"run: +(\S+)", shown)}
    assert {"scenario.yaml", "seed", "verdict.json", "trace"} <= {p.name for p in folder.iterdir()}


def test_a_fault_that_did_nothing_proves_nothing(project: Project) -> None:
    result = project.run("""
def test_it(cluster, chaos):
    group = cluster(members=2)
    with chaos.rule("drop", kind="DATA", seqno=1000):
        group.multicast(count=10)
        group.wait_until_delivered()
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["run unknown: fault f1 (rule) did not bite: 0 times"])


def test_a_cluster_in_which_nothing_was_sent_proves_nothing(project: Project) -> None:
    result = project.run("def test_it(cluster):\n    cluster(members=2)\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nothing was sent"])


def test_a_load_that_did_nothing_proves_nothing(project: Project) -> None:
    """One ends by an error; one, of a member that is alone, reaches nobody."""
    result = project.run("""
def test_error(cluster):
    group = cluster(members=3, protocols={"FRAG": {"max_message_size": "300KB"}})
    group.multicast(20, "n0")
    group.multicast(10, "n1", size="301KB")
    group.wait(1)
    group.multicast(20, "n1")

def test_alone(cluster, chaos):
    group = cluster(members=3)
    with chaos.partition(["n0"], ["n1", "n2"]):
        group.wait_for_view("n0")
        group.multicast(50, "n0")
        group.wait(2)
    group.wait_for_view()
""")
    result.assert_outcomes(failed=2)
    shown = text_of(result)
    assert "run unknown: a load ended by an error, before all of it was offered" in shown
    assert "n1 offered 20 of 30 messages to the group" in shown
    assert "2 pairs of the workload delivered nothing: traffic is below the floor" in shown


def test_what_was_sent_of_a_load_until_it_was_stopped_is_all_of_it(project: Project) -> None:
    """The kept scenario can be read, though the loads last longer than a file's may."""
    result = project.run(
        """
def test_it(cluster, chaos):
    group = cluster(members=3)
    group.unicast(30, "n0", "others", rate="10/s")
    group.multicast(10000, ["n1", "n2"], rate="100/s")
    group.wait(2)
    with chaos.kill("n2"):
        group.wait(70)
        group.stop()
    group.multicast(10, "n1")
    played = group.finish().scenario.workload
    assert [(one.do, one.sources) for one in played] == [
        ("unicast", ("n0",)), ("unicast", ("n0",)), ("multicast", ("n1",)), ("multicast", ("n2",)),
        ("multicast", ("n1",)),
    ]
    assert [one.dests for one in played[:2]] == [("n1",), ("n2",)]
    counts = [one.count for one in played]
    assert counts[0] == 30 and counts[4] == 10
    assert 18 < counts[1] < 30 and 7000 < counts[2] < 7400 and 180 < counts[3] < 220
""",
        "--stormcast-keep",
        "kept",
    )
    result.assert_outcomes(passed=1)
    kept = load_scenario(project.path / "kept" / "test-it-py-test-it" / "run" / "scenario.yaml")
    assert len(kept.workload) == 5


def test_a_cluster_that_a_test_asks_for_while_it_runs_is_judged_too(project: Project) -> None:
    """pytest does not list such a fixture among those of the test."""
    result = project.run(
        LOSES_THE_LAST.replace(
            "(cluster, chaos):",
            "(request):\n"
            "    cluster = request.getfixturevalue('cluster')\n"
            "    chaos = request.getfixturevalue('chaos')",
        )
    )
    result.assert_outcomes(failed=1)
    assert re.search(r"^G1 violated: .*seqno 5", text_of(result), re.MULTILINE)
    assert text_of(result).count("replay:") == 1


def test_a_verdict_may_be_asked_for_while_a_fault_acts(project: Project) -> None:
    """What is finished has no fault any more, and what it was struck by is known."""
    result = project.run("""
import pytest

def test_it(cluster, chaos):
    group = cluster(members=3)
    with chaos.loss("10%") as loss, chaos.pause("n2"):
        group.multicast(count=200, rate="100/s")
        group.wait(1)
        group.finish()
    assert loss.bites > 0
    again = cluster(members=2)
    with pytest.raises(AssertionError, match="run unknown: .* did not bite"):
        with chaos.rule("drop", kind="DATA", seqno=1000) as rule:
            again.multicast(count=10)
            again.finish()
    assert rule.bites == 0
""")
    result.assert_outcomes(passed=1)


def test_a_cluster_that_does_not_come_to_be_is_the_one_whose_directory_is_named(
    project: Project,
) -> None:
    result = project.run("""
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.plugin.stepwise import StepwiseSession

def test_it(cluster, monkeypatch):
    cluster(members=2).unicast(count=1)

    def refuse(self):
        raise BackendError("n1 is not ready: its log says why")

    monkeypatch.setattr(StepwiseSession, "gather", refuse)
    cluster(members=2)
""")
    result.assert_outcomes(failed=1)
    (run,) = re.findall(r"^run: +(\S+)", text_of(result), re.MULTILINE)
    assert Path(run).name == "run-2"
    assert sorted(traces(Path(run)))


def test_the_command_that_repeats_a_scenario_is_not_that_of_a_later_cluster(
    project: Project,
) -> None:
    (project.path / "quiet.yaml").write_text(SCENARIO)
    result = project.run("""
def test_it(cluster):
    cluster.play("quiet.yaml")
    cluster(members=2).unicast(count=1)
    assert False
""")
    result.assert_outcomes(failed=1)
    assert "replay: pytest test_it.py::test_it" in text_of(result)


def test_an_assertion_of_the_test_itself_is_repeatable_too(project: Project) -> None:
    result = project.run("""
def test_it(cluster):
    group = cluster(members=2)
    group.multicast(count=10)
    assert group.received("n1", "n0") == 3
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["run: *", "replay: pytest test_it.py::test_it --stormcast-backend sim --stormcast-seed 1"]
    )
    (found,) = re.findall(r"run: +(\S+)", text_of(result))
    assert set(traces(Path(found))) == {"n0-1.trace", "n1-1.trace", "rig.trace"}
    assert (Path(found) / "begun").is_file(), "without a verdict, verify knows it for a run"


def test_ctrl_c_in_a_scenario_ends_all_tests(project: Project) -> None:
    (project.path / "quiet.yaml").write_text(SCENARIO)
    result = project.run("""
import signal
from stormcast.chaos.session.settling import Settling

def test_it(cluster, monkeypatch):
    monkeypatch.setattr(Settling, "is_settled", lambda *_: signal.raise_signal(signal.SIGINT))
    cluster.play("quiet.yaml")

def test_next():
    pass
""")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*"])
    assert "passed" not in text_of(result)
    assert list(project.path.parent.rglob("verdict.json"))


def test_a_load_lasts_until_it_is_stopped_also_by_who_is_paused_then(project: Project) -> None:
    result = project.run("""
import pytest

def test_it(cluster, chaos):
    group = cluster(members=3)
    group.multicast(count=10**6, rate="50/s")
    group.wait_for_traffic()
    with chaos.pause("n2"):
        group.wait_for_traffic("n0", "n1", more=50)
        group.stop()
    group.wait_until_delivered()
    sent = [group.state(name)["workload"]["accepted"] for name in group.members]
    group.wait(1)
    assert sent == [group.state(name)["workload"]["accepted"] for name in group.members]
    with pytest.raises(AssertionError, match="no load is between"):
        group.wait_for_traffic()
    group.multicast(count=5, source="n2")
    group.wait_until_delivered()
    assert group.state("n2")["workload"]["accepted"] == sent[2] + 5
    assert group.finish().run.complete
""")
    result.assert_outcomes(passed=1)


def test_a_test_may_choose_where_its_cluster_lives(project: Project) -> None:
    body = """
import pytest
from stormcast.chaos.backends.sim.backend import SimBackend

@pytest.mark.parametrize("backend", ["sim", SimBackend()])
def test_it(cluster, backend):
    group = cluster(members=2, backend=backend)
    group.multicast(count=10)
    assert group.finish().run.backend == "sim"
"""
    project.run(body, "--stormcast-backend", "kubernetes").assert_outcomes(passed=2)


def test_a_run_is_decided_by_its_seed(project: Project) -> None:
    body = """
def test_it(cluster, chaos):
    group = cluster(members=2)
    with chaos.loss("20%"):
        group.multicast(count=50)
        group.wait_until_delivered()
"""
    for folder, seed in (("one", "1"), ("same", "1"), ("other", "2")):
        result = project.run(body, "--stormcast-keep", folder, "--stormcast-seed", seed)
        result.assert_outcomes(passed=1)
    one, same, other = (traces(project.path / name) for name in ("one", "same", "other"))
    assert one == same != other
    assert len(one) == 3


def test_a_scenario_file_is_repeated_by_the_command(project: Project) -> None:
    (project.path / "quiet.yaml").write_text(SCENARIO)
    body = "def test_it(cluster):\n    assert cluster.play('quiet.yaml').run.sent == 10\n"
    project.run(body).assert_outcomes(passed=1)
    broken = SCENARIO + "expect:\n  - {by: 0s, delivered: all}\n"
    (project.path / "quiet.yaml").write_text(broken)
    result = project.run(body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E*G8 violated: *", "E*replay: stormcast run quiet.yaml --seed 1 --backend sim"]
    )


def test_words_are_read_as_in_a_scenario_file(project: Project) -> None:
    result = project.run("""
def test_rate(cluster, chaos):
    cluster(members=2)
    chaos.loss("10")

def test_member(cluster, chaos):
    cluster(members=2)
    chaos.kill("n7")

def test_nothing_yet(chaos):
    chaos.kill("n0")
""")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        ["E*rate is '10': it has no unit*", "E*'n7'*", "E*there is no cluster yet*"]
    )


def test_what_a_backend_cannot_do_here_is_skipped_with_the_reason(project: Project) -> None:
    result = project.run(
        """
from stormcast.chaos.backends.sim.backend import SimBackend

def test_it(cluster, chaos, monkeypatch):
    can = SimBackend().features()
    monkeypatch.setattr(SimBackend, "features", lambda _: {**can, "corrupt": "no dice; get some"})
    group = cluster(members=2)
    chaos.corrupt("10%")
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs corrupt: no dice; get some"])


def test_a_backend_that_is_not_there_at_all_is_no_reason_to_skip(project: Project) -> None:
    result = project.run("""
from stormcast.chaos.backends.sim.backend import SimBackend

def test_it(cluster, monkeypatch):
    monkeypatch.setattr(SimBackend, "features", lambda _self: {"members": "no room; make some"})
    cluster(members=2)
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*there is no sim here: no room; make some"])


def test_tests_that_use_it_not_pay_nothing_for_it(project: Project) -> None:
    result = project.run("""
import sys

def test_it():
    assert not [name for name in sys.modules if
                name.startswith(("stormcast.node", "stormcast.chaos.")) and
                not "stormcast.chaos.plugin.fixtures".startswith(name)]
""")
    result.assert_outcomes(passed=1)


def test_it_works_on_several_workers(project: Project) -> None:
    result = project.run(
        """
import pytest

@pytest.mark.parametrize("count", range(4))
def test_it(cluster, count):
    cluster(members=2).multicast(count=10 + count)
""",
        "-n",
        "2",
        "--stormcast-seed",
        "3",
    )
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_page_pass(project: Project, example: str) -> None:
    tests = example.count("def test_")
    project.run(example).assert_outcomes(passed=tests)


def test_the_page_shows_every_fixture_fault_and_option(project: Project) -> None:
    text = PAGE.read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    shown = set(re.findall(r"\b\w+\b", " ".join(re.findall(r"`[^`]+`", prose))))
    for kind in (Chaos, LiveCluster):
        assert {name for name in vars(kind) if not name.startswith("_")} - NOT_TOLD <= shown, kind
    told = set(re.findall(r"^\| `(--stormcast-\w+)", text, re.MULTILINE))
    helped = "\n".join(project.run("", "--help").outlines)
    assert told == set(re.findall(r"--stormcast-\w+", helped))


def test_what_the_page_shows_of_a_failure_is_what_a_failure_shows(project: Project) -> None:
    (shown,) = re.findall(
        r"^```\n(test-the-last.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    result = project.run(LOSES_THE_LAST, "--stormcast-seed", "7")
    lines = [line for line in shown.splitlines() if not line.startswith("run:")]
    result.stdout.fnmatch_lines_random([line.replace("[", "[[]") for line in lines])


MISTAKES = {
    'chaos.do("nix")': "do is 'nix': there is no such action; known: ",
    'chaos.do("partitoin")': "did you mean partition?",
    'group.multicast(5, start="30s")': "start is 30s: a load begins now; wait before it",
    "chaos.do(5)": "do is 5: there is no such action; known: ",
    'group.wait(float("inf"))': "wait is inf: write a number of seconds, such as 2.5",
    "group.wait(-1)": "wait is -1: write a number of seconds, such as 2.5",
    'group.wait("5s")': "wait is '5s': write a number of seconds, such as 2.5",
    'group.wait_until(lambda: False, "x", within=float("inf"))': "within is inf: write a number of",
    'group.finish(within=float("nan"))': "within is nan: write a number of",
    'group.wait_for(1, "zoe")': "no member zoe; there is n0 n1",
    'group.received("n0", "zoe")': "no member zoe; there is n0 n1",
}


def test_what_cannot_be_is_one_line_that_says_what_to_write(project: Project) -> None:
    lines = "\n".join(
        f"    with pytest.raises(ConfigError, match={re.escape(said)!r}) as error:\n"
        f"        {mistake}\n"
        "    assert '\\n' not in str(error.value)"
        for mistake, said in MISTAKES.items()
    )
    body = (
        "import pytest\nfrom stormcast.node.core.errors import ConfigError\n"
        f"def test_mistakes(cluster, chaos):\n    group = cluster(members=2)\n"
        f"    group.multicast(count=10)\n{lines}\n"
    )
    project.run(body).assert_outcomes(passed=1)
