"""H3: a queue loses nothing, delivers nothing twice, and keeps the order of each producer."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos.histories import queues
from stormcast.chaos.histories.quiet import Quiet
from stormcast.findings import Finding, Verdict
from tests.histories.clients import history, read_lines
from tests.histories.simulated import Line, Request, Simulation, ends

SEEDS = st.integers(0, 2**32)
EMPTY = ("9 invoke dequeue", "9 ok dequeue null")


def put(element: int, process: int = 0, end: str = "ok") -> tuple[str, str]:
    return f"{process} invoke enqueue {element}", f"{process} {end} enqueue"


def got(element: int, process: int = 1) -> tuple[str, str]:
    return f"{process} invoke dequeue", f"{process} ok dequeue {element}"


def drained(elements: str, process: int = 9) -> tuple[str, str]:
    return f"{process} invoke drain", f"{process} ok drain {elements}"


def findings(*told: str, healed: float = 0.0) -> list[Finding]:
    return queues.check(history(*told), Quiet(healed))


def assert_violated(found: list[Finding], detail: str, *witness: int) -> None:
    (one,) = [one for one in found if one.verdict is Verdict.VIOLATED]
    assert one.detail == f"the queue: {detail}"
    assert [int(shown.split(":")[1].split(" ")[0]) for shown in one.witness] == list(witness)


def assert_unknown(found: list[Finding], detail: str) -> None:
    (one,) = found
    assert one.verdict is Verdict.UNKNOWN
    assert detail in one.detail


def test_what_was_enqueued_is_delivered_once() -> None:
    assert findings(*put(1), *put(2), *got(1), *got(2), *EMPTY) == []
    assert findings(*put(1), *put(2), *got(1), *drained("[2]")) == []
    assert findings(*put(1), *put(2), *drained("[1, 2]")) == []


def test_what_is_not_there_when_the_queue_is_empty_was_lost() -> None:
    detail = "lost 1: acknowledged, not delivered, and passed over or not there later"
    assert_violated(findings(*put(1), *EMPTY), detail, 1, 3)
    assert_violated(findings(*put(1), *drained("[]")), detail, 1, 3)
    assert findings(*put(1), *EMPTY)[0].at == 4.0


def test_what_was_passed_over_was_lost_also_in_a_queue_that_is_not_empty() -> None:
    """2 was enqueued after 1 by the same producer: who got 2 had to get 1 first."""
    detail = "lost 1: acknowledged, not delivered, and passed over or not there later"
    found = findings(*put(1), *put(2), *put(3), *got(2))
    assert_violated(found, detail, 1, 7)
    assert_unknown(findings(*put(1), *put(2, process=5), *got(2)), "not drained")


def test_a_queue_that_nobody_found_empty_in_quiet_is_unknown() -> None:
    assert_unknown(findings(*put(1), *got(1)), "not drained")
    assert_unknown(findings(*EMPTY, *put(1), *got(1)), "not drained")
    assert_unknown(findings(*put(1), *got(1), *EMPTY, healed=5.5), "from 5.5s on")
    assert_unknown(findings(*put(1), *got(1), "9 invoke dequeue", "9 fail dequeue"), "not drained")
    assert findings(*put(1), *got(1), *EMPTY, healed=5.0) == []


def test_an_element_is_delivered_once() -> None:
    found = findings(*put(1), *got(1), *got(1, process=2), *EMPTY)
    assert_violated(found, "1 was delivered twice", 3, 5)
    assert_violated(findings(*put(1), *drained("[1, 1]")), "1 was delivered twice", 3)
    assert_violated(findings(*put(1), *got(1), *drained("[1]")), "1 was delivered twice", 3, 5)


def test_nothing_comes_from_nowhere() -> None:
    detail = "1 was delivered, and nobody enqueued it"
    assert_violated(findings(*got(1), *EMPTY), detail, 1)
    detail = "1 was delivered, and its enqueue failed"
    assert_violated(findings(*put(1, end="fail"), *got(1), *EMPTY), detail, 1, 3)
    detail = "1 was delivered before anybody enqueued it"
    assert_violated(findings(*got(1), *put(1), *EMPTY), detail, 1, 3)
    during = ("0 invoke enqueue 1", *got(1), "0 ok enqueue")
    assert findings(*during, *EMPTY) == []


def test_the_order_of_each_producer_is_kept() -> None:
    detail = "2 was delivered before 1, which its producer had enqueued before"
    assert_violated(findings(*put(1), *put(2), *got(2), *got(1), *EMPTY), detail, 1, 3, 5, 7)
    assert_violated(findings(*put(1), *put(2), *drained("[2, 1]")), detail, 1, 3, 5)
    assert_violated(findings(*put(1), *put(2), *got(2), *drained("[1]")), detail, 1, 3, 5, 7)
    assert findings(*put(1), *put(2, process=5), *got(2), *got(1), *EMPTY) == []


def test_two_deliveries_at_one_time_have_no_order() -> None:
    both = ("1 invoke dequeue", "2 invoke dequeue", "1 ok dequeue 2", "2 ok dequeue 1")
    assert findings(*put(1), *put(2), *both, *EMPTY) == []


def test_an_enqueue_that_nobody_knows_may_come_late_or_never() -> None:
    assert findings(*put(1, end="info"), *EMPTY) == []
    assert findings(*put(1, end="info"), *put(2), *got(2), *got(1), *EMPTY) == []
    assert findings(*put(1, end="info"), *put(2), *drained("[2, 1]")) == []
    # What follows one that was acknowledged comes behind it, whatever became of it.
    assert findings(*put(1), *put(2, end="info"), *got(2), *got(1), *EMPTY) != []


def test_a_dequeue_that_nobody_knows_may_have_taken_one_element() -> None:
    lost_answer = ("1 invoke dequeue", "1 info dequeue")
    found = findings(*put(1), *lost_answer, *EMPTY)
    assert_unknown(found, "nobody knows whether dequeues that did not end have taken")
    assert findings(*put(1), *lost_answer, *got(1), *EMPTY) == []
    found = findings(*put(1), *put(2), *lost_answer, *EMPTY)
    assert_violated(
        found,
        "lost 1, 2: acknowledged, not delivered, and passed over or not there later; 2 are "
        "missing, and no more than 1 dequeues that did not end may have taken one each",
        1,
        3,
        5,
        7,
    )
    # One that begins after the queue was found empty has not taken what was missing then.
    assert_violated(
        findings(*put(1), *EMPTY, *lost_answer),
        "lost 1: acknowledged, not delivered, and passed over or not there later",
        1,
        3,
    )


def test_a_drain_that_nobody_knows_may_have_taken_all() -> None:
    lost_answer = ("1 invoke drain", "1 info drain")
    assert_unknown(findings(*put(1), *put(2), *lost_answer, *EMPTY), "nobody knows")
    assert findings(*put(1), *EMPTY, *lost_answer)[0].verdict is Verdict.VIOLATED


def test_an_element_that_is_enqueued_twice_lets_nothing_be_judged() -> None:
    assert_unknown(findings(*put(1), *put(1), *got(1), *got(1), *got(1)), "1 is enqueued twice")


def test_keys_are_queues_of_their_own() -> None:
    told = ("0 invoke enqueue@x 1", "0 ok enqueue@x", "0 invoke drain@y", "0 ok drain@y [1]")
    found = findings(*told, "0 invoke drain@x", "0 ok drain@x [1]")
    (one,) = found
    assert one.detail == "queue y: 1 was delivered, and nobody enqueued it"


@pytest.mark.parametrize(
    "told",
    [
        ["0 invoke push 1"],
        ["0 invoke enqueue"],
        ["0 invoke enqueue null"],
        ["0 invoke enqueue 1", "0 ok enqueue 2"],
        ["0 invoke dequeue", "0 ok dequeue"],
        ["0 invoke drain", "0 ok drain 1"],
        ["0 invoke drain", "0 ok drain [null]"],
    ],
)
def test_what_is_no_operation_of_a_queue_is_malformed(told: list[str]) -> None:
    assert queues.malformed(history(*told).operations[0])


# -- Of queues that are right, and wrong -----------------------------------------------------------


class Elements:
    """A queue as it should be."""

    def __init__(self) -> None:
        self.held: list[object] = []

    def __call__(self, request: Request) -> tuple[bool, object]:
        if request.f == "dequeue":
            return True, self.held.pop(0) if self.held else None
        if request.f == "drain":
            held, self.held = self.held, []
            return True, held
        self.held.append(request.value)
        return True, request.value


def played(seed: int, info: float = 0.1) -> list[Line]:
    random = Random(seed)
    simulation = Simulation(random, Elements(), processes=random.randint(1, 6), info=info)
    requests = [
        ("dequeue", None, None) if random.random() < 0.4 else ("enqueue", None, element)
        for element in range(40)
    ]
    simulation.play(requests)
    simulation.late.clear()
    if random.random() < 0.5:
        simulation.alone("drain", None)
    else:
        while simulation.alone("dequeue", None) is not None:
            pass
    return simulation.lines


def judged(lines: list[Line]) -> list[Finding]:
    return queues.check(read_lines(lines), Quiet(0.0))


def violations(lines: list[Line]) -> list[str]:
    return [one.detail for one in judged(lines) if one.verdict is Verdict.VIOLATED]


def deliveries(lines: list[Line]) -> list[Line]:
    return [line for line in ends(lines, "dequeue") if line["value"] is not None]


@pytest.mark.slow
@given(seed=SEEDS)
def test_clients_of_a_queue_find_one(seed: int) -> None:
    """Where an answer of a dequeue was lost, nobody knows what it took."""
    found = judged(played(seed))
    assert all(one.verdict is Verdict.UNKNOWN for one in found), found
    assert all("nobody knows whether" in one.detail for one in found)
    assert judged(played(seed, info=0.0)) == []


@pytest.mark.slow
@given(seed=SEEDS)
def test_a_lost_element_is_found(seed: int) -> None:
    lines = played(seed, info=0.0)
    taken = deliveries(lines)
    if taken:
        lost = taken[seed % len(taken)]
        element, lost["type"] = lost["value"], "fail"
        (found,) = judged(lines)
        assert found.detail.startswith(f"the queue: lost {element}: ")
        assert f"enqueue {element}, ok" in found.witness[0]
        assert len(found.witness) == 2


@pytest.mark.slow
@given(seed=SEEDS)
def test_an_element_that_is_delivered_again_is_found(seed: int) -> None:
    lines = played(seed)
    taken = deliveries(lines)
    if taken:
        again = taken[seed % len(taken)]["value"]
        time = len(lines)
        for kind, value in (("invoke", None), ("ok", again)):
            lines.append(
                {"process": 77, "type": kind, "f": "dequeue", "value": value, "time": time}
            )
        assert f"the queue: {again} was delivered twice" in violations(lines)


@pytest.mark.slow
@given(seed=SEEDS)
def test_two_deliveries_that_change_places_are_found_if_their_order_is_known(seed: int) -> None:
    """By a single producer and a single consumer it always is."""
    random = Random(seed)
    simulation = Simulation(random, Elements(), processes=1, info=0.0)
    simulation.play([("enqueue", None, element) for element in range(20)])
    while simulation.alone("dequeue", None) is not None:
        pass
    lines = simulation.lines
    taken = deliveries(lines)
    at = random.randrange(len(taken) - 1)
    one, other = taken[at], taken[at + 1]
    one["value"], other["value"] = other["value"], one["value"]
    (found,) = judged(lines)
    assert found.detail == (
        f"the queue: {one['value']} was delivered before {other['value']}, which its producer had "
        "enqueued before"
    )
    assert len(found.witness) == 4
