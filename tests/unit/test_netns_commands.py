"""What the netns backend would run, read without running it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns import (
    CommandError,
    MemberSpec,
    Network,
    RunId,
    member_argv,
    why_not,
)
from stormcast.chaos.backends.netns.backend import NetnsBackend
from stormcast.chaos.backends.netns.commands import (
    inside,
    make_network,
    remove_namespaces,
    set_mtu,
    small_disk,
)
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.netns.process import environment, until
from stormcast.node.bound import bound_to_me
from stormcast.node.keys.cluster_keys import write_new_key

RUN = RunId(41, 7, 1)


class Machine:
    """Takes commands, and answers as ip would where somebody needs an answer."""

    def __init__(self, fails_at: str = "", interrupts: int = 0) -> None:
        self.ran: list[tuple[tuple[str, ...], str]] = []
        self.spaces: list[str] = []
        self._fails_at = fails_at
        self._interrupts = interrupts
        """How often Ctrl-C comes when the first of some namespaces has been removed."""

    def __call__(self, argv: Sequence[str], stdin: str = "") -> str:
        self.ran.append((tuple(argv), stdin))
        if self._fails_at and self._fails_at in stdin:
            raise CommandError("no")
        self.spaces += re.findall("^netns add (.*)$", stdin, re.MULTILINE)
        for space in re.findall("^netns del (.*)$", stdin, re.MULTILINE):
            self.spaces.remove(space)
            if self._interrupts:
                self._interrupts -= 1
                raise KeyboardInterrupt
        if argv[-2:] == ("netns", "list"):
            return json.dumps([{"name": space} for space in self.spaces])
        return ""


def test_every_name_outside_a_namespace_is_that_of_the_run() -> None:
    for argv, stdin in make_network(RUN, ["n0", "n1"]):
        assert argv[0] == "ip"
        if "-n" in argv:
            assert argv[argv.index("-n") + 1].startswith("sc41-7-1-")
        else:
            assert all(line.startswith("netns add sc41-7-1-") for line in stdin.splitlines())


def test_links_are_made_inside_the_namespaces_they_belong_to() -> None:
    _spaces, (argv, bridge), first, second = make_network(RUN, ["n0", "n1"])
    assert argv == ("ip", "-n", "sc41-7-1-bridge", "-batch", "-")
    assert "link add m1 type veth peer name eth0 netns sc41-7-1-n1\n" in bridge
    assert first.argv[2] == "sc41-7-1-n0"
    assert "addr add 198.18.0.2/15 dev eth0\n" in first.stdin
    assert "addr add fd00:5c::3/64 dev eth0 nodad\n" in second.stdin


def test_a_network_takes_three_commands_and_one_per_member() -> None:
    assert len(make_network(RUN, [f"n{number}" for number in range(5)])) == 2 + 5


def test_two_hundred_and_fifty_six_members_have_addresses_of_their_own() -> None:
    batches = make_network(RUN, [f"n{number}" for number in range(256)])[2:]
    lines = [line for made in batches for line in made.stdin.splitlines() if "addr add" in line]
    assert len(set(lines)) == 512
    assert all(" 198.18." in line or " 198.19." in line or " fd00:5c::" in line for line in lines)


def test_every_member_knows_the_others_for_ever_and_nobody_else() -> None:
    """The neighbours that a kernel finds out itself are counted over all namespaces, and few."""
    batches = make_network(RUN, [f"n{number}" for number in range(256)])[2:]
    own = [
        re.findall(r"link set eth0 addrgenmode none address (\S+)", one.stdin) for one in batches
    ]
    assert len({address for (address,) in own}) == 256
    known = re.findall(r"neigh add (\S+) lladdr (\S+) dev eth0 nud permanent", batches[7].stdin)
    assert [where for _address, where in known] == [
        address for index, (address,) in enumerate(own) if index != 7 for _family in (4, 6)
    ]
    assert ("198.18.0.2", own[0][0]) in known
    assert ("fd00:5c::101", own[255][0]) in known


def test_what_is_gone_already_does_not_keep_the_rest_from_being_removed() -> None:
    command = remove_namespaces(["sc41-7-1-n0", "sc41-7-1-n1"])
    assert command.argv == ("ip", "-force", "-batch", "-")
    assert command.stdin.splitlines() == ["netns del sc41-7-1-n0", "netns del sc41-7-1-n1"]


def test_an_mtu_is_set_at_both_ends_of_a_link() -> None:
    assert [(command.argv[2], command.stdin) for command in set_mtu(RUN, "n1", 1, 1400)] == [
        ("sc41-7-1-n1", "link set eth0 mtu 1400\n"),
        ("sc41-7-1-bridge", "link set m1 mtu 1400\n"),
    ]


def test_an_agent_is_told_where_each_member_lives() -> None:
    sites = Network(RUN, ("n0", "n1"), Machine()).sites()
    assert [(site.name, site.addresses, site.netns) for site in sites] == [
        ("n0", ("198.18.0.2", "fd00:5c::2"), "/run/netns/sc41-7-1-n0"),
        ("n1", ("198.18.0.3", "fd00:5c::3"), "/run/netns/sc41-7-1-n1"),
    ]


def test_a_member_runs_in_its_namespace_and_not_longer_than_its_owner() -> None:
    words = bound_to_me(inside("sc41-7-1-n0", ("python", "x.py")))
    assert words[:3] == ("setpriv", "--pdeathsig", "KILL")
    assert words[-7:] == (str(os.getpid()), *inside("sc41-7-1-n0", ("python", "x.py")))


def test_a_member_is_told_where_it_lives_and_reads_the_rest_from_its_folder() -> None:
    hosts = ("198.18.0.2[7800]", "198.18.0.3[7800]")
    spec = MemberSpec(name="n1", address="198.18.0.3", folder=Path("/run/n1"), initial_hosts=hosts)
    words = member_argv("python3", spec)
    assert words[:4] == ("python3", "-m", "stormcast", "node")
    assert dict(zip(words[4::2], words[5::2], strict=True)) == {
        "--config": "member.yaml",
        "--name": "n1",
        "--bind-addr": "198.18.0.3",
        "--port": "7800",
        "--journal": "/run/n1/journal",
        "--control": "unix:control.sock",
        "--initial-hosts": ",".join(hosts),
    }


def test_a_small_disk_is_named_after_its_run() -> None:
    argv = small_disk(RUN, Path("/run/n1/journal"), 8 << 20).argv
    assert argv == ("mount", "-t", "tmpfs", "-o", "size=8388608", "sc41-7-1", "/run/n1/journal")


# -- Names -------------------------------------------------------------------------------------


def test_whatever_is_called_after_a_run_is_known_for_it() -> None:
    for name in (str(RUN), RUN.namespace("n1"), RUN.namespace("bridge"), RUN.namespace("a-b")):
        assert RunId.parse(name) == RUN


@pytest.mark.parametrize(
    "name", ["sc", "sc1-2", "sc1-2-", "sc1-2-3-", "sc1-x-3-n1", "docker", "xsc1-2-3"]
)
def test_what_somebody_else_made_is_not_ours(name: str) -> None:
    assert RunId.parse(name) is None


def test_two_runs_of_one_process_have_two_names_and_an_owner() -> None:
    first, second = RunId.next(), RunId.next()
    assert first != second
    assert first.pid == os.getpid()
    assert first.has_owner()


def test_a_pid_that_came_back_is_another_owner() -> None:
    mine = RunId.next()
    assert not RunId(mine.pid, mine.started - 1, 1).has_owner()


def test_leftovers_are_those_whose_owner_is_gone() -> None:
    machine, mine = Machine(), RunId.next()
    gone = RunId(mine.pid, mine.started - 1, 1)
    machine.spaces = ["docker", mine.namespace("n0"), gone.namespace("n0"), gone.namespace("n1")]
    assert leftovers(machine).spaces == (gone.namespace("n0"), gone.namespace("n1"))


@pytest.mark.parametrize("names", [("bridge",), ("n0", "n0"), ("N0",), ("a b",), ("",), ()])
def test_members_that_cannot_be_told_apart_or_named_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        Network(RUN, names, Machine())


# -- A machine that refuses ----------------------------------------------------------------------


def test_a_network_that_cannot_be_made_whole_is_removed() -> None:
    machine = Machine(fails_at="link add m0")
    with pytest.raises(CommandError):
        Network(RUN, ("n0",), machine).make()
    assert machine.ran[-1][1] == "netns del sc41-7-1-bridge\nnetns del sc41-7-1-n0\n"


def test_a_network_that_is_there_already_is_neither_made_nor_removed() -> None:
    machine = Machine()
    network = Network(RUN, ("n0", "n1"), machine)
    network.make()
    made = len(machine.ran)
    for again in (network, Network(RUN, ("n1",), machine)):
        with pytest.raises(CommandError, match="sc41-7-1-bridge is there already: remove"):
            again.make()
    assert {argv[-2:] for argv, _stdin in machine.ran[made:]} == {("netns", "list")}


def test_ctrl_c_while_a_network_is_removed_comes_when_it_is_gone() -> None:
    machine = Machine(interrupts=1)
    network = Network(RUN, ("n0", "n1"), machine)
    network.make()
    with pytest.raises(KeyboardInterrupt):
        network.remove()
    assert machine.spaces == []


_OUTLASTING = """
import os, signal
from stormcast.chaos.backends.netns.running import run_command
signal.signal(signal.SIGINT, lambda *_: None)
print(run_command(("sh", "-c", f"kill -s INT -- -{os.getpid()}; echo to the end")), end="")
"""


def test_a_program_is_not_in_the_group_that_ctrl_c_reaches() -> None:
    """Whoever runs it says whether it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _OUTLASTING],
        env=environment({}), process_group=0,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip  # one command
    assert done.stdout == "to the end\n", done.stderr


def test_a_machine_that_refuses_is_found_by_trying_and_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stormcast.chaos.backends.netns.network.what_is_missing", lambda: None)
    assert why_not(Machine()) is None
    machine = Machine(fails_at="jhash")
    assert why_not(machine) == "this machine refuses: no"
    assert machine.spaces == []


def test_what_does_not_come_in_time_is_an_error_that_a_session_knows() -> None:
    with pytest.raises(BackendError, match="not within 0s: it is late"):
        until(lambda: False, 0.0, lambda: "it is late")


def test_keys_that_were_given_to_a_run_are_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    write_new_key(path)
    before = path.read_text()
    with pytest.raises(BackendError, match="was given to the run"):
        NetnsBackend(key_file=path).change_keys("add")
    assert path.read_text() == before
