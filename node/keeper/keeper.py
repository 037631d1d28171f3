"""The keeper: the parent of one member where nobody else can start, stop or pause processes, such
as in a container.

It keeps each incarnation's journal and log until told to delete them, lets no pause outlast its
lease, and ends its member when it ends. One thread; as process 1 it reaps every process that dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormcast.node.control.settings import ControlSettings
from stormcast.node.core.errors import NodeError
from stormcast.node.keeper.busy import BusyError
from stormcast.node.keeper.claim import Claim
from stormcast.node.keeper.folders import Folders
from stormcast.node.keeper.incarnation import Incarnation, spawn
from stormcast.node.keeper.pauses import Pauses
from stormcast.weights import bytes_in, weigh

CONTROL: Final = "control.sock"
"""The socket of the member's own endpoint, relative to the keeper's folder: a socket's address has
no room for a long path."""
VARIABLES: Final = "STORMCAST_"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSettings:
    """Settings of a keeper."""

    control: ControlSettings
    probes: ControlSettings | None = None
    """A further listener for /livez and /readyz, with connections of its own; None: there is
    none."""
    folder: Path
    """For its members' journals, logs and control endpoint; nobody else may use it."""
    config: Path | None = None
    """Settings of the default member, which runs when `start` names no other settings."""
    starts: bool = False
    """Whether the default member starts with the keeper."""
    key_file: Path | None = None
    """The file with the keys by which all its members seal; None: the members' own settings name
    one, or nothing is sealed."""
    grace: float = 12.0
    """Seconds that a member has to leave when the keeper is told to end."""


class Keeper:
    """Starts, stops and pauses one member at a time."""

    def __init__(
        self, settings: KeeperSettings, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self.member: Incarnation | None = None
        """The latest incarnation."""
        self.claim = Claim(say, self._abandon)
        self.pauses = Pauses(say)
        self.is_over = asyncio.Event()
        self.code = 0
        self._environ = environ
        self._say = say
        self._folders = Folders(settings.folder)
        self._task: asyncio.Task[None] | None = None

    # -- Whose it is ---------------------------------------------------------------------------

    async def give_back(self, run: str) -> None:
        """End a run's claim, and the member that it has started; start the default member again, if
        the keeper starts one. Do nothing if the run does not have the keeper."""
        if not self.claim.release(run):
            return
        if self.is_alive and not self._is_default:
            await self.kill()
        if self.claim.run:
            # Another run claimed it while that member ended, and starts its own.
            return
        if self.settings.starts and not self.is_alive and not self.is_over.is_set():
            self.start()

    def _abandon(self) -> None:
        self._say(f"run {self.claim.run} has not been heard of: its member is ended")
        self._task = asyncio.ensure_future(self._take_back())

    async def _take_back(self) -> None:
        try:
            await self.give_back(self.claim.run)
        except (NodeError, OSError) as error:
            # A full disk, for instance. Whoever claims the keeper next can delete journals.
            self._say(f"the default member does not start: {error}")

    # -- Commands ------------------------------------------------------------------------------

    @property
    def _is_default(self) -> bool:
        return self.member is not None and self.member.is_default

    @property
    def is_alive(self) -> bool:
        return self.member is not None and self.member.code is None

    def start(self, config: Mapping[str, Any] | None = None) -> Incarnation:
        """Start the default member, or one with the settings of a configuration."""
        if self.is_alive:
            raise BusyError("a member runs already; stop or kill it first")
        number, folder = self._folders.make()
        self.member = spawn(
            number,
            self._words(folder, config),
            folder,
            is_default=config is None,
            place=self.settings.folder,
            environ=self._environ if config is None else self._without_variables(),
        )
        self._say(f"incarnation {number} is pid {self.member.popen.pid}")
        return self.member

    def _words(self, folder: Path, config: Mapping[str, Any] | None) -> list[str]:
        """Return the command of a member; a configuration of its own is written to its folder."""
        words = [sys.executable, "-m", "stormcast", "node", "--control", f"unix:{CONTROL}"]
        if self.settings.key_file is not None:
            words += ["--key-file", str(self.settings.key_file)]
        if config is None:
            if self.settings.config is not None:
                words += ["--config", str(self.settings.config.resolve())]
        else:
            given = folder / "config.json"
            given.write_text(json.dumps(config))
            words += ["--config", str(given), "--journal", str(folder / "journal")]
        return words

    def _without_variables(self) -> dict[str, str]:
        # A configuration that was handed over is complete, so variables must not change it. The
        # member's endpoint needs no token: it is a socket that only its owner may use.
        return {
            name: value for name, value in self._environ.items() if not name.startswith(VARIABLES)
        }

    def stop(self) -> None:
        """Tell the member to leave: a paused one does so when it goes on. Only the first call sends
        a signal: after a second one it would end at once."""
        member = self._living()
        if not member.is_told:
            member.is_told = True
            member.signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill the member, and wait until it is gone."""
        member = self._living()
        member.is_told = True
        member.signal(signal.SIGKILL)
        await member.ended.wait()

    def pause(self, lease: float, incarnation: int | None = None) -> bool:
        """Stop the member's process for no longer than the lease; BusyError if it is not of the
        given incarnation. Return whether it ran until now."""
        member = self._living()
        if incarnation not in (None, member.number):
            raise BusyError(f"incarnation {incarnation} has ended; {member.number} runs")
        return self.pauses.begin(member, lease)

    def renew(self, lease: float) -> None:
        """Let a pause last `lease` seconds from now; do nothing if the member is not paused."""
        self.pauses.renew(self.member, lease)

    def resume(self) -> None:
        """Resume a paused member."""
        self.pauses.end(self.member)

    def state(self) -> dict[str, Any]:
        """Return how the member is: alive, paused, exit code, log; and the run that claimed it."""
        ended = {
            "alive": False,
            "paused": False,
            "incarnation": 0,
            "default": True,
            "code": None,
            "log": "",
        }
        state = self.member.state() if self.member is not None else ended
        return state | {"run": self.claim.run, "lapses": self.pauses.lapses}

    def delete(self) -> int:
        """Delete the folders of ended incarnations; return how many those were."""
        kept = self.member.folder if self.member is not None and self.is_alive else None
        return self._folders.delete_all_but(kept)

    def forget(self, numbers: Collection[int]) -> int:
        """Delete the folders of ended incarnations, by their numbers; BusyError for the one that
        runs. Return how many there were."""
        if self.member is not None and self.is_alive and self.member.number in numbers:
            raise BusyError(f"incarnation {self.member.number} runs; its journal is written")
        return self._folders.delete(numbers)

    def weight(self) -> dict[str, Any]:
        """Return what the member's process takes of the machine; BusyError if there is none."""
        member = self._living()
        try:
            journal = bytes_in(member.folder)
            return {"incarnation": member.number, **weigh(member.popen.pid), "journal": journal}
        except OSError:
            raise BusyError("the member has ended just now") from None

    # -- Life ----------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until told to end, or until the default member fails; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            if self.settings.starts:
                self.start()
            await self.is_over.wait()
            await self._leave()
        finally:
            if self.member is not None:
                self.member.signal(signal.SIGKILL)
        return self.code

    async def _leave(self) -> None:
        """Tell the member to leave, and kill it if it has not left within `grace`."""
        if not self.is_alive:
            return
        assert self.member is not None
        self.stop()
        self.resume()
        try:
            async with asyncio.timeout(self.settings.grace):
                await self.member.ended.wait()
        except TimeoutError:
            self._say(f"the member has not left after {self.settings.grace:g} s: it is killed")
            await self.kill()

    def _on_signal(self, number: int) -> None:
        self._say(f"{signal.Signals(number).name}: its member is to leave")
        self.is_over.set()

    # -- Processes -----------------------------------------------------------------------------

    def _living(self) -> Incarnation:
        if self.member is None or self.member.code is not None:
            raise BusyError("no member runs; start one first")
        return self.member

    def _reap(self) -> None:
        """Reap all processes that have ended: as process 1, also children of other processes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self.member is not None and pid == self.member.popen.pid:
                self._on_end(self.member, os.waitstatus_to_exitcode(status))

    def _on_end(self, member: Incarnation, code: int) -> None:
        member.code = member.popen.returncode = code
        member.is_paused = False
        member.ended.set()
        self._say(f"incarnation {member.number} has ended: {code}")
        if member.is_default and not member.is_told and code:
            # The default member failed. The keeper ends with its code, so that both are restarted.
            self.code = code if code > 0 else 128 - code
            self.is_over.set()
