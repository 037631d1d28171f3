"""An attacker on the members' network: `python -m tests.fuzz.attacker ORDER.json`.

It reads what to send next, a range of chunks and a rate, as a line of JSON from stdin, and answers
each with a line that says what was sent. It ends with its stdin.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fuzz.datagrams import DatagramAttack
from tests.fuzz.facts import Facts, framed, whole_frames
from tests.fuzz.frames import FrameMaker
from tests.fuzz.requests import Door, RequestAttack
from tests.fuzz.streams import GreetingAttack, StreamAttack
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
    return StreamAttack(maker, is_monitor=order["by"] == "monitors").send


def listen(seconds: float, most: int) -> list[bytes]:
    """Return the frames that pass on a bridge, each once."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sniffer.settimeout(0.1)
    until = time.monotonic() + seconds
    seen: dict[bytes, None] = {}
    while time.monotonic() < until and len(seen) < most:
        try:
            packet = sniffer.recv(1 << 16)
        except TimeoutError:
            continue
        seen.update(dict.fromkeys(frames_of(packet)))
    return list(seen)


def frames_of(packet: bytes) -> list[bytes]:
    """Return the frames in an Ethernet packet: of whole IPv4 packets of UDP or TCP only."""
    if packet[12:14] != b"\x08\x00" or struct.unpack_from(">H", packet, 20)[0] & 0x3FFF:
        return []
    total, protocol = struct.unpack_from(">H", packet, 16)[0], packet[23]
    inner = packet[14 + (packet[14] & 15) * 4 : 14 + total]
    if protocol == UDP:
        return whole_frames(inner[8:])
    if protocol == TCP:
        return framed(inner[(inner[12] >> 4) * 4 :])
    return []


def main(path: str) -> None:
    """Send what is asked for, until stdin ends."""
    order = json.loads(Path(path).read_text())
    if order["by"] == "listen":
        heard = listen(order["seconds"], order["most"])
        print(json.dumps([frame.hex() for frame in heard]), flush=True)
        return
    send = attack(order)
    for line in sys.stdin:
        asked = json.loads(line)
        tally = send(asked["first"], asked["count"], asked["rate"])
        print(json.dumps(tally.as_words()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
