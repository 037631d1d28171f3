"""The flaw museum: flaws of the design notes and of our own first version, each shown on a version
that has the flaw, and shown gone on a version that fixes it. Members without a key, between whom
strangers are, stand beside them: there the fix is a key.

An exhibit is one scenario, run twice. The flawed run must be violated, in the guarantee and with
the witness that the exhibit names; the fixed run must hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario

SEED: Final = 1

FIRST_VERSION: Final = "the first version"
"""The note of a flaw of our own first version."""

STRANGERS: Final = "strangers"
"""The wing of members without a key."""

WINGS: Final = ("unicast", "multicast", FIRST_VERSION, STRANGERS)

Setting = Mapping[str, object]
"""First the generation (`unicast`) or the stack. Then flaws, settings of protocols, and whether
members have a key (`sealed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One flaw."""

    name: str
    """The name of its scenario file in `scenarios/museum/`."""
    note: str
    """The design note, or the part of docs/security.md, that describes the flaw."""
    guarantee: str
    """The guarantee that the flaw breaks."""
    witness: str
    """Words that the finding or its witness must contain."""
    flawed: Setting
    """The settings of the flawed run: historical ones that bring the flaw back, settings (by
    protocol and name) that were allowed once, or no key."""
    fixed: Setting
    """The settings of the fixed run."""

    @property
    def wing(self) -> str:
        """The part of the museum that the exhibit belongs to."""
        if self.note == FIRST_VERSION:
            return FIRST_VERSION
        if "sealed" in self.flawed:
            return STRANGERS
        return "unicast" if "unicast" in self.flawed else "multicast"


EXHIBITS: Final = (
    Exhibit(
        name="stored-for-ever",
        note="UNICAST2, motivation",
        guarantee="G1",
        witness="seqno 25",
        flawed={"unicast": "UNICAST", "conn_ids": "none"},
        fixed={"unicast": "UNICAST2"},
    ),
    Exhibit(
        name="first-six-discarded",
        note="UNICAST2, motivation",
        guarantee="G1",
        witness="seqno 1",
        flawed={"unicast": "UNICAST", "conn_ids": "none"},
        fixed={"unicast": "UNICAST2"},
    ),
    Exhibit(
        name="second-message-acked-and-lost",
        note="UNICAST2, scenario #6 (JGRP-968)",
        guarantee="G1",
        witness="seqno 2",
        flawed={"unicast": "UNICAST", "conn_ids": "first"},
        fixed={"unicast": "UNICAST"},
    ),
    Exhibit(
        name="first-message-dropped",
        note="UNICAST3, JGRP-1563",
        guarantee="G1",
        witness="seqno 1",
        flawed={"unicast": "UNICAST2", "repair_ends": False},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="last-message-dropped",
        note="UNICAST3, JGRP-1548",
        guarantee="G1",
        witness="seqno 5",
        flawed={"unicast": "UNICAST2", "repair_ends": False},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="old-ack-purges-new-connection",
        note="UNICAST3, JGRP-1577",
        guarantee="G7",
        witness="purged",
        flawed={"unicast": "UNICAST", "conn_check": False},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="closed-without-flush",
        note="UNICAST3, JGRP-1586",
        guarantee="G1",
        witness="removed",
        flawed={"unicast": "UNICAST2", "flush_on_close": False},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="first-seqno-storm",
        note="UNICAST3 sync, JGRP-1874",
        guarantee="C1",
        witness="sync",
        flawed={"unicast": "UNICAST3", "sync_spacing": False},
        fixed={"unicast": "UNICAST3-SYNC"},
    ),
    Exhibit(
        name="delayed-ack-purges-unseen",
        note="UNICAST3 sync, JGRP-1873, JGRP-1875",
        guarantee="G1",
        witness="seqno 26",
        flawed={"unicast": "UNICAST3-SYNC", "stamps": False, "remembers_delivered": False},
        fixed={"unicast": "UNICAST3-SYNC"},
    ),
    Exhibit(
        name="ack-traffic",
        note="UNICAST3, characteristics of UNICAST",
        guarantee="C1",
        witness="acks",
        flawed={"unicast": "UNICAST"},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="needless-resends",
        note="UNICAST3, characteristics of UNICAST",
        guarantee="C1",
        witness="resen",
        flawed={"unicast": "UNICAST"},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="heal-before-close-timeout",
        note="UNICAST3, connection establishment",
        guarantee="G1",
        witness="n0",
        flawed={"unicast": "UNICAST", "conn_ids": "none"},
        fixed={"unicast": "UNICAST3"},
    ),
    Exhibit(
        name="heal-after-close-timeout",
        note="UNICAST3 sync, issue",
        guarantee="G1",
        witness="n0",
        flawed={"unicast": "UNICAST", "conn_ids": "none"},
        fixed={"unicast": "UNICAST3-SYNC"},
    ),
    Exhibit(
        name="joiner-queue-drops-oldest",
        note="NAKACK2 without retransmission, become-server queue",
        guarantee="G8",
        witness="c had 0 of 70 from b",
        flawed={"stack": "group-museum", "queue_overflow": "drop-oldest"},
        fixed={"stack": "group-museum"},
    ),
    Exhibit(
        name="joiner-queue-refuses-newest",
        note="NAKACK2 without retransmission, become-server queue",
        guarantee="G8",
        witness="c had 50 of 70 from b",
        flawed={"stack": "group-museum", "queue_overflow": "refuse-newest"},
        fixed={"stack": "group-museum"},
    ),
    Exhibit(
        name="receive-queue-drops",
        note="NAKACK2 without retransmission, thread pool",
        guarantee="G8",
        witness="of 400 from b",
        flawed={"stack": "group-museum", "TCP_NIO2.receive_queue": 20},
        fixed={"stack": "group-museum"},
    ),
    Exhibit(
        name="send-buffers-drop",
        note="NAKACK2 without retransmission, NIO2 buffers",
        guarantee="G8",
        witness="of 400 from b",
        flawed={"stack": "group-museum", "TCP_NIO2.max_send_buffers": 10},
        fixed={"stack": "group-museum"},
    ),
    Exhibit(
        name="disordered-sending",
        note="MCAST, sending",
        guarantee="C1",
        witness="request",
        flawed={"stack": "mcast-museum", "split_send": True},
        fixed={"stack": "mcast-museum"},
    ),
    Exhibit(
        name="storm-over-a-stream",
        note="NAKACK2 without retransmission, goal",
        guarantee="C1",
        witness="resen",
        flawed={"stack": "group-museum", "NAKACK2.xmit_interval": 1.0},
        fixed={"stack": "group-museum"},
    ),
    Exhibit(
        name="refused-after-acked",
        note=FIRST_VERSION,
        guarantee="G1",
        witness="its application was never handed it",
        flawed={"stack": "mcast-museum", "sender_keeps_bound": False},
        fixed={"stack": "mcast-museum"},
    ),
    Exhibit(
        name="waiting-is-not-idle",
        note=FIRST_VERSION,
        guarantee="G1",
        witness="gave up messages",
        flawed={"stack": "group-museum", "waiting_is_use": False},
        fixed={"stack": "group-museum"},
    ),
    Exhibit(
        name="question-about-a-dead-connection",
        note=FIRST_VERSION,
        guarantee="C1",
        witness="of a connection that had ended",
        flawed={"stack": "mcast-museum", "asks_anew": False},
        fixed={"stack": "mcast-museum"},
    ),
    Exhibit(
        name="given-up-before-the-view",
        note=FIRST_VERSION,
        guarantee="G1",
        witness="without flushing it",
        flawed={"stack": "mcast-museum", "view_decides": False},
        fixed={"stack": "mcast-museum"},
    ),
    Exhibit(
        name="delivered-again",
        note=FIRST_VERSION,
        guarantee="G2",
        witness="was delivered again, in another window",
        flawed={"stack": "mcast-museum", "remembers_delivered": False},
        fixed={"stack": "mcast-museum"},
    ),
    Exhibit(
        name="read-on-the-way",
        note="security, who hears the network",
        guarantee="S1",
        witness="overheard from a",
        flawed={"stack": "udp", "sealed": False},
        fixed={"stack": "udp", "sealed": True},
    ),
    Exhibit(
        name="kept-alive-by-a-replay",
        note="security, who records frames",
        guarantee="G8",
        witness="a b in view",
        flawed={"stack": "udp", "sealed": False},
        fixed={"stack": "udp", "sealed": True},
    ),
    Exhibit(
        name="message-in-anothers-name",
        note="security, who sends forged frames",
        guarantee="G4",
        witness="delivered from a",
        flawed={"stack": "udp", "sealed": False},
        fixed={"stack": "udp", "sealed": True},
    ),
    Exhibit(
        name="leave-in-anothers-name",
        note="security, who sends forged frames",
        guarantee="V2",
        witness="is without c, which lives",
        flawed={"stack": "udp", "sealed": False},
        fixed={"stack": "udp", "sealed": True},
    ),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """An exhibit after both its runs."""

    exhibit: Exhibit
    flawed: RunOutcome
    fixed: RunOutcome

    @property
    def is_as_described(self) -> bool:
        """Whether the flawed run shows the flaw as described, and the fixed run holds."""
        return self.flaw_is_shown and self.fixed.verdict is Verdict.HOLDS

    @property
    def flaw_is_shown(self) -> bool:
        finding = next(
            (
                found
                for found in self.flawed.judgement.findings
                if found.guarantee == self.exhibit.guarantee
            ),
            None,
        )
        if finding is None or finding.verdict is not Verdict.VIOLATED:
            return False
        return self.exhibit.witness in " ".join((finding.detail, *finding.witness))

    @property
    def shown_witness(self) -> str:
        """The proof of the flaw in one line: an event, or for C1 the amount of traffic."""
        finding = self.flawed.judgement.of(self.exhibit.guarantee)
        if self.exhibit.guarantee == "C1" or not finding.witness:
            return finding.detail
        return finding.witness[0]

    def as_json(self) -> dict[str, Any]:
        """Return the row of `stormcast museum --json`."""
        return {
            "exhibit": self.exhibit.name,
            "note": self.exhibit.note,
            "guarantee": self.exhibit.guarantee,
            "flawed": dict(self.exhibit.flawed),
            "fixed": dict(self.exhibit.fixed),
            "flawed_verdict": str(self.flawed.verdict),
            "fixed_verdict": str(self.fixed.verdict),
            "as_described": self.is_as_described,
            "witness": [
                line
                for finding in self.flawed.judgement.findings
                if finding.guarantee == self.exhibit.guarantee
                for line in finding.witness
            ],
        }


def exhibit_scenario(exhibit: Exhibit, setting: Setting) -> Scenario:
    """Return the exhibit's scenario with the settings of its flawed or its fixed run."""
    scenario = find_shipped(exhibit.name).read()
    protocols = {name: dict(values) for name, values in scenario.cluster.protocols}
    historical: dict[str, object] = {}
    for key, value in setting.items():
        protocol, dot, attribute = key.partition(".")
        if dot:
            protocols.setdefault(protocol, {})[attribute] = value
        elif key not in ("unicast", "stack", "sealed"):
            historical[key] = value
    cluster = scenario.cluster
    cluster = replace(
        cluster,
        stack=str(setting.get("stack", cluster.stack)),
        unicast=str(setting["unicast"]) if "unicast" in setting else cluster.unicast,
        sealed=bool(setting.get("sealed", cluster.sealed)),
        historical=tuple(historical.items()),
        protocols=tuple((name, tuple(values.items())) for name, values in protocols.items()),
    )
    # Drop the original text, so that the run directory stores the changed scenario.
    return replace(scenario, cluster=cluster, text="")


def tour(exhibits: tuple[Exhibit, ...] = EXHIBITS, seed: int = SEED) -> Iterator[Shown]:
    """Run every exhibit, flawed and fixed; yields each after both runs."""
    for exhibit in exhibits:
        yield Shown(
            exhibit,
            run_scenario(exhibit_scenario(exhibit, exhibit.flawed), seed),
            run_scenario(exhibit_scenario(exhibit, exhibit.fixed), seed),
        )
