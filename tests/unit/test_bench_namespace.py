"""A namespace is made, disturbed and removed by commands; here nobody runs them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.namespace import Namespace, leftovers, loss_commands, setup_commands
from bench.owned import make_folder, own_name, start_of


class Shell:
    """Notes commands; those that contain a word fail."""

    def __init__(self, failing: str = "", listing: str = "") -> None:
        self.failing = failing
        self.listing = listing
        self.ran: list[str] = []

    def __call__(self, argv: list[str]) -> str:
        line = " ".join(argv)
        self.ran.append(line)
        if self.failing and self.failing in line:
            raise BenchError(f"{line}: not here")
        return self.listing if line == "ip netns list" else ""


def test_loopback_carries_multicasts() -> None:
    assert setup_commands("x") == [
        ["ip", "netns", "add", "x"],
        ["ip", "-n", "x", "link", "set", "lo", "up", "multicast", "on"],
        ["ip", "-n", "x", "route", "replace", "224.0.0.0/4", "dev", "lo"],
    ]


def test_a_share_of_the_datagrams_on_loopback_is_dropped_inside_the_namespace_only() -> None:
    commands = [" ".join(argv) for argv in loss_commands("x", 0.05)]
    assert all(line.startswith("ip netns exec x nft add ") for line in commands)
    assert commands[-1].endswith(
        "iifname lo meta l4proto udp numgen random mod 100000 < 5000 counter drop"
    )


def test_what_was_made_is_removed_whatever_happens() -> None:
    shell = Shell()
    network = Namespace(shell, is_root=True)
    with pytest.raises(KeyboardInterrupt), network:
        raise KeyboardInterrupt
    assert f"ip netns add {own_name(os.getpid())}" in shell.ran
    assert shell.ran[-1] == f"ip netns delete {own_name(os.getpid())}"
    assert network.words() == []


def test_a_namespace_that_is_half_made_is_removed() -> None:
    shell = Shell(failing="link set lo up")
    with pytest.raises(BenchError, match="not here"), Namespace(shell, is_root=True):
        raise AssertionError
    assert shell.ran[-1] == f"ip netns delete {own_name(os.getpid())}"


def test_without_root_it_is_plain_loopback_without_loss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell()
    with Namespace(shell, is_root=False) as network:
        assert network.words() == []
        assert not network.can_delay()
        network.lose(0.0)
        with pytest.raises(BenchError, match="--loss needs root"):
            network.lose(0.1)
    assert shell.ran == []
    assert "not root" in capsys.readouterr().err


def test_a_kernel_without_netem_cannot_delay_and_nothing_stays_behind() -> None:
    with Namespace(Shell(failing="netem"), is_root=True) as network:
        assert not network.can_delay()
    shell = Shell()
    with Namespace(shell, is_root=True) as network:
        assert network.can_delay()
        assert shell.ran[-1].endswith("qdisc del dev lo root")


def test_a_leftover_is_known_by_an_owner_that_is_gone_or_another() -> None:
    """Of four: one whose owner lives, one whose pid is free, one whose pid came again, a strange
    one."""
    born = {10: 500, 12: 900}
    listing = "\n".join(
        [
            "stormcast-bench-10-500 (id: 1)",
            "stormcast-bench-11-600",
            "stormcast-bench-12-700",
            "stormcast-bench-x",
            "other",
        ]
    )
    assert leftovers(listing, born.get) == ["stormcast-bench-11-600", "stormcast-bench-12-700"]


def test_leftovers_are_removed_before_a_run() -> None:
    shell = Shell(listing="stormcast-bench-4194304-1\n")
    with Namespace(shell, is_root=True):
        pass
    assert shell.ran[:3] == [
        "ip netns list",
        "ip netns pids stormcast-bench-4194304-1",
        "ip netns delete stormcast-bench-4194304-1",
    ]


def test_this_process_is_no_leftover() -> None:
    assert leftovers(own_name(os.getpid())) == []
    assert start_of(os.getpid()) is not None
    assert start_of(1 << 22) is None


def test_a_folder_goes_with_its_run_and_takes_those_of_killed_runs_along(tmp_path: Path) -> None:
    killed, living, strange = (
        tmp_path / name
        for name in ("stormcast-bench-4194304-1-x", f"{own_name(os.getpid())}-x", "stormcast-bench")
    )
    for path in (killed, living, strange):
        path.mkdir()
    with ExitStack() as stack:
        folder = make_folder(stack, tmp_path)
        assert {folder, living, strange} == set(tmp_path.iterdir())
    assert {living, strange} == set(tmp_path.iterdir())
