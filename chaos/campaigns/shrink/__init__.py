"""Shrinks a failing scenario to a small one that fails in the same way: delta debugging of its
parts.

The parts are found by the dataclasses of a scenario, so new words of the language can be shrunk,
too. Entries and names are removed in halves, then in quarters, then one by one; values go back to
their defaults, or down. Each candidate is first written and read as a file, so that it is a valid
scenario, and then run: it counts only if it violates the same guarantee, in the same words but for
names and numbers.

The standard by which a run is judged must not get stricter. An earlier deadline, a smaller budget
or a fault that is never healed would make any cluster fail: entries of `expect` and `budget` may be
removed, but not get harder to meet.
"""

from __future__ import annotations

from dataclasses import replace

from stormcast.chaos.campaigns.shrink.failure import Found
from stormcast.chaos.campaigns.shrink.members import remove_members
from stormcast.chaos.campaigns.shrink.parts import ScenarioParts
from stormcast.chaos.campaigns.shrink.times import close_gaps
from stormcast.chaos.campaigns.shrink.trials import Trials

__all__ = ["shrink"]


def shrink(trials: Trials) -> Found:
    """Shrink until no smaller scenario fails any more; OutOfTime if the time is over before."""
    trials.try_scenario(replace(trials.best.scenario, guarantees=(trials.first.failure.guarantee,)))
    before = None
    while before != trials.best.scenario:
        before = trials.best.scenario
        # Members first: what a run costs grows with their square.
        remove_members(trials)
        ScenarioParts(trials).simplify()
        close_gaps(trials)
    return trials.best
