"""Reads the files of a run directory for its report; their content is not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from stormcast.findings import RUN, Finding, Verdict
from stormcast.pipeline.evidence import KEY, Belief, belief_in, digest_of
from stormcast.pipeline.findings import SPARK, read_finding
from stormcast.pipeline.measured import BadMetrics, Metrics, read_metrics
from stormcast.pipeline.report.history_file import Clients, read_clients

HOLDS: Final = "holds"
UNKNOWN: Final = "unknown"
VIOLATED: Final = "violated"
UNSUPPORTED: Final = "unsupported"
WORST_FIRST: Final = (VIOLATED, UNKNOWN, UNSUPPORTED, HOLDS)
VERIFY: Final = "verify"
"""The folder of a run directory with the verdict and metrics of `stormcast verify`."""
REPORT: Final = "report.html"
NO_GROUP: Final = "unicast-only"
WITHOUT_GROUP: Final = (NO_GROUP, "unicast-museum")
"""Stacks whose members are told of each other, and form no group."""


NO_RETRANSMISSION: Final = ", no retransmission"
STACKS: Final = {
    "udp": "NAKACK2 on UDP",
    "mcast": "MCAST",
    "tcp": "NAKACK2 on TCP",
    "tcp-nio2": "NAKACK2 on TCP_NIO2",
    "tcp-no-retransmit": f"NAKACK2 on TCP_NIO2{NO_RETRANSMISSION}",
}
"""By stack of a group: its protocol and transport, which its name alone does not say."""
OF_OTHERS: Final = "was made from other traces, or another scenario or seed, than lie here"
UNJUDGED: Final = (
    "it ended before it was judged: what no trace shows (late steps, a workload that did not end, "
    "what was expected by when) nobody knows; run it again"
)
"""Why a run without a verdict is unknown."""
BEGUN: Final = "begun"
TRACES: Final = "trace/*.trace"


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The compiled YAML loader, which is faster, if there is one."""


class NotARun(Exception):
    """A directory has no verdict; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Return:
    """The time from the last heal until everything was repaired, as measured by the run itself."""

    seconds: float
    after: float
    """The time of that heal, in seconds of the run."""
    first_delivery: float | None
    one_view: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFile:
    """The content of a verdict.json, of `stormcast run` or of `stormcast verify`."""

    scenario: str
    verdict: str
    guarantees: Mapping[str, str]
    findings: tuple[Finding, ...]
    seed: int | None = None
    fate: str = "xxh3"
    backend: str = "sim"
    messages: int | None = None
    delivered: int | None = None
    events: int | None = None
    seconds: float | None = None
    bites: Mapping[str, int] = field(default_factory=dict)
    struck: Mapping[str, Mapping[tuple[str, str], int]] = field(default_factory=dict)
    """Bites by sender and receiver, as far as they are known by pair."""
    return_to_health: Return | None = None
    reason: str = ""
    """The reason why the scenario is unsupported."""
    notes: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    """Guarantees that were asked for, but not judged."""
    evidence_digest: str | None = None
    """The digest of the files it was made from; None in verdicts of older versions."""

    def findings_worst_first(self) -> list[Finding]:
        """Return the findings, the worst first; among equals, those about the run first."""
        return sorted(
            self.findings,
            key=lambda finding: (-finding.verdict.value, finding.guarantee != RUN),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run directory, as far as a report needs it."""

    directory: str
    """The directory, as the user named it."""
    verdict: VerdictFile
    is_verified: bool
    """Whether the verdict is that of Spark."""
    second: VerdictFile | None
    """The verdict of the run's own oracles, if Spark has judged the run, too."""
    metrics: Metrics | None
    no_metrics: str
    """The reason why there are no metrics."""
    scenario: str = ""
    """The text of the scenario file."""
    about: str = ""
    """The scenario's description."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """The section `cluster` of the scenario: stack, protocol, timing."""
    versions: Mapping[str, str] = field(default_factory=dict)
    clients: Clients | None = None
    """What clients of guests did; None in runs of members."""
    stored: str = ""
    """The URL of the run, if it lies in an object store."""
    doubts: tuple[str, ...] = ()
    """Reasons why a verdict in the directory is not believed, or cannot be checked."""

    @property
    def by_the_run(self) -> VerdictFile:
        """The run's own verdict, if there is one: it alone has the bites by pair."""
        return self.second or self.verdict

    @property
    def is_group(self) -> bool:
        """Whether the run's members form a group."""
        return str(self.cluster.get("stack") or NO_GROUP) not in WITHOUT_GROUP

    @property
    def protocol(self) -> str:
        """The protocol under test, as named by chaos-test: that of a group, or the generation of
        unicast if members form no group."""
        if self.clients is not None:
            return f"guests, {self.clients.model or 'no model'}"
        stack, unicast = self.cluster.get("stack"), self.cluster.get("unicast")
        if not self.is_group:
            return str(unicast or "UNICAST3")
        shown = STACKS.get(str(stack), str(stack))
        interval = _mapping(self.cluster.get("multicast_settings")).get("xmit_interval")
        if _is_zero(interval) and NO_RETRANSMISSION not in shown:
            shown += NO_RETRANSMISSION
        return f"{shown} with {unicast}" if unicast else shown

    @property
    def timing(self) -> str:
        """The timing of its cluster."""
        return str(self.cluster.get("timing") or "compatible")


def read_run(directory: Path, verify: Path | None = None, *, has_metrics: bool = True) -> Kept:
    """Read a run directory, with or without its metrics; NotARun if it is none.

    A run without a verdict is unknown. The results of Spark are in `verify`, by default a folder of
    the directory.
    """
    verify = verify or directory / VERIFY
    own, verified = _verdict(directory / "verdict.json"), _verdict(verify / "verdict.json")
    is_judged = own is not None or verified is not None
    if not is_judged and not has_begun(directory):
        raise NotARun(
            f"{directory} has no verdict.json: name a run directory, or a directory of them"
        )
    digest = digest_of(directory)
    ran, spark = _believed(own, digest), _believed(verified, digest)
    metrics, no_metrics = None, ""
    if verified is not None and spark is None:
        no_metrics = f"What was measured {OF_OTHERS}. Run stormcast verify again."
    elif has_metrics:
        metrics, no_metrics = _metrics(verify / "metrics.json", is_verified=verified is not None)
    scenario = _text(directory / "scenario.yaml")
    told = _yaml(scenario)
    return Kept(
        directory=str(directory),
        verdict=spark
        or ran
        or (_of_others(directory, verified or own) if is_judged else _unjudged(directory, told)),
        is_verified=spark is not None,
        second=ran if spark is not None else None,
        metrics=metrics,
        no_metrics=no_metrics,
        scenario=scenario,
        about=str(told.get("about") or "").strip(),
        cluster=_mapping(told.get("cluster")),
        versions={
            str(name): str(value)
            for name, value in _mapping(_json(directory / "versions.json")).items()
        },
        clients=read_clients(directory, _mapping(_json(directory / "verdict.json"))),
        doubts=(*_doubts(own, digest, "the run"), *_doubts(verified, digest, "Spark")),
    )


def _believed(verdict: VerdictFile | None, digest: str) -> VerdictFile | None:
    """Return a verdict, or None if it was made from other files than those in the directory."""
    if verdict is None or belief_in(verdict.evidence_digest, digest) is Belief.OTHERS:
        return None
    return verdict


def _doubts(verdict: VerdictFile | None, digest: str, whose: str) -> tuple[str, ...]:
    """Return why a verdict is not believed, or cannot be checked."""
    belief = Belief.SAME if verdict is None else belief_in(verdict.evidence_digest, digest)
    if belief is Belief.OTHERS:
        return (f"The verdict of {whose} {OF_OTHERS}: it is not believed.",)
    if belief is Belief.UNSAID:
        return (f"The verdict of {whose} carries no digest of what it was made from.",)
    return ()


def _of_others(directory: Path, verdict: VerdictFile | None) -> VerdictFile:
    """Return an unknown verdict, in place of a verdict that was made from other traces."""
    detail = f"the verdict that lies here {OF_OTHERS}"
    return VerdictFile(
        scenario=verdict.scenario if verdict is not None else directory.name,
        verdict=UNKNOWN,
        guarantees={},
        findings=(Finding(RUN, Verdict.UNKNOWN, detail, by=SPARK),),
        seed=verdict.seed if verdict is not None else None,
        backend=verdict.backend if verdict is not None else "sim",
    )


def _unjudged(directory: Path, told: Mapping[str, Any]) -> VerdictFile:
    """Return an unknown verdict, for a run that has none."""
    seed = _text(directory / "seed").strip()
    return VerdictFile(
        scenario=str(told.get("name") or directory.resolve().name),
        verdict=UNKNOWN,
        guarantees={},
        findings=(Finding(RUN, Verdict.UNKNOWN, UNJUDGED, by=SPARK),),
        seed=int(seed) if seed.isdecimal() else None,
        backend="",
    )


def has_begun(directory: Path) -> bool:
    """Whether a run, or a number of runs, was begun in a directory."""
    return (directory / BEGUN).is_file() or any(directory.glob(TRACES))


def rank(verdict: str) -> int:
    """Return the rank of a verdict: 0 is the worst; any other word ranks as unknown."""
    known = verdict if verdict in WORST_FIRST else UNKNOWN
    return WORST_FIRST.index(known)


def _verdict(path: Path) -> VerdictFile | None:
    said = _mapping(_json(path))
    if "verdict" not in said:
        return None
    findings = said.get("findings")
    return VerdictFile(
        scenario=str(said.get("scenario") or path.parent.name),
        verdict=str(said["verdict"]),
        guarantees={
            str(key): str(value) for key, value in _mapping(said.get("guarantees")).items()
        },
        findings=tuple(
            read_finding(one, SPARK)
            for one in (map(_mapping, findings) if isinstance(findings, list) else ())
        ),
        seed=_whole(said.get("seed")),
        fate=str(said.get("fate") or "xxh3"),
        backend=str(said.get("backend") or "sim"),
        messages=_whole(said.get("messages")),
        delivered=_whole(said.get("delivered")),
        events=_whole(said.get("events")),
        seconds=_number(said.get("virtual_seconds", said.get("seconds"))),
        bites={
            str(fault): value
            for fault, value in _mapping(said.get("faults")).items()
            if isinstance(value, int)
        },
        struck=_struck(said.get("faults_by_pair")),
        return_to_health=_return(said.get("resync")),
        reason=str(said.get("reason") or ""),
        notes=(*_texts(said.get("unowed")), *_texts(said.get("notes"))),
        not_judged=_texts(said.get("not_judged")),
        evidence_digest=_digest(said.get(KEY)),
    )


def _struck(value: object) -> Mapping[str, Mapping[tuple[str, str], int]]:
    found: dict[str, dict[tuple[str, str], int]] = {}
    for fault, pairs in _mapping(value).items():
        for pair, count in _mapping(pairs).items():
            sender, _space, receiver = str(pair).partition(" ")
            if receiver and isinstance(count, int):
                found.setdefault(str(fault), {})[sender, receiver] = count
    return found


def _return(value: object) -> Return | None:
    said = _mapping(value)
    seconds, after = _number(said.get("seconds")), _number(said.get("after"))
    if seconds is None or after is None:
        return None
    first, view = _number(said.get("first_delivery")), _number(said.get("one_view"))
    return Return(seconds, after, first, view)


def _metrics(path: Path, *, is_verified: bool) -> tuple[Metrics | None, str]:
    if not path.exists():
        if is_verified:
            return None, (
                "Nothing was measured: either the traces are odd, as the findings say, or "
                "measuring failed, as stormcast verify said."
            )
        return None, "Nothing was measured yet. Run stormcast verify on this directory."
    try:
        return read_metrics(path), ""
    except BadMetrics as bad:
        return None, str(bad)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _json(path: Path) -> object:
    try:
        return json.loads(_text(path) or "null")
    except ValueError:
        return None


def _yaml(text: str) -> Mapping[str, Any]:
    try:
        return _mapping(yaml.load(text, _LOADER))  # noqa: S506 both loaders are safe ones
    except yaml.YAMLError:
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _digest(value: object) -> str | None:
    """Read a digest. A value that is no digest is kept as text: it then matches no files."""
    return None if value is None else str(value)


def _is_zero(value: object) -> bool:
    """Whether a duration in a scenario is zero: `0`, `0s`, `0ms`."""
    text = str(value).rstrip("abcdefghijklmnopqrstuvwxyz")
    return text.strip("0.") == "" and text != ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
