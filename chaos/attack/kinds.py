"""The kinds of attack, and the faults that each is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.attack.targets import Groups
from stormcast.chaos.faults import Names, NetworkFault
from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.quantities import BANDWIDTH, DURATION, SHARE, Quantity

FAULT: Final = "f1"
"""The fault of an attack, or its way there."""
BACK: Final = "f1-back"
"""Its way back, where the two are faults of their own."""


@dataclass(frozen=True, slots=True)
class Option:
    """A flag of a kind of attack."""

    flag: str
    quantity: Quantity
    about: str
    default: str | None = None
    """None: it must be given."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of attack."""

    about: str
    options: tuple[Option, ...] = ()
    make: Callable[..., faults.LinkFault] | None = None
    """Makes the fault of one direction from `sources`, `dests` and the options; None: the kind is
    no fault of links."""


RATE: Final = Option("rate", SHARE, "share of the packets, such as 10%%")
BY: Final = Option("by", DURATION, "how much later, such as 150ms")
_BYTES: Final = Option("rate", BANDWIDTH, "bytes that pass, such as 50KiB/s")
_JITTER: Final = Option("jitter", DURATION, "up to so much later still (default none)", "0s")


def _delay(*, sources: Names, dests: Names, by: float, jitter: float) -> faults.Delay:
    return faults.Delay(sources=sources, dests=dests, delay=by, jitter=jitter)


PARTITION: Final = "partition"
CUT: Final = "cut"
KILL: Final = "kill"
PAUSE: Final = "pause"
KINDS: Final[Mapping[str, Kind]] = {
    PARTITION: Kind("targets of one group hear each other, and nobody of another group"),
    CUT: Kind("nothing passes from a to b: cut 'a→b'", make=faults.Cut),
    "delay": Kind("packets arrive later", (BY, _JITTER), _delay),
    "loss": Kind("a share of the packets is lost", (RATE,), faults.Loss),
    "duplicate": Kind("a share of the packets arrives twice", (RATE,), faults.Duplicate),
    "reorder": Kind("a share of the packets is overtaken", (RATE, BY), faults.Reorder),
    "corrupt": Kind("a share of the packets arrives with a bit flipped", (RATE,), faults.Corrupt),
    "bandwidth": Kind("at most so many bytes a second pass", (_BYTES,), faults.Bandwidth),
    KILL: Kind("the processes of targets end at once (SIGKILL); pods are deleted"),
    PAUSE: Kind("the processes of targets stop (SIGSTOP), and go on afterwards; not of pods"),
}
"""By the word of the command line."""
OF_PROCESSES: Final = (KILL, PAUSE)


def check_groups(kind: str, asked: Groups) -> None:
    """Refuse (ConfigError) groups that a kind has no meaning for."""
    if kind == CUT and not asked.is_directed:
        raise ConfigError("cut: it has a direction: write it as a→b (or 'a->b')")
    if kind == PARTITION and asked.is_directed:
        raise ConfigError("partition: it has no direction: write a -- b, or cut a→b")
    if kind in OF_PROCESSES and (asked.is_directed or len(asked.groups) > 1):
        raise ConfigError(f"{kind}: it takes targets alone: {kind} a b")


def needs_neighbours(kind: str, asked: Groups) -> bool:
    """Whether an attack is between the targets and whatever is near them."""
    if kind in OF_PROCESSES or asked.is_directed or len(asked.groups) > 1:
        return False
    return kind == PARTITION or len(asked.groups[0]) == 1


def faults_of(
    kind: str, groups: tuple[Names, ...], options: Mapping[str, Any], *, is_directed: bool
) -> dict[str, NetworkFault]:
    """Return the faults of an attack by id. One group: on all ways within it."""
    if kind == PARTITION:
        return {FAULT: faults.Partition(groups=groups)}
    make = KINDS[kind].make
    assert make is not None, "it is a fault of links"
    if len(groups) == 1:
        return {FAULT: make(sources=groups[0], dests=groups[0], **options)}
    found: dict[str, NetworkFault] = {}
    for number, group in enumerate(groups):
        others = tuple(name for other in groups if other is not group for name in other)
        if is_directed:
            return {FAULT: make(sources=group, dests=others, **options)}
        if len(groups) > 2:  # noqa: PLR2004 there and back
            found[f"{FAULT}-{number}"] = make(sources=group, dests=others, **options)
        else:
            found[FAULT if not number else BACK] = make(sources=group, dests=others, **options)
    return found
