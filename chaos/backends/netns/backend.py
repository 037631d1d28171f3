"""The netns backend: members as processes in network namespaces of this machine.

Requests to members pass through unix sockets, so no fault touches them. Every process, and with it
every fault, ends when the process that started it ends.
"""

from __future__ import annotations

import atexit
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from stormcast.chaos.backends.base import BackendError, Bites, ClusterPlan, Unsupported
from stormcast.chaos.backends.netns.agent import AgentProcess
from stormcast.chaos.backends.netns.commands import member_argv
from stormcast.chaos.backends.netns.members import Argv
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.run_parts import Opened, RunParts
from stormcast.chaos.backends.netns.running import CommandError, what_is_missing
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.records.exits import MemberExit
from stormcast.chaos.records.rig_trace import wall_at_zero

POLL_SECONDS: Final = 0.02
KEEP_SECONDS: Final = 0.1
"""The longest pause between two looks whether it is time to renew."""
BY_ITSELF: Final = frozenset(
    {
        *("members", "pause", "group", "no-group", "commands", "rule-on-streams"),
        *("keys", "change-keys", "rule-over-members"),
    }
)
"""Features that need namespaces and processes, but no agent."""


def features_here() -> dict[str, str | None]:
    """Return the features of this machine, found by trying them in a network of two members."""
    why = what_is_missing()
    if why:
        return dict.fromkeys(FEATURES, f"{why}; or use --backend sim")
    network = Network(RunId.next(), ("n0", "n1"))
    try:
        with ExitStack() as undo:
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                # Trying takes seconds, and SIGTERM (as `timeout` sends it) would end this process
                # without undoing: the folder and the namespaces would stay.
                undo.enter_context(sigterm_interrupts())
            folder = undo.enter_context(TemporaryDirectory(prefix=f"{network.run}-"))
            undo.callback(network.remove)
            network.make()
            agent = AgentProcess(network.run, network.sites(), Path(folder))
            undo.callback(agent.close)
            found = agent.features()
    except (CommandError, BackendError) as error:
        return dict.fromkeys(FEATURES, f"this machine refuses: {error}")
    found = {**dict.fromkeys(FEATURES, "no driver of this version does it"), **found}
    found |= ONLY_SIMULATED
    return {name: None if name in BY_ITSELF else found[name] for name in FEATURES}


class NetnsBackend:
    """Members in namespaces; all of it belongs to the thread that opened it."""

    name = "netns"
    is_virtual = False

    def __init__(
        self,
        features: Mapping[str, str | None] | None = None,
        argv: Argv = member_argv,
        key_file: Path | None = None,
    ) -> None:
        """`key_file`: the keys of sealed members, in place of a file that is made for the run."""
        self._features = features
        """The result of `features_here`, if it was asked before: it takes a second."""
        self._key_file = key_file
        self._parts = RunParts(argv, key_file)
        self._opened: Opened | None = None
        self.wall_ns: int | None = None
        """The wall clock, in nanoseconds, at the zero of the monotonic clock, as all traces of the
        run give it: read once, because the wall clock may be set while the run goes on."""

    def features(self) -> Mapping[str, str | None]:
        """Return the features of this machine."""
        if self._features is None:
            self._features = features_here()
        return self._features

    def open(self, plan: ClusterPlan) -> None:
        """Make the namespaces and the folders of members; no member runs yet."""
        if why := what_is_missing():
            raise BackendError(why)
        features = self.features()
        for need in sorted(plan.needs):
            if why := features.get(need, "this version does not have it"):
                raise Unsupported(f"netns has no {need}: {why}")
        atexit.register(self.close)
        self.wall_ns = wall_at_zero(self.now())
        self._opened = self._parts.make(plan, self.wall_ns)

    def close(self) -> None:
        """End everyone and remove the namespaces. Where Ctrl-C ended it, another call goes on: that
        at the end of this process, if there is none before."""
        self._parts.remove()
        atexit.unregister(self.close)

    @property
    def opened(self) -> Opened:
        """The parts of the open backend; BackendError before `open`."""
        if self._opened is None:
            raise BackendError("open the backend before its verbs are used")
        return self._opened

    # -- Time ----------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the monotonic clock of this machine, which all its processes share."""
        return time.monotonic()

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Wait for `seconds`, or until `is_done`; meanwhile the lease is renewed."""
        until = time.monotonic() + seconds
        while True:
            if is_done is not None and is_done():
                return True
            now = time.monotonic()
            if now >= until:
                return False
            self.opened.agent.keep()
            # Often, so that it is known when a member ended that nobody told to.
            self.opened.members.exits()
            step = POLL_SECONDS if is_done is not None else KEEP_SECONDS
            time.sleep(min(step, max(0.0, until - time.monotonic())))

    # -- Members -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member in its namespace."""
        self.opened.members.start(name)

    def set_test_protocols(
        self, name: str, test_protocols: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Have a member begin with these test protocols when it is started next."""
        self.opened.members.set_test_protocols(name, test_protocols)

    def stop(self, name: str) -> None:
        """Have a member leave: a paused one does when it is resumed."""
        self.opened.members.running(name).ask_to_end()

    def kill(self, name: str) -> None:
        """End a member at once."""
        self.opened.members.kill(name)

    def restart(self, name: str) -> None:
        """Kill a member, if it runs, and start it anew."""
        self.kill(name)
        self.start(name)

    def change_keys(self, step: str) -> None:
        """Change the file with the keys, which all members read; BackendError if it was given."""
        if self._key_file is not None:
            raise BackendError(f"{self._key_file} was given to the run, which does not change it")
        self.opened.members.change_keys(step)

    def pause(self, name: str) -> None:
        """Stop a member's process; it is killed when this process ends."""
        self.opened.members.running(name).pause()

    def resume(self, name: str) -> None:
        """Resume a paused member."""
        self.opened.members.running(name).resume()

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        return self.opened.members.is_alive(name)

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """Send one request to a member, through its unix socket."""
        # A caller that asks many members does not call `wait` meanwhile, which would renew.
        self.opened.agent.keep()
        return self.opened.members.ask(name, method, target, body)

    def exits(self) -> list[MemberExit]:
        """Return the ends of all incarnations so far."""
        return list(self.opened.members.exits())

    # -- The network ---------------------------------------------------------------------------

    def apply(self, state: NetworkState) -> None:
        """Bring the network into `state`."""
        self.opened.agent.apply(state)

    def renew(self) -> None:
        """Extend what acts by another lease."""
        self.opened.agent.renew()

    def clear(self) -> None:
        """End all faults of the network."""
        if self._opened is not None:
            self._opened.agent.clear()

    def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep."""
        self.opened.agent.release(fault)

    def bites(self) -> Bites:
        """Return the bites of all faults."""
        return self.opened.agent.bites()

    # -- The end -------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop all members at one moment, and then end them."""
        self.opened.members.freeze()

    def collect(self) -> Mapping[str, bytes]:
        """Return the journals of all incarnations, by label."""
        return self.opened.members.journals()

    def forget(self, gone: Collection[str]) -> None:
        """Delete the journals of incarnations that are gone, by their labels, and the bites of
        faults that have ended."""
        self.opened.members.forget(gone)
        self.opened.agent.forget_bites()

    def weights(self) -> Mapping[str, Mapping[str, float]]:
        """Return what each living member, and the agent, takes of the machine, by name and pid."""
        return {**self.opened.members.weights(), **self.opened.agent.weights()}

    def standstills(self) -> list[tuple[float, float]]:
        """Return the spans of time in which the machine ran no process (see `Watch`)."""
        return self.opened.watch.spans()
