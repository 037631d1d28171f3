# ruff: noqa: INP001  A page's script, not a package: only this command and one test load it.
"""Writes the tables of the docs that the code decides: `.venv/bin/python -m docs.make_tables`.

A table stands between `<!-- name -->` and `<!-- /name -->` of its page; what else the page says is
never touched. `tests/unit/test_docs.py` fails while a page and the code differ.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.backends.kubernetes.release_access import NO_POD_HAS
from stormcast.chaos.backends.pods.features import OF_PODS
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.campaigns.live import NO_MACHINE_HAS
from stormcast.chaos.campaigns.museum import EXHIBITS
from stormcast.chaos.commands.run import report
from stormcast.chaos.drivers.base import driver_of
from stormcast.chaos.language.features import FEATURES
from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.peers.jgroups_member import SETTINGS
from stormcast.chaos.session.runner import run_scenario
from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import FLAG_NAMES, MESSAGE_FLAGS
from stormcast.node.member.options import OPTIONS
from stormcast.node.trace.export import COLUMNS

DOCS: Final = Path(__file__).parent
VIEW_STREAMS: Final = {
    trace.REGULAR: "regular: it follows the view before",
    trace.MERGE: "merge: it joins groups that were apart",
}
REQUEST_STREAMS: Final = {
    trace.REPAIR: "repair of a loss",
    trace.JOINING: "a window that is not known to be complete yet, while nothing is retransmitted",
}
TYPES: Final = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64", "d": "f64", "4s": "4 bytes"}
BLOCK_FIELDS: Final = (
    ("magic", "`STRC`"),
    ("version", f"format version, now {trace.VERSION}"),
    ("header", "bytes of this header: where the records begin"),
    ("member", "short id of the member that wrote it; 0 is the rig"),
    ("count", "records in the block"),
    ("first", "number of the first event; the member's events count from 0 without a gap"),
    ("wall_ns", "wall clock, in nanoseconds, when the member's own clock was 0"),
    ("texts", "bytes of the text heap"),
    ("reserved", "zero"),
    ("check", "XXH3-64 of everything else in the block"),
)
RECORD_FIELDS: Final = {
    "kind": "the event, see below",
    "flags": "flags of the messages, as on the wire",
    "protocol": "which protocol, as on the wire; 0 where messages are not numbered",
    "stream": "what it is about, by kind",
    "peer": "short id of the other side",
    "conn": "connection id",
    "epoch": "which life of a receive window; counted per member",
    "view": "low half of the number of the writer's view; of multicasts, and of a view",
    "count": "messages, seqnos, members or drops",
    "lo": "first seqno of a range, or a single value",
    "hi": "last seqno of a range, or a bound",
    "bytes": "bytes of the body, lengths included",
    "digest": "XXH3-64 of the whole body, as in the frame",
    "trim": "low half of the XXH3-64 of the part that was delivered",
    "text": "number of a text in the heap, from 1; 0 none",
    "time": "seconds of the member's own clock",
}


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def head() -> str:
    """The fields of a frame's head."""
    rows = []
    for name, field in wire.FIELDS.items():
        rows.append((wire.OFFSETS[name], f"`{name}`", TYPES[field.code], field.about))
    return table(("offset", "field", "type", "meaning"), rows)


def kinds() -> str:
    """The kinds of frames."""
    rows = ((number, name, about) for number, (name, about) in wire.KINDS.items())
    return table(("kind", "name", "says"), rows)


def protocols() -> str:
    """The protocols that a frame may belong to."""
    return table(("protocol", "name"), wire.PROTOCOLS.items())


def flags() -> str:
    """The bits of a frame's flags, and who may set them."""
    rows = (
        (f"0x{bit:02x}", name, "message" if bit & MESSAGE_FLAGS else "frame")
        for bit, name in FLAG_NAMES.items()
    )
    return table(("bit", "name", "of the"), rows)


def block_header() -> str:
    """The header of a trace block."""
    codes = re.findall(r"4s|[A-Z]", trace.HEADER.format.removeprefix("<"))
    rows, at = [], 0
    for (name, about), code in zip(BLOCK_FIELDS, codes, strict=True):
        rows.append((at, f"`{name}`", TYPES[code], about))
        at += struct.calcsize(f"<{code}")
    return table(("offset", "field", "type", "meaning"), rows)


def record() -> str:
    """One record of a trace block."""
    codes = trace.RECORD.format.removeprefix("<")
    rows, at = [], 0
    for name, code in zip(trace.Event._fields, codes, strict=True):
        rows.append((at, f"`{name}`", TYPES[code], RECORD_FIELDS[name]))
        at += struct.calcsize(f"<{code}")
    return table(("offset", "field", "type", "meaning"), rows)


def streams(names: Mapping[int, str]) -> Callable[[], str]:
    """What `stream` means for one kind of event."""
    return lambda: table(("stream", "meaning"), names.items())


def parquet() -> str:
    """The columns of an exported trace."""
    rows = ((f"`{column.name}`", column.type, column.about) for column in COLUMNS)
    return table(("column", "type", "meaning"), rows)


def museum() -> str:
    """The exhibits, and where their flaws were described."""
    rows = (
        (one.name, one.note, one.guarantee, _setting(one.flawed), _setting(one.fixed))
        for one in EXHIBITS
    )
    return table(("exhibit", "described in", "breaks", "flawed", "fixed"), rows)


def _setting(setting: Mapping[str, object]) -> str:
    runs = [str(setting[key]) for key in ("unicast", "stack") if key in setting]
    rest = {key: value for key, value in setting.items() if key not in ("unicast", "stack")}
    return " ".join([*runs, *(f"{key}={str(value).lower()}" for key, value in rest.items())])


def options() -> str:
    """What a member can be told, and in which words."""
    rows = (
        (
            f"`{one.key}`",
            f"`{one.flag}`",
            f"`{one.variable}`",
            one.notation.write(one.default),
            one.about,
        )
        for one in OPTIONS
    )
    return table(("key", "flag", "variable", "default", "meaning"), rows)


_LINKS: Final = {"sources": ("n0",), "dests": ("n1",)}
STRIKING: Final[Mapping[str, faults.NetworkFault]] = {
    "partition": faults.Partition(groups=(("n0",), ("n1",))),
    "loss": faults.Loss(rate=0.1, **_LINKS),
    "loss-model": faults.NthLoss(nth=2, **_LINKS),
    "delay": faults.Delay(delay=0.1, **_LINKS),
    "netem": faults.Delay(delay=0.1, **_LINKS),
    "duplicate": faults.Duplicate(rate=0.1, **_LINKS),
    "reorder": faults.Reorder(rate=0.1, by=0.1, **_LINKS),
    "corrupt": faults.Corrupt(rate=0.1, **_LINKS),
    "bandwidth": faults.Bandwidth(rate=1e6, **_LINKS),
    "rule-drop": faults.Rule(),
    "rule": faults.Rule(does="hold"),
}
"""Of features that are faults of the network, one such fault."""
INSIDE: Final = {
    "pause": ("SIGSTOP", "keeper"),
    "members": ("process", "keeper"),
    "rule-on-streams": ("DROP in the member", "DROP in the member"),
}
"""Of others, what does it where members are real; the rest members do by themselves."""


def features() -> str:
    """What runs may make use of, and what does it on each backend."""
    simulated = SimBackend().features()
    rows = []
    for feature, about in FEATURES.items():
        sim = "yes" if simulated[feature] is None else "–"
        rows.append((f"`{feature}`", about, sim, *_on_real_machines(feature)))
    return table(("feature", "what it is", "sim", "netns", "docker", "kubernetes"), rows)


def _on_real_machines(feature: str) -> tuple[str, str, str]:
    """What does it on namespaces, in docker, and in pods of a release."""
    if feature in STRIKING:
        driver = driver_of(STRIKING[feature], netem=feature == "netem")
        return driver, f"{driver}, in the agent", f"{driver}, in the agent"
    in_namespace, in_pod = INSIDE.get(feature, ("yes", "yes"))
    return (
        "–" if feature in NO_MACHINE_HAS else in_namespace,
        "–" if feature in {*NO_MACHINE_HAS, *OF_PODS} else in_pod,
        "–" if feature in {*NO_MACHINE_HAS, *NO_POD_HAS} else in_pod,
    )


def jgroups_settings() -> str:
    """What is changed in the stacks that ship with JGroups."""
    return table(
        ("setting", "milliseconds"), [(f"`{name}`", value) for name, value in SETTINGS.items()]
    )


SAMPLE: Final = "partition-into-halves"
SAMPLE_SEED: Final = 7
"""The run that the README shows, as its tour has it."""
WIDEST: Final = 150
"""Characters of a line that a sample shows."""
_FINDING: Final = re.compile(r"[A-Z]\d  ")


def sample_run() -> str:
    """What the first command of the README's tour prints: of what holds the first few lines, and
    no line that is too long to read."""
    path = DOCS.parent / "chaos" / "scenarios" / f"{SAMPLE}.yaml"
    outcome = run_scenario(load_scenario(path), SAMPLE_SEED)
    kept = replace(outcome, directory=Path("runs") / f"{SAMPLE}-{SAMPLE_SEED}")
    lines = report(kept).splitlines()
    findings = [line for line in lines if _FINDING.match(line)]
    shown = {*findings[:3], *findings[-3:]}
    told: list[str] = []
    for line in lines:
        if len(line) <= WIDEST and (line in shown or not _FINDING.match(line)):
            told.append(line)
        elif told[-1] != "…":
            told.append("…")
    return "\n".join(["```", *told, "```"])


TABLES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "../README.md": {"sample": sample_run},
    "backends.md": {"features": features},
    "jgroups.md": {"settings": jgroups_settings},
    "node.md": {"options": options},
    "wire-format.md": {"head": head, "kinds": kinds, "protocols": protocols, "flags": flags},
    "trace-format.md": {
        "block": block_header,
        "record": record,
        "view-streams": streams(VIEW_STREAMS),
        "suspicions": streams(trace.SUSPICIONS),
        "request-streams": streams(REQUEST_STREAMS),
        "connection-states": streams(trace.CONN_STATES),
        "credits": streams(trace.CREDITS),
        "gauges": streams(trace.GAUGES),
        "parquet": parquet,
    },
    "testing.md": {"museum": museum},
}


def filled(page: str, text: str) -> str:
    """The text of a page, its tables as the code has them."""
    for name, make in TABLES[page].items():
        between = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert between.search(text), f"{page} has no place for the table {name}"
        # The escape: what the code says of itself is no template.
        made = make().replace("\\", r"\\")
        text = between.sub(rf"\g<1>{made}\n\g<2>", text)
    return text


def main() -> None:
    """Rewrite the tables of every page."""
    for page in TABLES:
        path = DOCS / page
        path.write_text(filled(page, path.read_text()))


if __name__ == "__main__":
    main()
