"""Runs programs without blocking the event loop: an agent handles packets meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Iterable, Sequence
from typing import BinaryIO, Final, cast

from stormcast.chaos.drivers.base import DriverError

TIMEOUT_SECONDS: Final = 20.0
"""Commands take milliseconds; one that takes this long is taken to hang."""
PACKAGES: Final = {
    "nft": "nftables",
    "iptables": "iptables",
    "ip6tables": "iptables",
    "tc": "iproute2",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
"""By program: the Debian package that contains it."""
_REFUSED: Final = ("Operation not permitted", "Permission denied")


async def at_once(works: Iterable[Awaitable[object]]) -> None:
    """Do all of these at once, each to its end, and raise the first failure."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def run_command(argv: Sequence[str], stdin: str = "") -> str:
    """Run a program to its end, and return its output; DriverError, in one line, if it fails."""
    # Files in memory, not pipes: nothing has to be read or written while the program runs.
    with _memory("stdin", stdin.encode()) as given, _memory("out") as out, _memory("err") as err:
        process = _start(argv, given, out, err)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await _end_of(process.pid)
        except TimeoutError:
            raise DriverError(f"{' '.join(argv)}: no end after {TIMEOUT_SECONDS:g}s") from None
        finally:
            # If the program has ended already, this only reaps it.
            process.kill()
            process.wait()
        texts = [_content(file) for file in (out, err)]
    if process.returncode:
        raise DriverError(explain(argv, process.returncode, texts[1] or texts[0]))
    return texts[0]


def _start(
    argv: Sequence[str], given: BinaryIO, out: BinaryIO, err: BinaryIO
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, stdin=given, stdout=out, stderr=err)  # noqa: S603 our own words, and no shell
    except FileNotFoundError:
        raise DriverError(_no_program(argv[0])) from None
    except PermissionError as error:
        raise DriverError(f"{argv[0]} may not be run: {error.strerror}") from None


def explain(argv: Sequence[str], code: int, said: str) -> str:
    """Return why a program failed, in one line, with the remedy."""
    lines = [line.strip() for line in said.splitlines() if line.strip(" ^\t")]
    reason = lines[0] if lines else "it said nothing"
    if "failed to execute" in reason:
        # `nsenter` reports so that the program to run in the namespace is missing.
        missing = reason.partition("failed to execute ")[2].partition(":")[0]
        return _no_program(missing)
    remedy = ""
    if any(word in said for word in _REFUSED):
        remedy = "; it needs root, or a container with the capability NET_ADMIN"
    return f"{' '.join(argv)}: exit {code}: {reason}{remedy}"


def _no_program(program: str) -> str:
    package = PACKAGES.get(program)
    return f"there is no program {program}" + (f": apt-get install {package}" if package else "")


def _memory(name: str, content: bytes = b"") -> BinaryIO:
    """Open a file in memory, at its beginning."""
    file = cast(BinaryIO, os.fdopen(os.memfd_create(name), "w+b", buffering=0))
    file.write(content)
    file.seek(0)
    return file


def _content(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


async def _end_of(pid: int) -> None:
    """Wait for the end of a child, which still has to be reaped."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    handle = os.pidfd_open(pid)

    def note() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(handle, note)
    try:
        await ended
    finally:
        loop.remove_reader(handle)
        os.close(handle)
