"""H2: a set that only grows keeps what was added to it, and holds nothing else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos.histories import sets
from stormcast.chaos.histories.quiet import Quiet
from stormcast.findings import Finding, Verdict
from tests.histories.clients import history, read_lines
from tests.histories.simulated import Line, Request, Simulation, ends

ADDED = ("0 invoke add 1", "0 ok add")
SEEDS = st.integers(0, 2**32)


def findings(*told: str, healed: float = 0.0, settle: float = 0.0) -> list[Finding]:
    return sets.check(history(*told), Quiet(healed, settle))


def read(process: int, elements: str) -> tuple[str, str]:
    return f"{process} invoke read", f"{process} ok read {elements}"


def assert_violated(found: list[Finding], detail: str, *witness: str) -> None:
    (one,) = [one for one in found if one.verdict is Verdict.VIOLATED]
    assert one.detail == f"the set: {detail}"
    assert tuple(shown.partition(",")[0] for shown in one.witness) == witness, one.witness


def test_what_was_acknowledged_is_read_in_quiet() -> None:
    assert findings(*ADDED, *read(1, "[1]")) == []
    assert findings(*ADDED, *ADDED, *read(1, "[1]")) == []


def test_what_is_missing_in_quiet_was_lost() -> None:
    found = findings(*ADDED, "0 invoke add 2", "0 ok add", *read(1, "[2]"))
    detail = "lost 1: acknowledged, and not in a read in quiet"
    assert_violated(found, detail, "ops.jsonl:1 process 0: add 1", "ops.jsonl:5 process 1: read")
    assert found[0].at == 6.0


def test_a_read_before_quiet_may_lack_what_was_added() -> None:
    """Quiet begins when all adds have ended, the last fault is over, and the guest has settled."""
    during = ("0 invoke add 2", *read(1, "[1]"), "0 ok add")
    assert findings(*ADDED, *during, *read(1, "[1, 2]")) == []
    assert findings(*ADDED, *read(1, "[]"), *read(1, "[1]"), healed=4.0) == []
    assert findings(*ADDED, *read(1, "[]"), *read(1, "[1]"), settle=2.0) == []
    assert findings(*ADDED, *read(1, "[]"), *read(1, "[1]"), healed=3.0, settle=0.0) != []


def test_a_set_that_nobody_read_in_quiet_is_unknown() -> None:
    for found in (findings(*ADDED), findings(*ADDED, *read(1, "[1]"), healed=3.1)):
        (one,) = found
        assert one.verdict is Verdict.UNKNOWN
        assert "nobody read it in quiet" in one.detail


def test_a_read_that_failed_or_that_nobody_knows_says_nothing() -> None:
    (one,) = findings(*ADDED, "1 invoke read", "1 info read", "2 invoke read", "2 fail read")
    assert one.verdict is Verdict.UNKNOWN


def test_what_nobody_knows_may_be_there_or_not() -> None:
    unknown = ("0 invoke add 1", "0 info add")
    assert findings(*unknown, *read(1, "[]"), *read(1, "[1]")) == []
    assert findings(*unknown, *read(1, "[]")) == []


def test_an_element_that_nobody_added_is_a_violation() -> None:
    reading = "ops.jsonl:3 process 1: read"
    assert_violated(
        findings(*ADDED, *read(1, "[1, 7]")),
        "a read has 7, which nobody had added by then",
        reading,
    )
    assert_violated(
        findings("0 invoke add 1", "0 fail add", *read(1, "[1]")),
        "a read has 1, which nobody had added but in an add that failed by then",
        "ops.jsonl:1 process 0: add 1",
        reading,
    )
    assert_violated(
        findings("0 invoke add 2", "0 ok add", *read(1, "[2, 1]"), *ADDED, *read(1, "[1, 2]")),
        "a read has 1, which nobody had added by then",
        reading,
        "ops.jsonl:5 process 0: add 1",
    )


def test_an_element_may_be_read_while_it_is_added() -> None:
    assert findings("0 invoke add 1", *read(1, "[1]"), "0 ok add", *read(1, "[1]")) == []


def test_what_was_read_stays() -> None:
    """Also what nobody knows whether it was added: the read has shown that it was."""
    unknown = ("0 invoke add 1", "0 info add")
    found = findings(*unknown, *read(1, "[1]"), *read(2, "[]"))
    first, second = "ops.jsonl:3 process 1: read", "ops.jsonl:5 process 2: read"
    assert_violated(found, "1 was read, and later not", first, second)
    # Of two reads at the same time none is later.
    both = ("1 invoke read", "2 invoke read", "1 ok read [1]", "2 ok read []")
    assert findings(*unknown, *both) == []


def test_an_element_is_in_a_set_once() -> None:
    found = findings(*ADDED, *read(1, "[1, 1]"))
    assert_violated(found, "a read has 1 more than once", "ops.jsonl:3 process 1: read")


def test_keys_are_sets_of_their_own() -> None:
    told = ("0 invoke add@x 1", "0 ok add@x", "0 invoke read@y", "0 ok read@y [1]")
    found = findings(*told, "0 invoke read@x", "0 ok read@x [1]")
    (one,) = found
    assert one.detail == "set y: a read has 1, which nobody had added by then"


@pytest.mark.parametrize(
    "told",
    [
        ["0 invoke remove 1"],
        ["0 invoke add"],
        ["0 invoke add 1", "0 ok add 2"],
        ["0 invoke read", "0 ok read"],
        ["0 invoke read", "0 ok read 1"],
    ],
)
def test_what_is_no_operation_of_a_set_is_malformed(told: list[str]) -> None:
    assert sets.malformed(history(*told).operations[0])


# -- Of sets that are right, and wrong -------------------------------------------------------------


class Elements:
    """A set as it should be."""

    def __init__(self) -> None:
        self.held: dict[object, None] = {}

    def __call__(self, request: Request) -> tuple[bool, object]:
        if request.f == "read":
            return True, list(self.held)
        self.held[request.value] = None
        return True, request.value


def played(seed: int) -> list[Line]:
    """Elements that are added and read at the same time, and a read at the end."""
    random = Random(seed)
    simulation = Simulation(random, Elements(), processes=random.randint(1, 6))
    requests = [
        ("read", None, None) if random.random() < 0.3 else ("add", None, element)
        for element in range(40)
    ]
    simulation.play(requests)
    simulation.late.clear()
    simulation.alone("read", None)
    return simulation.lines


def judged(lines: list[Line]) -> dict[str, Finding]:
    """The violations, by the word in which they differ."""
    found = sets.check(read_lines(lines), Quiet(0.0))
    assert all(one.verdict is Verdict.VIOLATED for one in found)
    words = ("lost", "nobody", "later not", "more than once")
    return {next(word for word in words if word in one.detail): one for one in found}


@pytest.mark.slow
@given(seed=SEEDS)
def test_clients_of_a_set_find_one(seed: int) -> None:
    assert judged(played(seed)) == {}


@pytest.mark.slow
@given(seed=SEEDS)
def test_a_lost_element_is_found_with_its_add_and_the_read(seed: int) -> None:
    lines = played(seed)
    acked = [line["value"] for line in ends(lines, "add")]
    lost = acked[seed % len(acked)]
    for read_line in ends(lines, "read"):
        read_line["value"] = [one for one in read_line["value"] if one != lost]
    found = judged(lines)
    assert set(found) == {"lost"}
    add, reading = found["lost"].witness
    assert f"add {lost}, ok" in add
    assert ": read, ok" in reading


@pytest.mark.slow
@given(seed=SEEDS)
def test_an_element_that_is_gone_from_the_last_read_is_found(seed: int) -> None:
    lines = played(seed)
    reads = [line for line in ends(lines, "read") if line["value"]]
    if len(reads) > 1:
        gone = reads[0]["value"][0]
        reads[-1]["value"] = [one for one in reads[-1]["value"] if one != gone]
        found = judged(lines)
        assert "later not" in found
        assert {"later not", "lost"} >= set(found)
        assert len(found["later not"].witness) == 2


@pytest.mark.slow
@given(seed=SEEDS)
def test_what_is_read_and_was_never_added_or_is_there_twice_is_found(seed: int) -> None:
    lines = played(seed)
    last = ends(lines, "read")[-1]["value"]
    last.append(7000)
    assert set(judged(lines)) == {"nobody"}
    last[-1:] = last[:1]
    assert set(judged(lines)) == ({"more than once"} if last else set())
