"""`chaos-test --install`: what is missing is named, then installed, or it is said why not.

On a machine of our own making: a PATH in which there is just what a test puts there, and an apt-get
that notes what it is told and installs by making files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stormcast.chaos.commands import suite
from stormcast.chaos.commands.install import PROGRAMS, InstallError, install_lacking, lacking
from stormcast.chaos.commands.output import Meter, about
from stormcast.chaos.language.scenario import parse_scenario
from tests.helpers.shell import Shell

APT = """\
#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do
  case $word in
    update) touch {folder}/lists; exit {update};;
    install) [ -e {folder}/lists ] || {{ echo "E: Unable to locate package" >&2; exit 100; }};;
    nftables) : > {bin}/nft; /bin/chmod +x {bin}/nft;;
    iptables) : > {bin}/iptables; /bin/chmod +x {bin}/iptables;;
    iproute2) for p in ip tc; do : > {bin}/$p; /bin/chmod +x {bin}/$p; done;;
  esac
done
"""
HEALTHY = """\
name: healthy
guarantees: [G1]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 40, rate: 400/s}
"""


class Machine:
    """A Debian on which only some programs are."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.log = folder / "log"
        for program in ("setpriv", "nsenter", "mount", "touch"):
            self.add(program, '#!/bin/sh\n: > "$1"\n')
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setattr("os.geteuid", lambda: 0)

    def add(self, program: str, text: str = "") -> None:
        (self.bin / program).write_text(text)
        (self.bin / program).chmod(0o755)

    def has_apt(self, *, knows_packages: bool = True, update: int = 0) -> None:
        if knows_packages:
            (self.folder / "lists").touch()
        self.add(
            "apt-get",
            APT.format(log=self.log, folder=self.folder, bin=self.bin, update=update),
        )

    @property
    def told(self) -> list[str]:
        """What apt-get was told to do."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "machine", monkeypatch)


INSTALL = "--quiet install --yes --no-install-recommends iproute2 iptables nftables"


def test_what_is_missing_is_named_before_it_is_installed(machine: Machine) -> None:
    machine.has_apt()
    said: list[tuple[str, int]] = []
    install_lacking(lambda line: said.append((line, len(machine.told))))
    assert machine.told == [INSTALL]
    assert "iproute2 iptables nftables" in said[0][0]
    assert "SYSTEM=no" in said[0][0]
    assert said[0][1] == 0
    assert lacking() == []


def test_a_fresh_machine_that_knows_no_package_is_told_of_them(machine: Machine) -> None:
    machine.has_apt(knows_packages=False)
    install_lacking(lambda _line: None)
    assert machine.told == [INSTALL, "--quiet update", INSTALL]
    assert lacking() == []


def test_only_what_is_missing_is_installed(machine: Machine) -> None:
    machine.has_apt()
    for program in ("ip", "tc", "iptables"):
        machine.add(program)
    install_lacking(lambda _line: None)
    assert machine.told == ["--quiet install --yes --no-install-recommends nftables"]


def test_where_all_is_there_nothing_is_done_nor_said(machine: Machine) -> None:
    machine.has_apt()
    for program in PROGRAMS:
        machine.add(program)
    said: list[str] = []
    install_lacking(said.append)
    assert (said, machine.told) == ([], [])


def test_who_is_not_root_installs_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has_apt()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(InstallError, match=r"need root.*nftables"):
        install_lacking(lambda _line: None)
    assert machine.told == []


@pytest.mark.usefixtures("machine")
def test_without_apt_get_the_packages_are_named() -> None:
    with pytest.raises(InstallError, match=r"iptables nftables; there is no apt-get"):
        install_lacking(lambda _line: None)


def test_why_apt_get_could_not_is_said(machine: Machine) -> None:
    machine.has_apt(knows_packages=False, update=100)
    machine.add("touch", "#!/bin/sh\n")
    with pytest.raises(InstallError, match="could not install iproute2 iptables nftables: exit"):
        install_lacking(lambda _line: None)


# -- The command -----------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of one file, and no museum."""
    monkeypatch.setattr(suite, "library", lambda: [parse_scenario(HEALTHY)])
    monkeypatch.setattr(suite, "tour", list)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_what_could_not_be_installed_is_said_first_and_with_the_verdict(
    shell: Shell, machine: Machine
) -> None:
    said = shell("chaos-test", "--install", "--timing", "fast", "--workers", 1)
    assert said.code == 0
    why = "there is no apt-get here that could install them"
    assert f"no real packets here: {why}" in said.err.replace(
        "these packages are missing, by their names in Debian: iproute2 iptables nftables; ", ""
    )
    assert "every scenario is run in the simulator instead" in said.err
    assert said.out.splitlines()[-1].startswith("nothing was run on real packets: these packages")
    assert machine.told == []


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_without_install_nothing_is_installed(shell: Shell, machine: Machine) -> None:
    """As `make chaos-test SYSTEM=no` calls it."""
    machine.has_apt()
    said = shell("chaos-test", "--timing", "fast", "--workers", 1)
    assert said.code == 0
    assert "no real packets here: there is no program ip: apt-get install iproute2" in said.err
    assert machine.told == []


def test_make_asks_for_it_unless_it_is_told_not_to() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert "INSTALL := $(if $(filter no,$(SYSTEM)),,--install)" in makefile
    assert "stormcast chaos-test $(INSTALL) $(ARGS)" in makefile


# -- How far it is ---------------------------------------------------------------------------------


def test_progress_says_how_far_it_is_and_how_long_it_takes() -> None:
    now = [0.0]
    meter = Meter(50, lambda: now[0])
    assert meter.line(0) == "0/50 runs, 0s"
    now[0] = 30.0
    assert meter.line(10) == "10/50 runs, 30s, about 2min left"
    assert meter.line(40) == "40/50 runs, 30s, about 8s left"
    assert meter.line(50) == "50/50 runs, 30s"
    assert about(0.1) == "about 1s"


@pytest.mark.skipif(os.isatty(2), reason="a terminal is told each time")
def test_where_lines_stay_they_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    meter = Meter(50, lambda: now[0])
    for second in range(30):
        now[0] = float(second)
        meter.tell(second, "; x")
    assert len(capsys.readouterr().err.splitlines()) == 2
