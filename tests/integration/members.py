"""Real members in network namespaces: what the tests of them have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from chaos.backends.netns import Rig
from chaos.oracles.evidence import Evidence
from chaos.oracles.verdict import CHECKS, Finding, Judgement, Verdict, judge
from node.trace import CONFIRMED, SUSPECT, SUSPECTED

NAMES = ("n0", "n1", "n2", "n3", "n4")
STACKS = ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit")
TOLD = frozenset({"tcp", "tcp-nio2", "tcp-no-retransmit"})
"""Stacks that find nobody by themselves."""
STILL = 12
"""Looks, ten a second, without another message after which no more are expected."""
QUIET_SECONDS = 8.0
"""Beyond every `quiet_within` of the timing `fast`, so that an end of repeats can be seen."""
SHORT_QUIET = 2.0
"""Where the end of repeats is not what a test is about."""

MULTICASTS: dict[str, object] = {"do": "multicast", "rate": "60/s", "size": "16B..2KiB",
                                 "duration": "3600s", "oob_every": 10}  # fmt: skip
UNICASTS: dict[str, object] = {"do": "unicast", "rate": "15/s", "size": "16B..2KiB",
                               "duration": "3600s"}  # fmt: skip


def group(
    folder: Path,
    stack: str,
    names: tuple[str, ...] = NAMES,
    **rest: Any,  # noqa: ANN401
) -> Rig:
    """A rig for members of a stack."""
    rig = Rig(names, folder, stack=stack, **rest)
    if stack in TOLD:
        rig.settings["initial_hosts"] = rig.hosts()
    return rig


def load(rig: Rig, names: Iterable[str], *loads: Mapping[str, object]) -> None:
    """Have members send until they are told to stop: by default a bit of everything."""
    for name in names:
        for one in loads or (MULTICASTS, UNICASTS):
            rig.start_load(name, one)


def received_from(rig: Rig, name: str) -> dict[str, int]:
    """Messages that a member's application got, by the name and short id of who sent them."""
    got: dict[str, int] = rig.state(name)["workload"]["received_from"]
    return got


def label(rig: Rig, name: str) -> str:
    """A member as others list it."""
    return f"{name}:{short_of(rig, name):x}"


def wait_for_traffic(rig: Rig, names: Iterable[str], more: int = 20, timeout: float = 15.0) -> None:
    """Wait until each of these has got so many messages more from each of these (G8)."""
    chosen = tuple(names)
    labels = [label(rig, name) for name in chosen]
    before = {name: received_from(rig, name) for name in chosen}

    def fresh() -> dict[str, dict[str, int]]:
        now = {name: received_from(rig, name) for name in chosen}
        return {
            name: {one: now[name].get(one, 0) - before[name].get(one, 0) for one in labels}
            for name in chosen
        }

    rig.wait_until(
        lambda: all(count >= more for counts in fresh().values() for count in counts.values()),
        timeout,
        f"{more} messages from each of {' '.join(chosen)} at each",
        poll=0.1,
    )


def settle(rig: Rig, timeout: float = 30.0) -> None:
    """Stop all loads, and wait until everything that was accepted has come."""
    names = rig.living()
    for name in names:
        rig.stop_load(name)
    last: dict[str, int] = {}
    same = 0

    def is_still() -> bool:
        nonlocal last, same
        now = {name: rig.state(name)["workload"]["received"] for name in names}
        same = same + 1 if now == last else 0
        last = now
        # Longer than a sender waits before it asks for credits again.
        return same >= STILL

    rig.wait_until(is_still, timeout, "no more messages arrive", poll=0.1)


def finish(rig: Rig, seconds: float = QUIET_SECONDS) -> Evidence:
    """End a run so that it can be judged: nothing lost, nothing under way, nobody missing."""
    settle(rig)
    rig.quiet()
    rig.sleep(seconds)
    for name in rig.living():
        assert rig.state(name)["workload"]["mismatches"] == 0, f"{name} got what nobody sent"
    rig.end()
    return Evidence.from_blocks(rig.collect(), xxh3_64_intdigest)


def assert_holds(evidence: Evidence, guarantees: Iterable[str] = tuple(CHECKS)) -> Judgement:
    """Every guarantee, from the journals alone."""
    judgement = judge(evidence, guarantees)
    assert judgement.verdict is Verdict.HOLDS, "\n".join(map(show, judgement.findings))
    return judgement


def show(finding: Finding) -> str:
    lines = [f"{finding.guarantee} {finding.verdict}: {finding.detail}", *finding.witness]
    return "\n    ".join(lines)


def suspicions(evidence: Evidence, suspect: int) -> list[str]:
    """Who held a member for dead."""
    return [
        f"{member.label} at {event.time:.3f}"
        for member in evidence.members.values()
        for event in member.events
        if event.kind == SUSPECT
        and event.peer == suspect
        and event.stream in (SUSPECTED, CONFIRMED)
    ]


def short_of(rig: Rig, name: str) -> int:
    """The short id of a member."""
    rig.state(name)
    return rig.shorts[name]
