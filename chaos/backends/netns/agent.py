"""The agent process that acts on all namespaces of a run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from stormcast.chaos.agent.client import (
    AgentClient,
    AgentError,
    AgentRefusalError,
    LeaseLapsedError,
    over_unix,
)
from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.netns.process import Process, environment, until
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.drivers.base import Bites, Site
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.bound import bound_to_me

SOCKET: Final = "agent.sock"
"""Relative to the agent's folder."""
START_SECONDS: Final = 40.0
RENEWALS: Final = 4
"""Renewals of a lease while it lasts, so that one late renewal does not end it."""


class AgentProcess:
    """An agent process, started when it is first needed, and the lease of its faults. Every failure
    is a BackendError with the last lines of the agent's log."""

    def __init__(
        self,
        run: RunId,
        sites: Sequence[Site],
        folder: Path,
        lease: float = LEASE_SECONDS,
        bound: Callable[[Sequence[str]], Sequence[str]] = bound_to_me,
    ) -> None:
        """`bound`: makes the words of a program that ends with this process."""
        self._lease = lease
        self._bound = bound
        self._run = run
        self._sites = tuple(sites)
        self._folder = folder
        self._socket = over_unix(folder / SOCKET)
        self._client = AgentClient(self._socket)
        self._process: Process | None = None
        self._renewed: float | None = None
        """The time at which the lease began; None: no fault acts."""
        self._bites: Bites = {}
        """The agent's last answer: bites are asked for after the agent has ended, too."""

    @property
    def pid(self) -> int | None:
        """The agent's process id; None if it was not started."""
        return None if self._process is None else self._process.pid

    def features(self) -> dict[str, str | None]:
        """Return by feature None where the agent has it here, else the reason why not."""
        self._start()
        with self._asked() as client:
            return client.features()

    def apply(self, state: NetworkState) -> None:
        """Bring the networks of all members into `state`."""
        self._start()
        begun = time.monotonic()
        places = {site.name: site.addresses for site in self._sites}
        with self._asked() as client:
            client.apply(replace(state, places=places), self._lease)
        self._renewed = begun

    def renew(self) -> None:
        """Extend what acts by another lease. BackendError when the last one has lapsed."""
        if self._renewed is not None:
            begun = time.monotonic()
            with self._asked() as client:
                client.renew(self._lease)
            self._renewed = begun

    def keep(self) -> None:
        """Renew the lease if a quarter of it has passed: to be called often while waiting."""
        pace = self._lease / RENEWALS
        if self._renewed is not None and time.monotonic() - self._renewed >= pace:
            self.renew()

    def clear(self) -> None:
        """End all faults."""
        self._renewed = None
        if self._process is not None:
            with self._asked() as client:
                client.clear()

    def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep."""
        if self._process is not None:
            with self._asked() as client:
                client.release(fault)

    def bites(self) -> Bites:
        """Return the bites of each fault; after the agent's end, those of its last answer."""
        if self._process is not None:
            with self._asked() as client:
                self._bites = client.bites()
        return self._bites

    def forget_bites(self) -> None:
        """Forget the bites of faults that have ended."""
        if self._process is not None:
            with self._asked() as client:
                client.forget_bites()

    def weights(self) -> dict[str, dict[str, float]]:
        """Return what the agent takes of the machine, by its name."""
        if self._process is None:
            return {}
        with self._asked() as client:
            return dict([client.weight()])

    def end(self) -> None:
        """Clear everything, and have the agent end: its namespaces stay."""
        if self._process is not None:
            try:
                self.clear()
            finally:
                # It clears once more, if it has to.
                self._process.stop()
                self._process = None

    def close(self) -> None:
        """Kill the agent: what it installed goes with the namespaces, which are removed, too."""
        self._renewed = None
        if self._process is not None:
            self._process.kill()
            self._process = None

    @contextmanager
    def _asked(self) -> Iterator[AgentClient]:
        """Give the agent's client. Where the agent did not say why it failed, its log may."""
        try:
            yield self._client
        except LeaseLapsedError as error:
            raise BackendError(f"{error}; run the scenario again") from None
        except AgentRefusalError as error:
            raise BackendError(str(error)) from None
        except AgentError as error:
            said = "" if self._process is None else self._process.tail()
            raise BackendError(f"{error}\n{said}".rstrip()) from None

    def _start(self) -> None:
        if self._process is not None:
            return
        config = self._folder / "agent.json"
        config.write_text(self._config())
        (self._folder / SOCKET).unlink(missing_ok=True)
        argv = (sys.executable, "-m", "stormcast", "agent", "--config", str(config))
        process = Process(self._bound(argv), self._folder, "agent", environment({}, self._run))
        self._process = process

        def is_there() -> bool:
            if not process.is_alive:
                raise BackendError(f"the agent has ended with {process.code}: {process.tail()}")
            return AgentClient(self._socket).is_alive()

        until(is_there, START_SECONDS, lambda: f"the agent answers\n{process.tail()}", 0.02)

    def _config(self) -> str:
        sites = [
            {
                "name": site.name,
                "addresses": list(site.addresses),
                "device": site.device,
                "netns": site.netns,
            }
            for site in self._sites
        ]
        whole = {"table": self._run.table, "control": f"unix:{SOCKET}", "sites": sites}
        return json.dumps(whole, indent=1) + "\n"
