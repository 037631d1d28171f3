"""The agent as a process: `stormcast agent`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from stormcast.chaos.agent.agent import Agent
from stormcast.chaos.agent.device_addresses import located
from stormcast.chaos.agent.endpoints import MAX_BODY, endpoints
from stormcast.chaos.agent.lines import MAX_LINE, serve_lines
from stormcast.chaos.agent.network_claim import NetworkClaim
from stormcast.chaos.agent.settings import AgentSettings, load_agent, site_of_lines
from stormcast.chaos.drivers import packets
from stormcast.chaos.drivers.base import DriverError, Site
from stormcast.chaos.drivers.nfqueue import NfqueueDriver
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.drivers.running import run_command
from stormcast.chaos.drivers.tc import TcDriver
from stormcast.exits import Exit
from stormcast.node.control.server import Control
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.core.names import one_line

_PROG: Final = "stormcast agent"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"error: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROG,
        description="Apply faults to the networks of some members, as HTTP requests say. A fault "
        "ends when its lease is not renewed. docs/agent.md tells more.",
        allow_abbrev=False,
        epilog="exit codes: 0 after SIGTERM or SIGINT; 2 usage; 3 a fault could not be removed",
    )
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--config", metavar="FILE", help="whose networks, and the endpoint, in YAML or JSON"
    )
    way.add_argument(
        "--lines",
        metavar="TABLE",
        help="act on the own network, and take requests as lines of standard input, until that "
        "ends; TABLE is what its nft tables are called",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        default="",
        help="name of the member, where the file has one site and does not name it",
    )
    return parser


def agent(argv: Sequence[str]) -> int:
    """Run the command `stormcast agent`: serve until a signal, then remove all faults."""
    try:
        words = _parser().parse_args(list(argv))
        if words.lines is not None:
            return asyncio.run(serve_attached(*site_of_lines(words.lines, words.name)))
        settings = load_agent(words.config, os.environ, words.name)
        return asyncio.run(serve(settings))
    except NodeError as error:
        print(f"{_PROG}: {one_line(error)}", file=sys.stderr)
        return Exit.UNKNOWN if isinstance(error, DriverError) else Exit.USAGE


async def serve(settings: AgentSettings) -> int:
    """Answer requests until SIGTERM or SIGINT."""
    told = _told()
    async with _acting(settings.sites, settings.table) as agent:
        table = endpoints(agent)
        controls = [Control(settings.control, table, _show, say=_say, max_body=MAX_BODY)]
        if settings.probes is not None:
            controls.append(Control.for_probes(settings.probes, table, _show))
        try:
            for control in controls:
                print(f"listening at {await control.open()}", flush=True)
            await told.wait()
        finally:
            for control in controls:
                await control.close()
    return 0


async def serve_attached(site: Site, table: str) -> int:
    """Answer lines of standard input until that ends, nobody asks any more, SIGTERM or SIGINT."""
    told = _told()
    lines = asyncio.StreamReader(limit=MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with _acting((site,), table) as agent:
        work = asyncio.ensure_future(serve_lines(endpoints(agent), lines, _write, _show))
        stop = asyncio.ensure_future(told.wait())
        try:
            await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                _say(f"it ends: {work.result()}")
        finally:
            work.cancel()
            stop.cancel()
    return 0


def _told() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    return told


@asynccontextmanager
async def _acting(given: Sequence[Site], table: str) -> AsyncIterator[Agent]:
    """Give an agent for these sites; at the end all faults are removed."""
    # By the time that a state asks for it, packets of other faults may wait.
    packets.load_early()
    sites = [await located(site, run_command) for site in given]
    nft = NftDriver(sites, table, run_command)
    # An agent of this name was killed before: its tables do nothing any more, but are in the way.
    await nft.sweep()
    queue = NfqueueDriver(sites, table, run_command, asyncio.get_running_loop())
    tc = TcDriver(sites, table, run_command)
    # nft is last: it hands packets to the others.
    agent = Agent((queue, tc, nft), NetworkClaim(sites))
    try:
        yield agent
    finally:
        await agent.close()


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _say(line: str) -> None:
    print(f"{_PROG}: {one_line(line)}", file=sys.stderr, flush=True)


def _show(error: Exception) -> None:
    traceback.print_exception(error)
