"""Whether a run may say `holds`: a simple count over its traces, without the code of any judge.

It asks for less than the oracles: only for messages between two members that were together from the
sending to the end. But of those it asks for each one, once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from stormcast.node import trace
from stormcast.node.trace import read_blocks_untrusted
from tests.kills.blocks import RIG, Life, delivered_of, read_lives


def wrong_verdicts(run: Path, code: int | None) -> list[str]:
    """Return what is wrong with the verdict of a run directory, if it has one; `code` is the exit
    code of the command, None where it was killed."""
    path = run / "verdict.json"
    if not path.exists():
        return [] if code is None or code == 3 else [f"exit {code}, and there is no verdict"]
    try:
        told: dict[str, Any] = json.loads(path.read_text())
        verdict = told["verdict"]
    except (ValueError, KeyError) as error:
        return [f"verdict.json is not whole: {error!r}"]
    lines = []
    if told["evidence_digest"] != _digest(run):
        lines.append("the verdict is not of the traces beside it")
    wanted = {"holds": 0, "violated": 1, "unknown": 3}[verdict]
    if code is not None and code != wanted:
        lines.append(f"exit {code}, and the verdict is {verdict}")
    if verdict == "violated":
        bad = [one["detail"] for one in told["findings"] if one["verdict"] == "violated"]
        lines.append(f"violated: {bad[0] if bad else ''}")
    if verdict == "holds":
        traces = {path.stem: path.read_bytes() for path in (run / "trace").glob("*.trace")}
        lines += [f"holds, but {line}" for line in why_not_holds(traces)]
    return lines


def verdict_of(run: Path) -> str:
    """Return what a run says of itself; empty: nothing that can be read."""
    try:
        return str(json.loads((run / "verdict.json").read_text())["verdict"])
    except (OSError, ValueError, KeyError):
        return ""


def deaths(traces: Mapping[str, bytes]) -> list[str]:
    """Return a line for each member that ended and was not told to."""
    return [f"{name} died unordered" for name in _ended(traces.get(RIG, b""))["unordered"]]


def why_not_holds(traces: Mapping[str, bytes]) -> list[str]:
    """Return why a run with these traces must not be said to hold."""
    lives = read_lives(traces)
    ended = set(_ended(traces.get(RIG, b""))["shorts"])
    return [*deaths(traces), *missing(lives, ended)]


def missing(lives: Mapping[int, Life], ended: set[int]) -> list[str]:
    """Return what members should have delivered, by what others sent, or not so often; those that
    ended owe nothing, and are owed nothing."""
    lines: list[str] = []
    if not any(True for life in lives.values() for _ in life.of(trace.SENT)):
        lines.append("nothing was sent")
    delivered = delivered_of(lives.values())
    for life in lives.values():
        for key, owed in _owed_by(life, lives, ended).items():
            dest, stream = key
            has = delivered.get((dest, stream))
            lacking = owed - (has.seqnos if has is not None else set())
            if lacking:
                lines.append(
                    f"{len(lacking)} messages of {life.label} are not in {lives[dest].label}"
                )
    for life in lives.values():
        lines += _twice(life)
    return lines


def _owed_by(
    life: Life, lives: Mapping[int, Life], ended: set[int]
) -> dict[tuple[int, tuple[int, int, int]], set[int]]:
    """Return the seqnos that a member owes, by receiver and stream."""
    found: dict[tuple[int, tuple[int, int, int]], set[int]] = {}
    if life.short in ended:
        return found
    views = _views(life)
    for event in life.of(trace.SENT):
        if not event.lo:
            continue
        since = [view for at, view in views if at <= event.time][-1:] + [
            view for at, view in views if at > event.time
        ]
        if not since:
            continue
        together = frozenset.intersection(*since) - ended
        for dest in together if not event.peer else together & {event.peer}:
            other = lives.get(dest)
            if other is None or dest == life.short or not _keeps(other, life.short, event.time):
                continue
            stream = (life.short, event.peer, event.conn)
            found.setdefault((dest, stream), set()).update(range(event.lo, event.hi + 1))
    return found


def _keeps(life: Life, peer: int, since: float) -> bool:
    """Whether a member has a peer in its view at a time, and in all later ones."""
    views = _views(life)
    then = [view for at, view in views if at <= since][-1:]
    return bool(then) and all(
        peer in view for view in (*then, *(view for at, view in views if at > since))
    )


def _views(life: Life) -> list[tuple[float, frozenset[int]]]:
    return [
        (life.events[number].time, frozenset(int(word, 16) for word in text.split(",") if word))
        for number, text in life.texts.items()
    ]


def _twice(life: Life) -> list[str]:
    """Return a line for each stream of which something was delivered twice."""
    seen: Counter[tuple[int, int, int]] = Counter()
    for event in life.of(trace.DELIVERED):
        if event.lo:
            for seqno in range(event.lo, event.hi + 1):
                seen[event.peer, event.conn, seqno] += 1
    return [
        f"{life.label} delivered {seqno} of {peer:x} {count} times"
        for (peer, _conn, seqno), count in seen.items()
        if count > 1
    ][:3]


def _ended(rig: bytes) -> dict[str, list[Any]]:
    """Return who ended during a run, by the rig's trace: `shorts`, and the names of those that
    nobody told to."""
    told = [
        json.loads(block.text(event))
        for block in read_blocks_untrusted(rig, xxh3_64_intdigest)
        for event in block.events
        if event.kind == trace.EXIT
    ]
    return {
        "shorts": [one["member"] for one in told if "member" in one],
        "unordered": [one["name"] for one in told if not one["ordered"]],
    }


def _digest(run: Path) -> str:
    """As docs/verify.md says: sha256sum of what sha256sum prints."""
    names = [
        "scenario.yaml",
        "seed",
        *(f"trace/{path.name}" for path in (run / "trace").glob("*.trace")),
    ]
    lines = [f"{sha256((run / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names)]
    return sha256("".join(lines).encode()).hexdigest()
