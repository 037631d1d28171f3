"""A failing scenario to a small one that fails in the same way: delta debugging over its parts.

What is a part is read off the dataclasses of a scenario, so that what the language learns can be
shrunk too. Entries and names go in halves, then in quarters, then one by one; values go back to
their defaults, or down. Whatever is tried is written and read as a file first, so that each step is
a scenario that could have been a file, and then run: only a violation of the same guarantee, in the
same words but for names and numbers, counts.

By what a run is judged stays as it was. A deadline that comes sooner, a smaller budget or a fault
that is never mended would make any cluster fail: what `expect` and `budget` say may go, but not get
harder to meet.
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
    """Until nothing smaller fails any more; raises OutOfTime when that comes before."""
    trials.try_scenario(replace(trials.best.scenario, guarantees=(trials.first.failure.guarantee,)))
    before = None
    while before != trials.best.scenario:
        before = trials.best.scenario
        # Members first: what a run costs grows with their square.
        remove_members(trials)
        ScenarioParts(trials).simplify()
        close_gaps(trials)
    return trials.best
