"""Traces in the memory of the simulator: within a limit, and forgotten when a soak says so."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.traces import TraceLimitError, Traces
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer


def write(tracer: Tracer) -> None:
    tracer.offered(0.0, peer=2, lo=1, hi=1)
    tracer.seal()


def test_what_is_forgotten_is_gone_and_the_living_go_on() -> None:
    traces = Traces(1 << 20)
    living, dead = traces.tracer(1, "a-1"), traces.tracer(2, "b-1")
    write(living)
    write(dead)
    assert set(traces.joined()) == {"a-1", "b-1"}

    traces.forget({"a-1"})
    assert traces.joined() == {"a-1": b""}

    write(living)
    (block,) = read_blocks_untrusted(traces.joined()["a-1"], xxh3_64_intdigest)
    assert (block.member, len(block.events)) == (1, 1)


def test_all_traces_together_have_a_limit_which_begins_anew() -> None:
    traces = Traces(1 << 20)
    write(traces.tracer(1, "a-1"))
    size = len(traces.joined()["a-1"])

    traces = Traces(2 * size)
    one, other = traces.tracer(1, "a-1"), traces.tracer(2, "b-1")
    write(one)
    write(other)
    with pytest.raises(TraceLimitError, match=f"limits.trace \\({2 * size} B\\)"):
        write(one)

    traces.forget({"a-1", "b-1"})
    write(other)
