"""What labelled loads have sent, however long ago."""

from __future__ import annotations

from math import inf

from stormcast.node.member.jobs import Job, Sending
from stormcast.node.member.labels import Labels
from stormcast.node.member.loads import read_load


def job(label: str, error: str = "", **accepted: int) -> Job:
    made = Job(read_load({"do": "unicast", "label": label}), 0.0, inf, error=error)
    made.sendings = {dest: Sending(dest, 0.0, accepted=n) for dest, n in accepted.items()}
    return made


def test_loads_of_one_label_are_added_up_with_those_that_are_forgotten() -> None:
    labels = Labels()
    labels.keep([job("a", n1=3)])
    running = [job("a", n1=1, n2=5), job("b")]
    for _ in range(2):
        assert labels.sent(running) == {"a": {"n1": 4, "n2": 5}, "b": {}}


def test_the_first_error_of_a_label_is_kept() -> None:
    labels = Labels()
    for error in ("too large", "closed"):
        labels.note_error(job("a", error))
    assert labels.errors == {"a": "too large"}
