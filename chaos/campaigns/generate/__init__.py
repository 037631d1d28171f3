"""Generates a scenario from a seed: every stack meets every kind of fault, mixed with others.

There are two grids, generation × fault for unicast alone and stack × fault for whole groups. One
seed in three is of the first grid, the others are of the second. Successive seeds walk through all
cells of their grid, so no cell stays empty for long. Everything else is drawn.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

from stormcast.chaos.campaigns.generate import groups, unicast
from stormcast.chaos.campaigns.generate.extras import with_extras
from stormcast.chaos.campaigns.generate.groups import STACKS
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.language.scenario import Scenario

Cell = tuple[str, str]
"""Generation or stack, and the leading fault."""

UNICAST_EVERY: Final = 3
"""Every third seed (2, 5, 8 …) is of unicast alone. The number does not divide that grid's size, so
these seeds reach all of its cells."""
CELLS: Final[tuple[Cell, ...]] = (
    *product(GENERATIONS, unicast.KINDS),
    *product(STACKS, groups.KINDS),
)


class Least(NamedTuple):
    """The least that a run must have met to count as a test."""

    messages: int
    """Messages that left: one in pieces counts once."""
    owed: int
    """Messages that members owed each other, each counted for every receiver: what left may be owed
    to nobody."""
    bites: int
    """Number of faults that bit."""


def is_group(seed: int) -> bool:
    """Whether a seed's scenario has a whole group (else unicast alone)."""
    return (seed + 1) % UNICAST_EVERY != 0


def cell_of(seed: int) -> Cell:
    """Return the generation or the stack of a seed, and its leading fault."""
    if is_group(seed):
        place = seed // UNICAST_EVERY * (UNICAST_EVERY - 1) + seed % UNICAST_EVERY
        rows, kinds = STACKS, tuple(groups.KINDS)
    else:
        place = seed
        rows, kinds = GENERATIONS, tuple(unicast.KINDS)
    return rows[place % len(rows)], kinds[place // len(rows) % len(kinds)]


def generate(seed: int, attempt: int = 0) -> Scenario:
    """Draw the scenario of a seed; another `attempt` draws another one for the same cell."""
    draw = groups.generate if is_group(seed) else unicast.generate
    return with_extras(draw(seed, attempt, *cell_of(seed)), seed, attempt)


def least_of(seed: int) -> Least:
    """Return the least that the run of a seed must have met."""
    of = groups if is_group(seed) else unicast
    return Least(of.MIN_MESSAGES, of.MIN_OWED, of.MIN_BITES)
