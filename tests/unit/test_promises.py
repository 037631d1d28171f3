"""The bounds that guarantees are judged by are promised by members."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stormcast.node.core.model import Address
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
STACKS = ("udp", "mcast", "tcp", "tcp-nio2", "tcp-no-retransmit")


def promises(stack: str, timing: str) -> dict[str, dict[str, float]]:
    """What a member of a group promises, by protocol."""
    tracer = Tracer(1, 0, hash, lambda _block: None)
    settings = load_settings(stack, timing)
    return Stack(Address(1, "n", ""), "c", settings, hash, tracer, 0.0).record.bounds()


def named() -> set[str]:
    """The bounds that the page on guarantees names: in the table of C1, and those of times."""
    text = GUARANTEES.read_text()
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    table = re.findall(r"`(\w+)`", " ".join(rows))
    return {*table, *re.findall(r"`([a-z_]+_(?:within|interval))`", text)} - {"xmit_interval"}


def test_each_bound_that_a_guarantee_names_is_promised_by_somebody() -> None:
    assert {"ack_spacing", "purge_within", "tail_repeats", "resend_interval"} <= named()
    promised = {
        name
        for stack in STACKS
        for bounds in promises(stack, "compatible").values()
        for name in bounds
    }
    assert named() <= promised


@pytest.mark.parametrize("timing", ["compatible", "fast"])
@pytest.mark.parametrize("stack", STACKS)
def test_each_stack_promises_when_it_purges_what_all_have(stack: str, timing: str) -> None:
    """Not before a member votes, or a sender has repeated its announcements."""
    found = promises(stack, timing)
    least = found["STABLE"]["vote_within"] if "STABLE" in found else found["MCAST"]["ack_within"]
    purger = found.get("NAKACK2") or found["MCAST"]
    assert least < purger["purge_within"] < 60.0
