"""`stormcast doctor` and `stormcast clean`: what they say, and what they leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns import RunId, run_command, what_is_missing
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.run_id import start_of
from stormcast.chaos.commands import health as doctor
from stormcast.chaos.commands import host as host_cli
from stormcast.chaos.commands import host_checks
from stormcast.chaos.commands.health import Health, examine
from stormcast.chaos.commands.host_checks import Check
from stormcast.chaos.language.features import FEATURES
from tests.helpers.shell import Shell

needs_root = pytest.mark.skipif(what_is_missing() is not None, reason=str(what_is_missing()))


class Played:
    """A backend that answers as it is told."""

    def __init__(self, answers: Mapping[str, str | None]) -> None:
        self._answers = answers

    def features(self) -> Mapping[str, str | None]:
        return self._answers


ALL = dict.fromkeys(FEATURES)


def health(**backends: Mapping[str, str | None] | str) -> Health:
    """What is found where backends answer so, or cannot be had for a reason."""

    def make(name: str) -> Played:
        answer = backends[name]
        if isinstance(answer, str):
            raise BackendError(answer)
        return Played(answer)

    def checks() -> Iterator[Check]:
        yield Check("nft", "rules of nftables", "partitions", None)
        yield Check("htb", "queues by mark", "bandwidth", "no htb: modprobe sch_htb")
        yield Check("netem", "the kernel's own delays", "", "no netem")

    return examine(checks, make, tuple(backends))  # type: ignore[arg-type]


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)


@pytest.fixture
def as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)


# -- What is found -----------------------------------------------------------------------------


@pytest.mark.usefixtures("as_root")
def test_root_gets_namespaces_and_what_is_missing_there_decides() -> None:
    found = health(sim=ALL, netns=ALL | {"bandwidth": "no htb"})
    assert (found.default, found.works) == ("netns", True)
    assert found.report().endswith("the default backend, netns, works, without bandwidth")
    slower = health(sim=ALL, netns=ALL | {"netem": "no netem"})
    assert slower.report().endswith("the default backend, netns, works")
    broken = health(sim=ALL, netns=ALL | {"partition": "no nft"})
    assert not broken.works
    assert broken.report().endswith("the default backend, netns, does not work here")


@pytest.mark.usefixtures("as_nobody")
def test_without_root_the_simulator_is_what_there_is() -> None:
    found = health(sim=ALL, netns="network namespaces need root")
    assert (found.default, found.works) == ("sim", True)
    assert "not root" in found.host


@pytest.mark.usefixtures("as_root")
def test_a_backend_that_cannot_be_had_has_nothing_and_the_reason_is_told_once() -> None:
    found = health(sim=ALL, netns=ALL, kubernetes="no cluster answers; is KUBECONFIG right?")
    assert set(found.backends["kubernetes"].values()) == {
        "no cluster answers; is KUBECONFIG right?"
    }
    report = found.report()
    assert report.count("  kubernetes: no cluster answers; is KUBECONFIG right?\n") == 1


@pytest.mark.usefixtures("as_root")
def test_a_feature_that_a_backend_does_not_know_is_none_that_it_has() -> None:
    found = health(sim=ALL, netns={name: None for name in FEATURES if name != "pause"})
    assert found.backends["netns"]["pause"] == "this version does not have it"


@pytest.mark.usefixtures("as_root")
def test_every_thing_and_feature_has_its_line_and_what_is_missing_its_remedy() -> None:
    lines = health(sim=ALL, netns=ALL | {"delay": "why", "reorder": "why"}).report().splitlines()
    assert "  ok  rules of nftables        for partitions" in lines
    assert "  no  queues by mark           no htb: modprobe sch_htb (for bandwidth)" in lines
    assert "  -   the kernel's own delays  no netem" in lines
    assert sum(line.split()[:1] == [name] for name in FEATURES for line in lines) == len(FEATURES)
    assert "  netns: why (delay, reorder)" in lines


@pytest.mark.usefixtures("as_nobody")
def test_what_fails_is_told_in_one_line_and_what_takes_it_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_checks, "what_is_missing", lambda: "network namespaces need root")
    first, *rest = host_checks.network_checks()
    assert (first.name, first.why) == ("namespaces", "network namespaces need root")
    assert {check.why for check in rest} == {host_checks.NOT_TRIED}
    assert len(rest) == len(host_checks.TRIALS)
    report = examine(lambda: iter([first, *rest]), lambda _name: Played(ALL), ("sim",)).report()  # type: ignore[arg-type, return-value]
    assert report.count("not tried") == 1


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('openjdk version "17.0.19" 2026-04-21', None),
        ('openjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_292"', "java is 8, and Spark takes 17 or later"),
        ("what?", "java is of an unknown version, and"),
    ],
)
def test_a_java_that_spark_does_not_run_on_is_told_with_the_remedy(
    said: str, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _program: "/usr/bin/java")
    monkeypatch.setattr(host_checks, "run_command", lambda _argv: said)
    found = host_checks.java()
    assert found is None if why is None else why in str(found) and "apt-get install" in str(found)


def test_what_is_not_installed_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _program: None)
    for check in host_checks.program_checks():
        assert check.why is not None
        assert "install" in check.why


# -- The commands ------------------------------------------------------------------------------


@pytest.mark.parametrize(("answers", "code"), [(ALL, 0), (ALL | {"members": "no"}, 3)])
def test_the_exit_code_says_whether_the_default_backend_works(
    shell: Shell, answers: Mapping[str, str | None], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = health(sim=answers, netns=answers)
    monkeypatch.setattr(host_cli, "examine", lambda: found)
    said = shell("doctor", "--json")
    assert said.code == code
    assert said.json["works"] is (code == 0)
    assert said.json["backends"]["sim"] == answers
    assert [check["name"] for check in said.json["checks"]] == ["nft", "htb", "netem"]
    assert shell("doctor").out == found.report() + "\n"


def test_an_unknown_word_is_a_usage_error(shell: Shell) -> None:
    assert shell("doctor", "--fix").code == 2
    assert shell("clean", "all").code == 2


def _looks(
    monkeypatch: pytest.MonkeyPatch, netns: str | list[str], docker: str | list[str] | None
) -> None:
    """Have each backend find these things, or fail for that reason; None: nobody has docker."""
    answers = {"netns": netns, "docker": docker}

    def look(backend: str) -> list[str]:
        answer = answers[backend]
        assert answer is not None
        if isinstance(answer, str):
            raise BackendError(answer)
        return answer

    for name in ("clean", "leftovers_of"):
        monkeypatch.setattr(host_cli, name, look)
    monkeypatch.setattr(host_cli, "may_have_docker", lambda: docker is not None)


NO_ROOT = "network namespaces need root"


@pytest.mark.parametrize("docker", [None, "no docker daemon answers: start it"])
def test_cleaning_without_root_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, docker: str | None
) -> None:
    _looks(monkeypatch, NO_ROOT, docker)
    said = shell("clean", "--json")
    assert said.code == 3
    assert said.json == {"removed": [], "found": None, "why": NO_ROOT}
    assert said.err == "stormcast: cannot clean: network namespaces need root\n"


def test_cleaning_goes_on_where_one_backend_cannot_be_looked_at(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody believes that nothing is left there."""
    _looks(monkeypatch, NO_ROOT, ["container sc1-2-3-n0"])
    said = shell("clean")
    assert (said.code, said.out) == (0, "container sc1-2-3-n0\n")
    assert f"stormcast: netns was not looked at: {NO_ROOT}\n" in said.err

    _looks(monkeypatch, ["sc1-2-3-n0"], "no docker daemon answers: start it")
    said = shell("clean")
    assert (said.code, said.out) == (0, "sc1-2-3-n0\n")
    assert "stormcast: docker was not looked at: no docker daemon answers: start it\n" in said.err


@pytest.mark.root
@pytest.mark.slow
@needs_root
def test_the_doctor_tries_everything_and_leaves_nothing() -> None:
    found = {check.name: check.why for check in host_checks.network_checks()}
    assert found["namespaces"] is None
    assert set(found) == {"namespaces", *(name for name, *_rest in host_checks.TRIALS)}
    mine = RunId.next()
    assert not leftovers(is_left=lambda run: run.pid == mine.pid).names()


@pytest.fixture
def left_behind() -> Iterator[tuple[str, str]]:
    """A namespace of a run whose process is gone, and one of a run that lives."""
    process = subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)
    started = start_of(process.pid)
    process.communicate(b"\n")
    dead, alive = f"sc{process.pid}-{started}-1-n0", RunId.next().namespace("n0")
    for space in (dead, alive):
        run_command(("ip", "netns", "add", space))
    try:
        yield dead, alive
    finally:
        for space in (dead, alive):
            if Path("/run/netns", space).exists():
                run_command(("ip", "netns", "del", space))


@pytest.mark.root
@pytest.mark.slow
@needs_root
def test_what_a_killed_run_left_is_removed_and_what_lives_stays(
    shell: Shell, left_behind: tuple[str, str]
) -> None:
    dead, alive = left_behind
    said = shell("clean", "--dry-run")
    assert said.code == 0
    assert dead in said.out.splitlines()
    assert Path("/run/netns", dead).exists()

    said = shell("clean", "--json")
    assert dead in json.loads(said.out)["removed"]
    assert not Path("/run/netns", dead).exists()
    assert Path("/run/netns", alive).exists()
    assert dead not in shell("clean", "--json").json["found"]


def test_the_essentials_are_features() -> None:
    assert set(doctor.ESSENTIAL) <= set(FEATURES)
