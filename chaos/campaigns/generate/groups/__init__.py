"""Scenarios of whole groups: three to six members on a real stack, views, merges and multicasts.

Most of them also have a plot: steps that together reach a state that one fault hardly ever reaches,
mostly by a second fault soon after the first; some plots bring loads and settings of their own.
All faults end within the run, and the settling time is long enough for suspicion, merge and
stability, so the last view can be judged (V4, G8). At least two members are never gone for good.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.draw import Names, leading_faults
from stormcast.chaos.campaigns.generate.groups.dice import END_SECONDS, SPARSE, STACKS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS
from stormcast.chaos.campaigns.generate.groups.plots import drawn_plot
from stormcast.chaos.campaigns.generate.groups.settings import cluster_of
from stormcast.chaos.campaigns.generate.groups.staged import STAGED, SWITCHING
from stormcast.chaos.faults import Link
from stormcast.chaos.language.scenario import GUARANTEES as ALL_GUARANTEES
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.timeline import WORDS, Step
from stormcast.chaos.language.workload import ScenarioLoad

__all__ = [
    "END_SECONDS",
    "KINDS",
    "MIN_BITES",
    "MIN_MESSAGES",
    "MIN_OWED",
    "SETTLE_SECONDS",
    "SPARSE",
    "STACKS",
    "generate",
]

GUARANTEES: Final = tuple(name for name in ALL_GUARANTEES if name not in {"S1", "T1"})
SETTLE_SECONDS: Final = 20.0
"""Suspicion (2.3 s), a look of MERGE3 (1.6 s), a merge that fails first (4 s), twice; stability.
Where suspicion takes longer, a run settles for longer by itself."""
LONGEST: Final = 1200.0
"""Pieces of large messages through a window of eight, which STABLE empties every five seconds, take
ten minutes."""
MIN_MESSAGES: Final = 150
MIN_OWED: Final = 150
MIN_BITES: Final = 2


def generate(seed: int, attempt: int, stack: str, leading: str) -> Scenario:
    """Draw the scenario of a seed in a cell of the grid; another `attempt` draws another one."""
    random = Random(f"stormcast/group/{seed}/{attempt}")
    members = tuple(f"n{number}" for number in range(random.choice((3, 3, 4, 4, 5, 6))))
    draw = GroupDraw(random, members, stack)
    draw.loads = _workload(draw, needs_unicast=leading == "forget")
    draw.busy = tuple(
        (load.sources[0], load.dests[0]) for load in draw.loads if load.do == "unicast"
    )
    if leading == "forget":
        # Nobody is connected to a member that has yet to start.
        draw.needed = draw.busy[0]
    timeline, plot = _timeline(draw, leading, leading_faults(attempt))
    return Scenario(
        name=f"generated-{seed}",
        about=f"{stack} under {leading} and more{plot}, drawn from seed {seed}.",
        guarantees=GUARANTEES,
        needs=("multicast",),
        cluster=cluster_of(draw),
        network=Link(delay=draw.seconds(0.0002, 0.01), jitter=random.choice((0.0, 0.0, 0.002))),
        workload=tuple(draw.loads),
        timeline=timeline,
        limits=Limits(run=LONGEST, settle=SETTLE_SECONDS),
    )


PLOT_SHARE: Final = 0.7
STAGED_SHARE: Final = 0.3
"""The shares of scenarios that have a plot, and whose plot brings loads and settings."""


def _timeline(draw: GroupDraw, leading: str, often: int) -> tuple[tuple[Step, ...], str]:
    """Draw the steps, in order of time, `often` of them of the leading kind; also returns the
    plot's name, for the scenario's text."""
    random = draw.random
    weights = [OFTEN.get(kind, 1) for kind in KINDS]
    kinds = [*[leading] * often, *random.choices(tuple(KINDS), weights, k=random.randint(1, 4))]
    chance = random.random()
    steps, plot = draw.steps, ""
    if chance < PLOT_SHARE - STAGED_SHARE:
        plain = drawn_plot(draw)
        steps += plain(draw)
        plot = plain.__name__
    steps += [KINDS[kind](draw) for kind in kinds]
    if PLOT_SHARE - STAGED_SHARE <= chance < PLOT_SHARE:
        staged = random.choice(STAGED + SWITCHING if draw.switches else STAGED)
        steps += staged(draw)
        plot = staged.__name__
    known = (_without_strangers(draw, step) for step in steps)
    left = _led(draw, leading, [step for step in known if step is not None])
    return tuple(
        sorted(left, key=lambda step: step.at)
    ), f" ({plot.strip('_').replace('_', ' ')})" if plot else ""


OFTEN: Final = {"rule": 4, "partition": 2, "crash": 2, "join": 2}
"""Weights of faults that have many forms; all others have the weight 1."""


REDRAWS: Final = 50
"""The most draws of a leading step until it is one among members that are there."""


def _led(draw: GroupDraw, leading: str, steps: list[Step]) -> list[Step]:
    """Return the steps, with another one of the leading kind where none is left of it."""
    for _ in range(REDRAWS):
        if any(WORDS[type(step.action)] == leading for step in steps):
            break
        step = KINDS[leading](draw)
        draw.steps.append(step)
        known = _without_strangers(draw, step)
        steps += [known] if known is not None else []
    return steps


def _without_strangers(draw: GroupDraw, step: Step) -> Step | None:
    """Return a step without members that may not have started yet, for faults that need started
    members; None if nothing of the step is left."""
    action = step.action
    if isinstance(action, faults.Forget) and not {action.member, action.peer}.isdisjoint(draw.late):
        return None
    if isinstance(action, faults.InstallView):
        members = tuple(name for name in action.members if name not in draw.late)
        believers = tuple(name for name in action.at_members if name in members)
        if not believers:
            return None
        return replace(step, action=faults.InstallView(at_members=believers, members=members))
    return step


def _workload(draw: GroupDraw, *, needs_unicast: bool) -> list[ScenarioLoad]:
    """Draw some hundred multicasts over the time in which faults happen, and perhaps unicasts."""
    random, members = draw.random, draw.members
    first = _load(draw, members, random.randint(40, 120))
    # Whatever else is drawn, some multicasts of all members are owed to all.
    loads = [replace(first, flags=tuple(flag for flag in first.flags if flag != "NO_RELIABILITY"))]
    if random.random() < 0.6:
        some = tuple(random.sample(members, random.randint(1, 2)))
        loads.append(_load(draw, some, random.randint(50, 200)))
    if random.random() < 0.3:
        # Large messages, each a burst by itself.
        large = random.choice((3_000, 20_000, 100_000))
        draw.has_large = large > 3_000
        load = _load(draw, (random.choice(members),), random.randint(5, 20))
        loads.append(replace(load, size=(large // 4, large), burst=1))
    if needs_unicast or random.random() < 0.5:
        one, other = draw.pair()
        load = _load(draw, (one,), random.randint(50, 200))
        loads.append(replace(load, do="unicast", dests=(other,), excludes_self=True))
    return loads


FLAGS: Final[tuple[Names, ...]] = (
    *[()] * 4,
    ("DONT_BUNDLE",),
    ("DONT_LOOPBACK",),
    ("OOB",),
    ("OOB", "DONT_LOOPBACK"),
    ("NO_FC",),
    ("NO_RELIABILITY",),
)


def _load(draw: GroupDraw, sources: Names, count: int) -> ScenarioLoad:
    random = draw.random
    start = draw.seconds(0.0, 1.0)
    low = random.choice((16, 16, 100))
    until = random.choice((END_SECONDS, END_SECONDS, draw.seconds(4.0, END_SECONDS)))
    return ScenarioLoad(
        do="multicast",
        sources=sources,
        dests=draw.members,
        excludes_self=False,
        count=count,
        rate=round(count / (until - start), 3),
        size=(low, random.choice((low, low, 500, 2000))),
        start=start,
        burst=random.choice((1, 1, 5, 20)),
        oob_every=random.choice((0, 0, 0, 0, 7, 2)),
        flags=random.choice(FLAGS),
    )
