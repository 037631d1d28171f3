"""Metrics: named as Prometheus wants them, read only when asked for, and bounded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.member.metrics import ALL, BY_STAT, COUNTER, FIGURES, MAX_PEERS, Metrics
from tests.helpers.channel import address

ROOT = Path(__file__).parents[2]


class Subject:
    """A member that counts as it is told."""

    def __init__(self, members: int = 3, **stats: int | float) -> None:
        listed = tuple(address(f"n{number}") for number in range(members))
        self.view: View | None = View(ViewId(7, listed[0]), listed) if listed else None
        self.me: Address | None = listed[0] if listed else None
        self.is_connected = bool(listed)
        self.figures: dict[str, int | float] = {
            key.replace("__", "."): n for key, n in stats.items()
        }
        self.asked = 0

    @property
    def labels(self) -> Mapping[str, str]:
        return {"member": 'n"0\n', "short": "ab", "cluster": "c", "stack": "udp", "timing": "fast"}

    def stats(self) -> Mapping[str, int | float]:
        self.asked += 1
        return self.figures

    def received_from(self) -> Mapping[str, int]:
        names = [member.name for member in self.view.members] if self.view is not None else []
        return {**dict.fromkeys(names, 5), "gone": 9}


def scraped(subject: Subject) -> dict[str, Metric]:
    text = Metrics(subject).text().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(subject: Subject, name: str, /, **labels: str) -> float | None:
    for family in scraped(subject).values():
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def test_a_figure_is_what_the_member_counts() -> None:
    subject = Subject(transport__bytes_sent=1234, journal__segments=3)
    assert value(subject, "stormcast_transport_sent_bytes_total") == 1234
    assert value(subject, "stormcast_journal_segments") == 3
    assert value(subject, "stormcast_view_members") == 3
    assert value(subject, "stormcast_view_number") == 7
    assert value(subject, "stormcast_view_coordinates") == 1
    assert value(subject, "stormcast_connected") == 1


def test_nothing_is_asked_before_a_scrape_and_once_per_scrape() -> None:
    subject = Subject()
    metrics = Metrics(subject)
    assert subject.asked == 0
    metrics.text()
    assert subject.asked == 1
    metrics.text()
    assert subject.asked == 2


def test_who_it_is_is_a_label_whatever_it_is_called() -> None:
    family = scraped(Subject())["stormcast_member_info"]
    (sample,) = family.samples
    assert sample.labels["member"] == 'n"0\n'
    assert sample.labels["version"]


def test_reasons_and_events_are_labels() -> None:
    subject = Subject()
    subject.figures = {
        "stack.refused.cluster": 3,
        "stack.refused.probe-discard": 4,
        "stack.abandoned.stop": 6,
        "transport.dropped_queue_full": 5,
    }
    assert value(subject, "stormcast_abandoned_messages_total", reason="stop") == 6
    assert value(subject, "stormcast_refused_total", reason="cluster") == 3
    assert value(subject, "stormcast_refused_total", reason="probe-discard") == 4
    assert value(subject, "stormcast_transport_events_total", event="dropped_queue_full") == 5


def test_a_figure_without_a_metric_is_not_lost() -> None:
    subject = Subject()
    subject.figures = {"something.new": 1.5}
    assert value(subject, FIGURES.name, name="something.new") == 1.5


def test_peers_are_told_apart_in_small_groups_only_and_while_they_are_there() -> None:
    name = "stormcast_peer_received_messages_total"
    assert value(Subject(), name, peer="n1") == 5
    assert value(Subject(), name, peer="gone") is None
    assert value(Subject(MAX_PEERS), name, peer="n1") == 5
    assert value(Subject(MAX_PEERS + 1), name, peer="n1") is None


def test_a_member_that_has_no_view_yet_can_be_scraped() -> None:
    found = scraped(Subject(0))
    assert "stormcast_view_members" not in found
    assert value(Subject(0), "stormcast_connected") == 0


def test_two_members_of_one_process_have_registries_of_their_own() -> None:
    one, other = Metrics(Subject()), Metrics(Subject())
    assert one.text().startswith(b"# HELP")
    assert other.text().startswith(b"# HELP")


@pytest.mark.parametrize("described", ALL, ids=lambda described: described.name)
def test_names_and_helps_are_as_they_should_be(described: object) -> None:
    assert isinstance(described, type(FIGURES))
    assert re.fullmatch(r"stormcast_[a-z]+(_[a-z]+)*", described.name)
    assert described.name.endswith("_total") == (described.kind == COUNTER)
    assert described.about.endswith(".")
    assert not re.search(r"_(ms|milliseconds|kb|mb|kilobytes|megabytes|count)(_|$)", described.name)


def test_no_name_is_used_twice() -> None:
    names = [described.name for described in ALL]
    assert len(set(names)) == len(names)
    assert set(BY_STAT.values()) <= set(ALL)


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    """What a member imports until somebody scrapes it: memory that most members can spare."""
    code = (
        "import sys\n"
        "from stormcast.node.member import cli, endpoints, member\n"
        "from stormcast.node.control import server\n"
        "print([name for name in sys.modules if name.startswith(('prometheus_client',"
        " 'uvloop', 'pyarrow', 'stormcast.chaos'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_docs_list_every_metric() -> None:
    text = (ROOT / "docs" / "node.md").read_text()
    told = dict(re.findall(r"^\| `(stormcast_\w+)` \| (.*) \|$", text, re.MULTILINE))
    labels = {
        one.name: f" Labels: {', '.join(f'`{label}`' for label in one.labels)}."
        if one.labels
        else ""
        for one in ALL
    }
    assert told == {one.name: one.about + labels[one.name] for one in ALL}
