"""A run of millions of range events, written straight to Parquet.

Five members multicast and speak to each other; of what is sent one batch in fifty is lost on each
way, asked for, sent again, and holds up what follows it. Everything that a real trace has to keep a
guarantee is there, so that a sound one is judged sound.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.errors import BenchError
from stormcast.pipeline.schema import COLUMNS, SCHEMA_NAME, SCHEMA_VERSION

MEMBERS: Final = 5
BATCH: Final = 20
"""Messages of a batch, unless said otherwise."""
MULTICASTS_PER_UNICAST: Final = 4
LOSS: Final = 0.02
SPACING: Final = 0.001
"""Seconds between two batches of one member."""
DELAY: Final = 0.0005
REPAIR: Final = 1.0
"""Seconds until something lost is asked for."""
STABLE_EVERY: Final = 64
"""Batches of multicasts that are purged together."""
UNACKED: Final = 5
"""Batches of unicasts that are acked together."""
STARTED: Final = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN: Final = 1.0
SETTINGS: Final = {
    "bounds": {
        "ack_spacing": 0.01, "ack_threshold": 100, "ack_within": 5.0, "age_within": 60.0,
        "quiet_within": 6.5, "request_patience": 0.5, "request_size": 1024,
        "request_spacing": 0.5, "resend_within": 1.0, "sync_spacing": 2.0,
    },
    "protocols": {
        "NAKACK2": {
            "xmit_interval": 1.0,
            "bounds": {
                "quiet_within": 13.0, "request_patience": 1.0, "request_size": 1024,
                "request_spacing": 1.0,
            },
        },
        "GMS": {}, "VERIFY_SUSPECT2": {},
    },
}  # fmt: skip  # a list of words
INTS: Final = ("stream", "peer", "conn", "epoch", "view", "count", "lo", "hi", "bytes", "digest",
               "trim", "flags")  # fmt: skip  # a list of words


@dataclass(slots=True)
class Trace:
    """What one member records, in any order."""

    label: str
    short: int
    rows: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    def note(self, time: float, kind: str, **what: object) -> None:
        self.rows.append((time, kind, what))


def make(
    directory: Path, events: int, seed: int = 1, *, senders: int = MEMBERS, batch: int = BATCH
) -> int:
    """Write about so many events, of so many members that send batches of so many messages; return
    how many there are."""
    chance = random.Random(seed)
    members = [Trace(f"n{index}-1", 0xA0 + index) for index in range(MEMBERS)]
    # Of each multicast there is a sending and as many deliveries as members; of a unicast two. What
    # is sent was offered, and what is delivered is handed over.
    per_round = 2 * senders * (1 + MEMBERS + 2 / MULTICASTS_PER_UNICAST)
    rounds = int(events / per_round / 1.05)
    end = BEGIN + rounds * SPACING
    for member in members:
        _introduce(member, members)
    for sender in members[:senders]:
        _multicast(sender, members, rounds, chance, batch)
        for receiver in members:
            if receiver is not sender:
                _unicast(sender, receiver, rounds, chance, batch)
    rig = Trace("rig", 0)
    _direct(rig, end)
    directory.mkdir(parents=True, exist_ok=True)
    return sum(_write(trace, directory) for trace in (*members, rig))


def _introduce(member: Trace, members: list[Trace]) -> None:
    name = member.label.partition("-")[0]
    text = f"{name} {member.short:032x} {json.dumps(SETTINGS)}"
    member.note(0.0, "start", text=text)
    shorts = ",".join(f"{each.short:08x}" for each in members)
    member.note(0.5, "view", peer=members[0].short, lo=1, count=MEMBERS, text=shorts)
    for other in members:
        if other is not member:
            member.note(
                0.6, "conn", protocol="NAKACK2", stream=5, peer=other.short, epoch=1, text="view"
            )


def _direct(rig: Trace, end: float) -> None:
    for phase, time in (("on", BEGIN), ("off", end)):
        told = {"id": "f1", "do": "loss", "phase": phase}
        rig.note(time, "fault", text=json.dumps(told))
    rig.note(end, "phase", text="quiet")
    rig.note(end + 30.0, "phase", text="end")
    rig.note(end + 30.0, "probe", text=json.dumps({"id": "f1", "do": "loss", "bit": 1000}))


def _multicast(
    sender: Trace, members: list[Trace], rounds: int, chance: random.Random, batch: int
) -> None:
    base = {"protocol": "NAKACK2", "view": 1, "count": batch, "bytes": batch * 100}
    others = [each for each in members if each is not sender]
    reached = {each.label: 0.0 for each in others}
    for index in range(rounds):
        time = BEGIN + index * SPACING + sender.short * 1e-7
        what = {
            **base,
            "lo": index * batch + 1,
            "hi": (index + 1) * batch,
            "digest": chance.getrandbits(63),
        }
        _send(sender, time, what)
        _deliver(sender, time, what, peer=sender.short)
        for receiver in others:
            arrived = _arrives(time, what, sender, receiver, chance)
            reached[receiver.label] = max(reached[receiver.label], arrived)
            _deliver(receiver, reached[receiver.label], what, peer=sender.short, epoch=1)
        if index % STABLE_EVERY == STABLE_EVERY - 1:
            lo = (index - STABLE_EVERY + 1) * batch + 1
            sender.note(
                max(reached.values()) + 0.1,
                "purged",
                protocol="NAKACK2",
                view=1,
                lo=lo,
                hi=what["hi"],
                count=STABLE_EVERY * batch,
            )


def _send(sender: Trace, time: float, what: dict[str, Any], *, peer: int = 0) -> None:
    """A batch is offered, and leaves at once."""
    lo, hi = what["lo"], what["hi"]
    sender.note(time, "offered", peer=peer, count=what["count"], lo=lo, hi=hi)
    sender.note(time, "sent", peer=peer, trim=lo, **what)


def _deliver(
    receiver: Trace, time: float, what: dict[str, Any], *, peer: int, epoch: int = 0
) -> None:
    """A batch is delivered, and handed to the application at once."""
    receiver.note(time, "delivered", peer=peer, epoch=epoch, **what)
    receiver.note(
        time,
        "handed",
        peer=peer,
        protocol=what["protocol"],
        conn=what.get("conn", 0),
        count=what["count"],
        lo=what["lo"],
        hi=what["hi"],
    )


def _arrives(
    time: float,
    what: dict[str, Any],
    sender: Trace,
    receiver: Trace,
    chance: random.Random,
    **more: object,
) -> float:
    """When a batch is there, with its repair where it needs one."""
    if chance.random() >= LOSS:
        return time + DELAY
    asked = time + REPAIR + 0.01
    about = {"protocol": what["protocol"], "lo": what["lo"], "hi": what["hi"], **more}
    receiver.note(
        asked, "requested", peer=sender.short, count=what["count"], **{"epoch": 1, **about}
    )
    sender.note(
        asked + DELAY,
        "retransmitted",
        peer=receiver.short,
        stream=1,
        count=what["count"],
        bytes=what["bytes"],
        digest=what["digest"],
        **about,
    )
    return asked + 2 * DELAY


def _unicast(
    sender: Trace, receiver: Trace, rounds: int, chance: random.Random, batch: int
) -> None:
    conn = sender.short * 256 + receiver.short
    sender.note(BEGIN, "conn", protocol="UNICAST3", stream=1, peer=receiver.short, conn=conn)
    receiver.note(
        BEGIN, "conn", protocol="UNICAST3", stream=5, peer=sender.short, conn=conn, epoch=1
    )
    step, reached = MULTICASTS_PER_UNICAST * (MEMBERS - 1), 0.0
    unacked, sent = 0, range(0, rounds, step)
    for number, index in enumerate(sent):
        time = BEGIN + index * SPACING + sender.short * 1e-7 + receiver.short * 1e-9
        what: dict[str, Any] = {
            "protocol": "UNICAST3",
            "conn": conn,
            "count": batch,
            "bytes": batch * 100,
            "lo": number * batch + 1,
            "hi": (number + 1) * batch,
            "digest": chance.getrandbits(63),
        }
        _send(sender, time, what, peer=receiver.short)
        arrived = _arrives(time, what, sender, receiver, chance, conn=conn)
        reached = max(reached, arrived)
        _deliver(receiver, reached, what, peer=sender.short, epoch=1)
        unacked += 1
        # The last ones, too: what stays unacked, though nothing is sent again, is no sound run.
        if unacked == UNACKED or index == sent[-1]:
            receiver.note(
                reached,
                "acked",
                protocol="UNICAST3",
                stream=1,
                peer=sender.short,
                conn=conn,
                epoch=1,
                lo=what["hi"],
            )
            sender.note(
                reached + DELAY,
                "purged",
                protocol="UNICAST3",
                peer=receiver.short,
                conn=conn,
                lo=what["hi"] - unacked * batch + 1,
                hi=what["hi"],
                count=unacked * batch,
            )
            unacked = 0


# -- Parquet ---------------------------------------------------------------------------------------


def _write(trace: Trace, directory: Path) -> int:
    pyarrow, parquet = _pyarrow()
    trace.rows.sort(key=lambda row: row[0])
    types = {
        "string": pyarrow.string(),
        "int32": pyarrow.int32(),
        "int64": pyarrow.int64(),
        "double": pyarrow.float64(),
        "timestamp[us, tz=UTC]": pyarrow.timestamp("us", tz="UTC"),
    }
    said = {
        "stormcast.schema": SCHEMA_NAME,
        "stormcast.schema_version": SCHEMA_VERSION,
        "stormcast.notes": "[]",
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS], metadata=said)
    path = directory / f"{trace.label}.parquet"
    with parquet.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, len(trace.rows), 1 << 16):
            columns = _columns(trace, start, directory)
            writer.write_table(pyarrow.Table.from_pydict(columns, schema=schema))
    return len(trace.rows)


def _columns(trace: Trace, start: int, directory: Path) -> dict[str, list[Any]]:
    rows = trace.rows[start : start + (1 << 16)]
    number = len(rows)
    is_rig = trace.short == 0
    columns: dict[str, list[Any]] = {
        "run": [directory.parent.name] * number,
        "member": [trace.label] * number,
        "name": [trace.label.partition("-")[0]] * number,
        "incarnation": [None if is_rig else f"{trace.short:032x}"] * number,
        "short_id": [trace.short] * number,
        "number": list(range(start, start + number)),
        "time": [time for time, _kind, _what in rows],
        "wall_time": [STARTED + timedelta(seconds=time) for time, _kind, _what in rows],
        "kind": [kind for _time, kind, _what in rows],
        "stream_word": [None] * number,
        "peer_member": [_label(what.get("peer", 0)) for _time, _kind, what in rows],
    }
    for name in ("protocol", "text"):
        columns[name] = [what.get(name) for _time, _kind, what in rows]
    columns["version"] = [2] * number
    for name in INTS:
        columns[name] = [what.get(name, 0) for _time, _kind, what in rows]
    return columns


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise BenchError("no pyarrow here: pip install 'stormcast[verify]'") from None


def _label(short: int) -> str | None:
    return f"n{short - 0xA0}-1" if short else None
