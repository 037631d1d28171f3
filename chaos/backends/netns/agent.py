"""The agent of a rig: a process that does to its networks what it is told; started when it is first
needed, and gone with the rig."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.agent.client import AgentClient, AgentError, over_unix
from chaos.backends.netns.commands import bound_to_me
from chaos.backends.netns.process import Process, environment, until
from chaos.drivers.base import Bites, Site
from chaos.language.network_state import NetworkState

SOCKET: Final = "agent.sock"
"""Relative to the agent's folder."""
START_SECONDS: Final = 40.0
RENEWALS: Final = 4
"""How often a lease is renewed while it lasts, so that one late turn does not end it."""


class RigAgent:
    """One agent for all namespaces of a rig, and the lease on what it does."""

    def __init__(self, table: str, sites: Sequence[Site], folder: Path, lease: float) -> None:
        self.lease = lease
        self._table = table
        self._sites = tuple(sites)
        self._folder = folder
        self._client = AgentClient(over_unix(folder / SOCKET))
        self._process: Process | None = None
        self._renewed: float | None = None
        """When the lease began; None: nothing acts."""
        self._bites: Bites = {}
        """What was last said of them: they are asked for when it is over, too."""

    @property
    def pid(self) -> int | None:
        """None: nobody needed it so far."""
        return None if self._process is None else self._process.pid

    def probe(self) -> dict[str, str | None]:
        """What can be done here, by feature, and why not where it cannot."""
        self._start()
        return self._client.probe()

    def apply(self, state: NetworkState) -> None:
        """Make the networks so."""
        self._start()
        begun = time.monotonic()
        self._client.apply(state, self.lease)
        self._renewed = begun

    def renew(self) -> None:
        """Have what acts go on."""
        if self._renewed is not None:
            begun = time.monotonic()
            self._client.renew(self.lease)
            self._renewed = begun

    def keep(self) -> None:
        """Renew, if it is time to."""
        if self._renewed is not None and time.monotonic() - self._renewed >= self._pace:
            self.renew()

    @property
    def _pace(self) -> float:
        return self.lease / RENEWALS

    def clear(self) -> None:
        """Have nothing act."""
        self._renewed = None
        if self._process is not None:
            self._client.clear()

    def release(self, fault: str | None) -> None:
        """Let go what `hold` rules keep."""
        if self._process is not None:
            self._client.release(fault)

    def bites(self) -> Bites:
        """What each fault did, as far as can be known by now."""
        if self._process is not None:
            self._bites = self._client.bites()
        return self._bites

    def close(self) -> None:
        """End it at once: the namespaces go, too, and what it has put there."""
        self._renewed = None
        if self._process is not None:
            self._process.kill()
            self._process = None

    def tail(self) -> str:
        """The last lines of its log."""
        return "" if self._process is None else self._process.tail()

    def _start(self) -> None:
        if self._process is not None:
            return
        config = self._folder / "agent.json"
        config.write_text(self._config())
        (self._folder / SOCKET).unlink(missing_ok=True)
        argv = (sys.executable, "-m", "stormcast", "agent", "--config", str(config))
        process = Process(bound_to_me(argv), self._folder, "agent", environment({}))
        self._process = process

        def is_there() -> bool:
            if not process.is_alive:
                raise AgentError(f"the agent has ended with {process.code}: {process.tail()}")
            return self._client.is_alive()

        until(is_there, START_SECONDS, lambda: f"the agent answers\n{process.tail()}", 0.02)

    def _config(self) -> str:
        sites = [
            {"name": site.name, "addresses": list(site.addresses), "device": site.device,
             "netns": site.netns}
            for site in self._sites
        ]  # fmt: skip
        whole = {"table": self._table, "control": f"unix:{SOCKET}", "sites": sites}
        return json.dumps(whole, indent=1) + "\n"
