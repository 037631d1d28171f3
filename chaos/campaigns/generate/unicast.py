"""Scenarios of unicast alone: two to four members, one generation, every kind of fault.

Times are chosen so that faults strike amid traffic, and so that no frame is under way for longer
than a closed connection is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import draw as draws
from stormcast.chaos.campaigns.generate.draw import Draw, leading_faults
from stormcast.chaos.faults import Link
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.plots import PLOTS, TRAFFIC_SECONDS, lose
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.node.core.match import Match

GUARANTEES: Final = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "C1", "L1")
MIN_MESSAGES: Final = 1000
MIN_OWED: Final = 500
"""Fewer than leave, as what a member sent before it was restarted is owed to nobody."""
MIN_BITES: Final = 3
CONTROL_KINDS: Final = ("ACK", "XMIT_REQ", "SFS", "STABLE", "CLOSE")
FROM_RECEIVER: Final = frozenset({"ACK", "XMIT_REQ", "SFS", "STABLE"})


def _rule(draw: Draw) -> faults.Action:
    """Draw a rule for DATA or control frames: for all, a range of seqnos or occurrences, or only
    first transmissions."""
    source, dest = draw.pair()
    random = draw.random
    kind = random.choice(("DATA", "DATA", *CONTROL_KINDS))
    if kind in FROM_RECEIVER:
        source, dest = dest, source
    aim = random.randrange(4)
    match = Match(
        kinds=(kind,),
        sources=(source,),
        dests=(dest,),
        seqno=(1, random.randint(1, 60)) if aim == 1 and kind == "DATA" else None,
        occurrence=(1, random.randint(1, 40)) if aim == 2 else None,
        transmission=(0, 0) if aim == 3 and kind == "DATA" else None,
    )
    does = random.choice(("drop", "delay", "hold", "duplicate", "corrupt"))
    return faults.Rule(
        does=does, match=match, delay=draw.seconds(0.01, 2.0) if does == "delay" else 0.0
    )


def _restart(draw: Draw) -> faults.Action:
    return faults.Restart(member=draw.random.choice(draw.members))


def _pause(draw: Draw) -> faults.Action:
    return faults.Pause(member=draw.random.choice(draw.members))


def _stall(draw: Draw) -> faults.Action:
    return faults.Stall(member=draw.pair()[1])


def _forget(draw: Draw) -> faults.Action:
    return lose(*draw.pair(), draw.random.choice(("receiver", "receiver", "sender", "both")))


def _close(draw: Draw) -> faults.Action:
    member, peer = draw.pair()
    return faults.Close(member=member, peer=peer)


def _view(draw: Draw) -> faults.Action:
    """Draw a view that only some members get: an asymmetric split, one alone, or drawn members."""
    member, peer = draw.pair()
    random = draw.random
    shape = random.choice(("without-peer", "without-peer", "alone", "drawn"))
    if shape == "alone":
        return faults.InstallView(at_members=(member,), members=(member,))
    if shape == "drawn":
        members = tuple(random.sample(draw.members, random.randint(1, len(draw.members))))
        believers = tuple(random.sample(members, random.randint(1, len(members))))
        return faults.InstallView(at_members=believers, members=members)
    return faults.InstallView(
        at_members=(member,), members=tuple(name for name in draw.members if name != peer)
    )


SWITCHES: Final[tuple[tuple[str, float], ...]] = (
    ("xmit_interval", 0.25),
    ("xmit_interval", 0.1),
    ("xmit_interval", 1.0),
    ("conn_expiry_timeout", 0.5),
    ("conn_expiry_timeout", 1.5),
    ("conn_close_timeout", 6.0),
    ("conn_close_timeout", 10.0),
    ("max_retransmit_time", 3.0),
    ("sync_min_interval", 0.1),
    ("sync_min_interval", 1.0),
    ("max_xmit_req_size", 1),
)
"""Settings that may change at any moment. A closed connection stays remembered for longer than any
frame is under way."""


def _set(draw: Draw) -> faults.Action:
    attribute, value = draw.random.choice(SWITCHES)
    return faults.SetAttribute(
        member=draw.random.choice(draw.members), attribute=attribute, value=value
    )


KINDS: Final[dict[str, Callable[[Draw], faults.Action]]] = {
    "loss": draws.loss,
    "delay": draws.delay,
    "duplicate": draws.duplicate,
    "reorder": draws.reorder,
    "corrupt": draws.corrupt,
    "cut": draws.cut,
    "partition": draws.partition,
    "bandwidth": draws.bandwidth,
    "rule": _rule,
    "restart": _restart,
    "pause": _pause,
    "stall": _stall,
    "forget": _forget,
    "close": _close,
    "install-view": _view,
    "set-attribute": _set,
}
LASTING: Final = frozenset(
    {
        "loss",
        "delay",
        "duplicate",
        "reorder",
        "corrupt",
        "cut",
        "partition",
        "bandwidth",
        "rule",
        "pause",
        "stall",
    }
)


def generate(seed: int, attempt: int, generation: str, leading: str) -> Scenario:
    """Draw the scenario of a seed in a cell of the grid; another `attempt` draws another one."""
    random = Random(f"stormcast/{seed}/{attempt}")
    members = tuple(f"n{number}" for number in range(random.choice((2, 2, 2, 3, 3, 4))))
    draw = Draw(random, members)
    workload = _workload(draw)
    draw.busy = tuple(
        (load.sources[0], load.dests[0]) for load in workload if load.sources != load.dests
    )
    timeline = _timeline(draw, leading, leading_faults(attempt))
    cluster = _cluster(draw, generation, timeline)
    network = Link(delay=draw.seconds(0.0002, 0.02), jitter=random.choice((0.0, 0.0, 0.002)))
    if random.random() < 0.15:
        # Longer than the waits of `fast`: then this setting spaces the questions.
        spacing = random.choice((0.1, 1.0))
        settings = sorted({**dict(cluster.settings), "sync_min_interval": spacing}.items())
        cluster = replace(cluster, settings=tuple(settings))
    return Scenario(
        name=f"generated-{seed}",
        about=f"{generation} under {leading} and more, drawn from seed {seed}.",
        guarantees=GUARANTEES,
        cluster=cluster,
        network=network,
        workload=workload,
        timeline=timeline,
        limits=Limits(run=300.0),
    )


def _cluster(draw: Draw, generation: str, timeline: tuple[Step, ...]) -> Cluster:
    random = draw.random
    is_stalled = any(isinstance(step.action, faults.Stall) for step in timeline)
    settings: dict[str, object] = {}
    if random.random() < 0.5:
        settings["conn_close_timeout"] = random.choice((6.0, 10.0))
    if random.random() < 0.4:
        settings["conn_expiry_timeout"] = random.choice((2.0, 4.0))
    if random.random() < (0.8 if is_stalled else 0.4):
        # A stalled receiver must reach its bound, else the stall has no effect.
        window = random.choice((16, 64, 300))
        settings["window_messages"] = window
        if generation.startswith("UNICAST3"):
            settings["ack_threshold"] = window // 4
    if random.random() < 0.2:
        settings["window_bytes"] = random.choice((4096, 32768))
    if random.random() < 0.2:
        settings["max_xmit_req_size"] = random.choice((1, 8, 64))
    if random.random() < 0.2:
        settings["max_cached_frames"] = random.choice((0, 3, 10))
    if random.random() < 0.2:
        settings["max_retransmit_time"] = random.choice((3.0, 5.0))
    if generation == "UNICAST2" and random.random() < 0.5:
        settings["stable_interval"] = 5.0
    settings.update(draw.settings)
    if generation.startswith("UNICAST3") and "window_messages" in draw.settings:
        settings["ack_threshold"] = 4
    return Cluster(
        members=draw.members,
        unicast=generation,
        timing=random.choice(("compatible", "fast")),
        settings=tuple(sorted(settings.items())),
        max_batch=random.choice((None, None, 1, 3, 20)),
        unicast_first_conn=random.choice((None, None, None, None, 0xFFFFFFFE, 0xFFFFFFFF)),
    )


def _workload(draw: Draw) -> tuple[ScenarioLoad, ...]:
    """Draw loads of at least a thousand messages over the time in which faults happen."""
    random = draw.random
    loads = []
    pairs = [draw.pair() for _ in range(random.randint(1, 3))]
    if random.random() < 0.2:
        pairs.append((draw.members[0], draw.members[0]))
    total = 0
    for source, dest in pairs:
        count = random.randint(400, 900)
        total += count if source != dest else 0
        loads.append(_load(draw, source, dest, count))
    if total < MIN_MESSAGES:
        source, dest = draw.pair()
        loads.append(_load(draw, source, dest, MIN_MESSAGES - total))
    return tuple(loads)


def _load(draw: Draw, source: str, dest: str, count: int) -> ScenarioLoad:
    random = draw.random
    low = random.choice((16, 16, 100))
    return ScenarioLoad(
        sources=(source,),
        dests=(dest,),
        excludes_self=False,
        count=count,
        rate=round(count / TRAFFIC_SECONDS, 3),
        size=(low, random.choice((low, low, 500))),
        burst=random.choice((1, 2, 5, 20)),
        oob_every=random.choice((0, 0, 0, 7, 2)),
        flags=random.choice(((), (), (), ("DONT_BUNDLE",))),
    )


def _timeline(draw: Draw, leading: str, often: int) -> tuple[Step, ...]:
    random = draw.random
    kinds = [*[leading] * often, *random.choices(tuple(KINDS), k=random.randint(3, 6))]
    steps = random.choice(PLOTS)(draw) if random.random() < 0.5 else []
    for kind in kinds:
        # Sometimes from the first frame on, while connections are made.
        at = random.choice((0.0, *(draw.seconds(0.3, TRAFFIC_SECONDS - 2.0) for _ in range(4))))
        duration = draw.seconds(0.3, 4.0) if kind in LASTING else None
        action = KINDS[kind](draw)
        steps.append(Step(at=at, action=action, duration=duration))
        if kind == "install-view":
            # The split is mended by a view, too.
            assert isinstance(action, faults.InstallView)
            back = faults.InstallView(at_members=action.at_members, members=draw.members)
            steps.append(Step(at=draw.seconds(at, TRAFFIC_SECONDS), action=back))
    return tuple(sorted(steps, key=lambda step: step.at))
