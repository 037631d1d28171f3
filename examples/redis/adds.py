"""A client of Redis that adds numbers to a set, and prints the history of that for Stormcast.

Each writer keeps its connection for as long as it works, and asks the sentinel who is the primary
when it does not. SIGTERM: writers stop, the set is read, the client ends. Nothing but the standard
library; `--wait` acknowledges only what a replica has, too (WAIT).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

ZERO = float(os.environ["STORMCAST_ZERO"])
"""The time, on the monotonic clock, from which the history counts."""
KEY = "numbers"
MASTER = "redis"
"""The name by which the sentinel knows the primary."""
PORT, SENTINEL_PORT = 6379, 26379
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 0.02
READ_SECONDS = 15.0

_output = threading.Lock()


def note(process: int, kind: str, f: str, **more: object) -> None:
    """Print a line of the history. The time is taken under the lock, so that it never goes back."""
    with _output:
        line = {"process": process, "type": kind, "f": f, **more}
        print(json.dumps(line | {"time": round(time.monotonic() - ZERO, 6)}), flush=True)


class Refused(Exception):
    """The server answered with an error: it did not do what it was asked for."""


class Connection:
    """One connection that speaks Redis' protocol (RESP)."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.create_connection((address, port), ANSWER_SECONDS)
        self._file = self._socket.makefile("rb")

    def ask(self, *words: str) -> object:
        """Send a command; return the answer. Refused, or OSError: nobody knows what was done."""
        packed = b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
        self._socket.sendall(b"*%d\r\n%s" % (len(words), packed))
        return self._answer()

    def _answer(self) -> object:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return None if rest == b"-1" else [self._answer() for _ in range(int(rest))]
        return rest.decode()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def to_primary(sentinel: str) -> Connection:
    """Connect to whoever the sentinel says is the primary."""
    asked = Connection(sentinel, SENTINEL_PORT)
    try:
        found = asked.ask("SENTINEL", "get-master-addr-by-name", MASTER)
    finally:
        asked.close()
    if not isinstance(found, list):
        raise ConnectionError("the sentinel knows no primary")
    return Connection(str(found[0]), int(str(found[1])))


def write(process: int, numbers: Callable[[], int], sentinel: str, *, wait: bool) -> None:
    """Add numbers until it is time to stop."""
    connection: Connection | None = None
    while not stop.is_set():
        time.sleep(PAUSE_SECONDS)
        if connection is None:
            try:
                connection = to_primary(sentinel)
            except (OSError, Refused):
                continue
        number = numbers()
        note(process, "invoke", "add", value=number)
        try:
            connection.ask("SADD", KEY, str(number))
            is_sure = not wait or connection.ask("WAIT", "1", "500") != 0
            note(process, "ok" if is_sure else "info", "add")
        except Refused:
            # READONLY, for instance: it has become a replica.
            note(process, "fail", "add")
            connection.close()
            connection = None
        except OSError:
            note(process, "info", "add")
            connection.close()
            connection = None


def read(process: int, sentinel: str) -> None:
    """Read the set, once it can be read."""
    until = time.monotonic() + READ_SECONDS
    while time.monotonic() < until:
        note(process, "invoke", "read")
        try:
            connection = to_primary(sentinel)
            found = connection.ask("SMEMBERS", KEY)
            connection.close()
        except (OSError, Refused):
            note(process, "fail", "read")
            time.sleep(PAUSE_SECONDS)
            continue
        elements = found if isinstance(found, list) else []
        note(process, "ok", "read", value=sorted(int(str(one)) for one in elements))
        return


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--sentinel", required=True)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--wait", action="store_true")
    args = parser.parse_args()
    counter, lock = iter(range(10**9)), threading.Lock()

    def next_number() -> int:
        with lock:
            return next(counter)

    writers = [
        threading.Thread(
            target=write, args=(number, next_number, args.sentinel), kwargs={"wait": args.wait}
        )
        for number in range(args.writers)
    ]
    for writer in writers:
        writer.start()
    stop.wait()
    for writer in writers:
        writer.join()
    read(args.writers, args.sentinel)
    return 0


stop = threading.Event()
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    sys.exit(main())
