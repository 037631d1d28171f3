"""The rig itself, with a program in the place of members that counts whom it hears."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from chaos.backends.netns import MemberSpec, Rig, RigError, RunId, clean
from chaos.backends.netns.leftovers import leftovers
from chaos.backends.netns.names import address4, address6
from chaos.backends.netns.network import namespaces
from chaos.backends.netns.process import until
from node.trace import FAULT, PHASE, PROBE, read_blocks_untrusted

pytestmark = pytest.mark.root

NAMES = ("n0", "n1", "n2")
PROGRAM = Path(__file__).parent / "stand_in.py"
FRESH = 5
"""Datagrams of an open path after which a closed one would have let some through."""


def stand_in(python: str, spec: MemberSpec) -> tuple[str, ...]:
    place = address6 if ":" in spec.address else address4
    peers = [place(index) for index in range(len(NAMES)) if place(index) != spec.address]
    return (python, str(PROGRAM), spec.address, *peers)


class Ears:
    """Who hears whom."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.kinds = ("unicasts",) if rig.network.address("n0") != rig.spec("n0").address else (
            "unicasts", "multicasts")  # fmt: skip

    def heard(self) -> dict[tuple[str, str, str], int]:
        """Datagrams so far, by kind, sender and receiver."""
        heard = {}
        for dest in self.rig.living():
            if self.rig.members[dest].is_paused:
                continue
            state = self.rig.state(dest)
            for kind in self.kinds:
                for source in NAMES:
                    if source != dest:
                        address = self.rig.spec(source).address
                        heard[kind, source, dest] = state[kind].get(address, 0)
        return heard

    def open_paths(self, expected: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """On which directed paths datagrams arrive, once those expected are seen to be open.

        What was under way when a path closed has arrived by the second round.
        """
        for _round in range(2):
            before = self.heard()

            def fresh(before: Mapping[Any, int] = before) -> dict[Any, int]:
                now = self.heard()
                return {key: now[key] - count for key, count in before.items() if key in now}

            until(lambda fresh=fresh: all(  # type: ignore[misc]
                count >= FRESH for key, count in fresh().items() if key[1:] in expected
            ), 10.0, lambda fresh=fresh: f"paths {expected}: {fresh()}")  # type: ignore[misc]  # fmt: skip
        return {key[1:] for key, count in fresh().items() if count}


def pairs(*groups: str) -> set[tuple[str, str]]:
    """All who hear each other; a group is written `n0 n1`."""
    members = [group.split() for group in groups]
    return {(one, other) for group in members for one in group for other in group if one != other}


EVERYONE = pairs("n0 n1 n2")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(NAMES, tmp_path, argv=stand_in) as rig:
        start(rig)
        yield rig


def start(rig: Rig, names: tuple[str, ...] = NAMES) -> None:
    for name in names:
        rig.start(name)
    ready(rig, names)


def ready(rig: Rig, names: tuple[str, ...]) -> None:
    for name in names:
        control = rig.spec(name).folder / "control.sock"
        rig.wait_until(control.exists, 10.0, f"{name} is ready", poll=0.005)
        until(lambda name=name: answers(rig, name), 5.0, lambda: "no answer")  # type: ignore[misc]


def answers(rig: Rig, name: str) -> bool:
    try:
        rig.state(name)
    except RigError:
        return False
    return True


def timed_events(rig: Rig) -> list[tuple[float, int, str]]:
    """The rig's own events: time, kind, text."""
    blocks = read_blocks_untrusted(rig.collect()["rig"], xxh3_64_intdigest)
    return [
        (event.time, event.kind, block.text(event)) for block in blocks for event in block.events
    ]


def events(rig: Rig, kind: int) -> list[str]:
    """The texts of the rig's events of a kind."""
    return [text for _time, its, text in timed_events(rig) if its == kind]


def test_a_network_of_five_is_there_and_gone_again_within_a_second(tmp_path: Path) -> None:
    begun = time.monotonic()
    with Rig([f"n{number}" for number in range(5)], tmp_path) as rig:
        assert time.monotonic() - begun < 1.0
        spaces = [space for space in namespaces() if space.startswith(f"{rig.network.run}-")]
        assert len(spaces) == 6
    assert not [space for space in namespaces() if space.startswith(f"{rig.network.run}-")]


def test_everyone_hears_everyone_by_unicast_and_by_multicast(rig: Rig) -> None:
    assert Ears(rig).open_paths(EVERYONE) == EVERYONE


def test_ipv6_is_heard_cut_and_healed_too(tmp_path: Path) -> None:
    with Rig(NAMES, tmp_path, argv=stand_in, ipv6=True) as rig:
        start(rig)
        ears = Ears(rig)
        assert ears.open_paths(EVERYONE) == EVERYONE
        rig.partition(["n0", "n1"], ["n2"])
        assert ears.open_paths(pairs("n0 n1")) == pairs("n0 n1")
        rig.heal()
        assert ears.open_paths(EVERYONE) == EVERYONE


def test_nothing_outside_can_be_reached(rig: Rig) -> None:
    routes = rig.network.execute("n0", ("ip", "route", "show", "default"))
    assert routes == ""


def test_a_partition_cuts_both_ways_and_heal_restores(rig: Rig) -> None:
    ears = Ears(rig)
    rig.partition(["n0", "n1"], ["n2"])
    assert ears.open_paths(pairs("n0 n1")) == pairs("n0 n1")
    rig.heal()
    assert ears.open_paths(EVERYONE) == EVERYONE
    assert rig.bit("f0") > 0


def test_a_cut_of_one_way_leaves_the_other_open(rig: Rig) -> None:
    rig.partition_one_way("n0", "n2")
    expected = EVERYONE - {("n0", "n2")}
    assert Ears(rig).open_paths(expected) == expected


def test_a_second_fault_replaces_nothing_of_the_first(rig: Rig) -> None:
    first = rig.partition_one_way("n0", "n2")
    second = rig.partition_one_way("n1", "n2")
    expected = EVERYONE - {("n0", "n2"), ("n1", "n2")}
    assert Ears(rig).open_paths(expected) == expected
    rig.end_fault(first)
    expected = EVERYONE - {("n1", "n2")}
    assert Ears(rig).open_paths(expected) == expected
    rig.end_fault(second)
    assert Ears(rig).open_paths(EVERYONE) == EVERYONE


def test_swapping_partitions_lets_no_packet_through_that_both_forbid(rig: Rig) -> None:
    """n2 is cut off by every one of 20 partitions that follow each other without a heal."""
    ears = Ears(rig)
    fault = rig.partition(["n0", "n1"], ["n2"])
    ears.open_paths(pairs("n0 n1"))
    before = ears.heard()
    for _round in range(10):
        following = rig.partition(["n0"], ["n1"], ["n2"])
        rig.end_fault(fault)
        fault = rig.partition(["n0", "n1"], ["n2"])
        rig.end_fault(following)
    ears.open_paths(pairs("n0 n1"))
    after = ears.heard()
    assert {key for key in before if after[key] != before[key]} <= {
        ("unicasts", "n0", "n1"), ("unicasts", "n1", "n0"),
        ("multicasts", "n0", "n1"), ("multicasts", "n1", "n0"),
    }  # fmt: skip


def test_a_paused_member_says_nothing_until_it_goes_on(rig: Rig) -> None:
    ears = Ears(rig)
    ears.open_paths(EVERYONE)
    rig.pause("n1")
    assert ears.open_paths(pairs("n0 n2")) == pairs("n0 n2")
    rig.resume("n1")
    assert ears.open_paths(EVERYONE) == EVERYONE


def test_a_killed_member_comes_back_as_another_process(rig: Rig) -> None:
    before = rig.state("n1")["pid"]
    assert rig.members["n1"].pid == before
    rig.kill("n1")
    assert rig.members["n1"].code == -signal.SIGKILL
    assert rig.living() == ("n0", "n2")
    rig.restart("n1")
    ready(rig, ("n1",))
    assert rig.state("n1")["pid"] != before
    assert Ears(rig).open_paths(EVERYONE) == EVERYONE


def test_a_member_that_is_asked_to_stop_ends_by_itself(rig: Rig) -> None:
    assert rig.stop("n0") == 0
    assert rig.living() == ("n1", "n2")


def test_a_paused_member_can_be_stopped_and_killed(rig: Rig) -> None:
    rig.pause("n0")
    rig.pause("n1")
    assert rig.stop("n0") == 0
    rig.kill("n1")
    assert rig.living() == ("n2",)


def test_a_smaller_mtu_is_known_to_who_sends(rig: Rig) -> None:
    assert rig.state("n0")["largest"] == 1500
    rig.set_mtu(1400)
    assert {rig.state(name)["largest"] for name in NAMES} == {1400}


def test_a_small_disk_is_soon_full_and_gone_with_the_rig(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    with Rig(("n0",), tmp_path, argv=stand_in) as rig:
        rig.network.small_disk(folder, 1 << 20)
        with pytest.raises(OSError, match="No space"):
            (folder / "large").write_bytes(bytes(2 << 20))
    assert list(folder.iterdir()) == []


def test_the_trace_of_the_rig_says_what_was_done_and_whether_it_bit(rig: Rig) -> None:
    fault = rig.partition(["n0", "n1"], ["n2"])
    Ears(rig).open_paths(pairs("n0 n1"))
    rig.end_fault(fault)
    rig.quiet()
    rig.end()
    faults = [text for text in events(rig, FAULT) if '"pause"' not in text]
    assert faults == [
        '{"id": "f0", "do": "partition", "phase": "on"}',
        '{"id": "f0", "do": "partition", "phase": "off"}',
    ]
    assert events(rig, PHASE) == ["quiet", "end"]
    probe = events(rig, PROBE)[0]
    assert '"id": "f0"' in probe
    assert '"bit": 0' not in probe
    assert rig.living() == ()


def test_a_machine_that_stood_still_is_noted_as_a_pause_of_everyone(rig: Rig) -> None:
    """The machine cannot be stopped here; but the process that watches it can."""
    for name in NAMES:
        rig.state(name)
    assert rig.watch is not None
    begun = time.monotonic()
    os.kill(rig.watch.pid, signal.SIGSTOP)
    rig.sleep(0.5)
    os.kill(rig.watch.pid, signal.SIGCONT)
    until(lambda: "\n" in (rig.folder / "watch.log").read_text(), 5.0, lambda: "it is noted")
    ended = time.monotonic()
    rig.end()
    pauses = [json.loads(text) for text in events(rig, FAULT)]
    assert [(pause["do"], pause["phase"]) for pause in pauses] == [
        *[("pause", "on")] * len(NAMES), *[("pause", "off")] * len(NAMES),
    ]  # fmt: skip
    assert {pause["member"] for pause in pauses} == {rig.shorts[name] for name in NAMES}
    times = [at for at, kind, _text in timed_events(rig) if kind == FAULT]
    assert begun - 0.1 < times[0] < begun + 0.1
    assert begun + 0.5 <= times[-1] <= ended


# -- When the rig is killed ------------------------------------------------------------------------

_DIES = """
import sys, time
from pathlib import Path
sys.path[:0] = {paths}
from tests.integration.test_netns_rig import NAMES, ready, stand_in, start
from chaos.backends.netns import Rig
rig = Rig(NAMES, Path({folder!r}), argv=stand_in).__enter__()
start(rig)
rig.pause("n1")
disk = Path({folder!r}) / "disk"
disk.mkdir()
rig.network.small_disk(disk, 1 << 20)
print(rig.network.run, *[process.pid for process in rig.members.values()], flush=True)
{rest}
"""


def doomed(tmp_path: Path, rest: str) -> tuple[subprocess.Popen[str], RunId, list[int]]:
    """Another process with a rig, one member of which is paused."""
    root = str(Path(__file__).parents[2])
    script = _DIES.format(paths=[root], folder=str(tmp_path / "theirs"), rest=rest)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdout is not None
    run, *pids = process.stdout.readline().split()
    parsed = RunId.parse(run)
    assert parsed is not None
    return process, parsed, [int(pid) for pid in pids]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def all_of(run: RunId) -> Callable[[RunId], bool]:
    return lambda other: other == run


def test_members_die_with_a_rig_that_is_killed_even_paused_and_the_rest_is_cleaned(
    tmp_path: Path,
) -> None:
    process, run, pids = doomed(tmp_path, "time.sleep(60)")
    assert len(pids) == 3
    process.kill()
    process.communicate()
    until(lambda: all(map(is_gone, pids)), 5.0, lambda: f"{pids} are gone")

    spaces, folders = leftovers(is_left=all_of(run))
    assert len(spaces) == 4
    assert len(folders) == 1
    assert set(spaces) <= set(leftovers()[0])
    assert sorted(clean(is_left=all_of(run))) == sorted([*spaces, *map(str, folders)])
    assert leftovers(is_left=all_of(run)) == ([], [])


def test_nothing_is_left_of_a_rig_that_lives(rig: Rig) -> None:
    spaces, _folders = leftovers()
    assert not [space for space in spaces if RunId.parse(space) == rig.network.run]
    assert Ears(rig).open_paths(EVERYONE) == EVERYONE


@pytest.mark.parametrize(
    "rest",
    [
        "sys.exit(3)",
        "raise RuntimeError",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    ],
)
def test_a_rig_that_ends_in_any_other_way_leaves_nothing(tmp_path: Path, rest: str) -> None:
    process, run, pids = doomed(tmp_path, rest)
    process.communicate(timeout=20)
    assert all(map(is_gone, pids))
    assert leftovers(is_left=all_of(run)) == ([], [])


def test_a_process_in_a_leftover_namespace_is_ended_with_it(tmp_path: Path) -> None:
    """One that the kernel did not kill, because it freed itself from the rig."""
    rest = (
        "import subprocess\n"
        "words = rig.network.inside('n0', ('setpriv', '--pdeathsig', 'clear', 'sleep', '60'))\n"
        "print(subprocess.Popen(words, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(60)"
    )
    process, run, _pids = doomed(tmp_path, rest)
    assert process.stdout is not None
    free = int(process.stdout.readline())
    until(lambda: Path(f"/proc/{free}/comm").read_text() == "sleep\n", 5.0, lambda: "it sleeps")
    process.kill()
    process.communicate()
    assert not is_gone(free)
    clean(is_left=all_of(run))
    # It was never ours to wait for; init, or whoever stands in for it, does.
    until(lambda: _is_dead(free), 5.0, lambda: f"{free} ends")
    assert leftovers(is_left=all_of(run)) == ([], [])


def _is_dead(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text[text.rindex(")") + 2] == "Z"
