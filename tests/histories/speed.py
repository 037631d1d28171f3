"""How fast histories are read and judged: `python -m tests.histories.speed`, from the repository.

Each history is of 10,000 operations of ten clients, of which nobody knows the end of each tenth,
and of which each tenth fails. What is printed is time of the processor, the best of three.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from random import Random
from time import process_time
from typing import Any

from stormcast.chaos.histories.judging import FaultWindow, judge
from stormcast.chaos.histories.reading import read_history_untrusted
from tests.histories import test_list_append, test_queues, test_register, test_sets
from tests.histories.simulated import Apply, Line, Simulation

COUNT = 10_000
Requests = Iterator[tuple[str, str | None, Any]]


def register(random: Random, keys: int) -> Requests:
    for number in range(1, COUNT + 1):
        kind = random.choice(["read", "read", "write", "write", "cas"])
        value = [number - random.randrange(1, 50), number] if kind == "cas" else number
        yield kind, f"k{random.randrange(keys)}", None if kind == "read" else value


def elements(random: Random) -> Requests:
    for number in range(COUNT):
        yield ("read", None, None) if random.random() < 0.01 else ("add", None, number)


def queue(random: Random) -> Requests:
    for number in range(COUNT):
        yield ("dequeue", None, None) if random.random() < 0.4 else ("enqueue", None, number)


def lists(random: Random) -> Requests:
    """Three steps each; of each list a hundred transactions."""
    for number in range(COUNT):
        steps = [
            ["append", f"k{number // 100}", 3 * number + step]
            if random.random() < 0.5
            else ["r", f"k{number // 100}", None]
            for step in range(3)
        ]
        yield "txn", None, steps


def played(apply: Apply, requests: Requests, last: tuple[str, Any] | None) -> bytes:
    simulation = Simulation(Random(1), apply, processes=10)
    simulation.play(requests)
    simulation.late.clear()
    if last is not None:
        simulation.alone(last[0], None, last[1])
    return b"".join(json.dumps(_end(line)).encode() + b"\n" for line in simulation.lines)


def _end(line: Line) -> Line:
    if line["type"] in {"fail", "info"}:
        del line["value"]
    return line


def best(what: Callable[[], Any]) -> tuple[float, Any]:
    times = []
    for _ in range(3):
        begin = process_time()
        result = what()
        times.append(process_time() - begin)
    return min(times), result


def histories() -> Iterator[tuple[str, str, bytes]]:
    """Yield what the history is, its model, and its bytes."""
    random = Random(1)
    for keys in (10, 1):
        lines = played(test_register.Registers(), register(random, keys), None)
        yield f"register, {keys} keys", "register", lines
    yield "set", "set", played(test_sets.Elements(), elements(random), ("read", None))
    yield "queue", "queue", played(test_queues.Elements(), queue(random), ("drain", None))
    every = [["r", f"k{key}", None] for key in range(COUNT // 100)]
    wrong = test_list_append.Wrong(random, 0.0)
    yield "list-append", "list-append", played(wrong, lists(random), ("txn", every))


def main() -> None:
    windows = [FaultWindow(0, 10, "f1")]
    for name, model, data in histories():
        reading, told = best(lambda data=data: read_history_untrusted(BytesIO(data), "ops.jsonl"))
        judging, found = best(lambda told=told, model=model: judge(told, model, windows))
        sys.stdout.write(
            f"{name:20} {len(data) / 1e6:5.1f} MB  read {reading:5.2f}s  judge {judging:5.2f}s  "
            f"{COUNT / (reading + judging):8.0f} operations/s  {found[0].verdict}\n"
        )


if __name__ == "__main__":
    main()
