"""An attacker on the members' network: `python -m tests.fuzz.attacker ORDER.json`.

It reads what to send next, a range of chunks and a rate, as a line of JSON from stdin, and answers
each with a line that says what was sent. It ends with its stdin.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fuzz.datagrams import DatagramAttack
from tests.fuzz.facts import Facts, framed, hellos_in, whole_frames
from tests.fuzz.frames import FrameMaker
from tests.fuzz.greetings import DeafAttack, GreetingAttack
from tests.fuzz.requests import Door, RequestAttack
from tests.fuzz.streams import StreamAttack
from tests.fuzz.tallies import Tally

ETH_P_ALL: Final = 3
UDP, TCP = 17, 6

Send = Callable[[int, int, float], Tally]


def attack(order: dict[str, Any]) -> Send:
    """Return the function that sends what the order names."""
    if order["by"] == "requests":
        return RequestAttack(Door.from_words(order["door"]), order["seed"]).send
    facts = Facts.load(Path(order["facts"]))
    maker = FrameMaker(facts, order["seed"], is_defused=order["is_defused"])
    if order["by"] == "datagrams":
        return DatagramAttack(maker, order["address"]).send
    if order["by"] == "greetings":
        return GreetingAttack(maker).send
    if order["by"] == "deaf":
        return DeafAttack(maker).send
    return StreamAttack(maker, is_monitor=order["by"] == "monitors").send


def _sniffer() -> socket.socket:
    """Return a socket that hears all that passes on a bridge."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sniffer.settimeout(0.1)
    return sniffer


def listen(seconds: float, most: int) -> list[bytes]:
    """Return the frames that pass on a bridge, each once."""
    sniffer = _sniffer()
    until = time.monotonic() + seconds
    seen: dict[bytes, None] = {}
    while time.monotonic() < until and len(seen) < most:
        try:
            packet = sniffer.recv(1 << 16)
        except TimeoutError:
            continue
        seen.update(dict.fromkeys(frames_of(packet)))
    return list(seen)


def record(most: int) -> list[bytes]:
    """Return the sealed hellos that pass on a bridge until a line comes, each once."""
    sniffer = _sniffer()
    print(json.dumps("listening"), flush=True)
    seen: dict[bytes, None] = {}
    while sys.stdin not in (ready := select.select([sniffer, sys.stdin], [], [])[0]):
        if ready and len(seen) < most:
            seen.update(dict.fromkeys(hellos_in(payload_of(sniffer.recv(1 << 16), TCP))))
        elif ready:
            sniffer.recv(1)
    sys.stdin.readline()
    return list(seen)


def frames_of(packet: bytes) -> list[bytes]:
    """Return the frames in an Ethernet packet of UDP or TCP."""
    return whole_frames(payload_of(packet, UDP)) or framed(payload_of(packet, TCP))


def payload_of(packet: bytes, wanted: int) -> bytes:
    """Return what a whole IPv4 packet of one protocol carries; nothing of any other."""
    if packet[12:14] != b"\x08\x00" or struct.unpack_from(">H", packet, 20)[0] & 0x3FFF:
        return b""
    total, protocol = struct.unpack_from(">H", packet, 16)[0], packet[23]
    inner = packet[14 + (packet[14] & 15) * 4 : 14 + total]
    if protocol != wanted:
        return b""
    return inner[8:] if wanted == UDP else inner[(inner[12] >> 4) * 4 :]


def main(path: str) -> None:
    """Send what is asked for, until stdin ends."""
    order = json.loads(Path(path).read_text())
    if order["by"] == "listen":
        heard = listen(order["seconds"], order["most"])
        print(json.dumps([frame.hex() for frame in heard]), flush=True)
        return
    if order["by"] == "record":
        print(json.dumps([hello.hex() for hello in record(order["most"])]), flush=True)
        return
    send = attack(order)
    for line in sys.stdin:
        asked = json.loads(line)
        tally = send(asked["first"], asked["count"], asked["rate"])
        print(json.dumps(tally.as_words()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
