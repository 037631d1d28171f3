"""The netns backend: members as processes in network namespaces of this machine.

What is said to members passes through unix sockets, so no fault touches it; every process, and with
it every fault, ends with the one that made it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from chaos.backends.base import BackendError, Bites, ClusterPlan, MemberError, Unsupported
from chaos.backends.netns.commands import CONTROL, MemberSpec
from chaos.backends.netns.process import Process
from chaos.backends.netns.rig import Rig, RigError
from chaos.backends.netns.running import CommandError, what_is_missing
from chaos.language.features import FEATURES
from chaos.language.network_state import NetworkState
from node.settings import list_layers

POLL_SECONDS: Final = 0.02
KEEP_SECONDS: Final = 0.1
"""How often it is looked whether it is time to renew."""
CONFIG: Final = "member.yaml"
"""What a member is set to, in its folder."""
STATIC: Final = "STATIC"
BY_ITSELF: Final = frozenset(
    {"members", "pause", "group", "no-group", "commands", "rule-on-streams"}
)
"""What takes namespaces and processes, and nothing else."""


def config_argv(python: str, spec: MemberSpec) -> tuple[str, ...]:
    """The words that start a member whose settings are in a file of its folder."""
    words = {
        "--config": CONFIG,
        "--name": spec.name,
        "--bind-addr": spec.address,
        "--port": str(spec.port),
        "--journal": str(spec.journal or spec.folder / "journal"),
        "--control": f"unix:{CONTROL}",
    }
    if spec.initial_hosts:
        words["--initial-hosts"] = ",".join(spec.initial_hosts)
    return (python, "-m", "stormcast", "node", *(word for pair in words.items() for word in pair))


def probe() -> dict[str, str | None]:
    """What this machine can do, found by trying it with a rig of two."""
    why = what_is_missing()
    if why:
        return dict.fromkeys(FEATURES, f"{why}; or use --backend sim")
    try:
        with (
            TemporaryDirectory(prefix="stormcast-") as folder,
            Rig(("n0", "n1"), Path(folder)) as rig,
        ):
            found = rig.agent.probe()
    except (CommandError, RigError, TimeoutError) as error:
        return dict.fromkeys(FEATURES, f"this machine refuses: {error}")
    missing = "no driver of this version does it"
    return {name: None if name in BY_ITSELF else found.get(name, missing) for name in FEATURES}


class NetnsBackend:
    """Members in namespaces; all of it belongs to the thread that opened it."""

    name = "netns"
    is_virtual = False

    def __init__(self, features: Mapping[str, str | None] | None = None) -> None:
        self._opened: Rig | None = None
        self._plan = ClusterPlan(run="", members=(), folder=Path())
        self._features = features
        """What `probe` found, if it was asked before: it takes a second."""
        self._bites: Bites = {}

    def probe(self) -> Mapping[str, str | None]:
        """What this machine can do."""
        if self._features is None:
            self._features = probe()
        return self._features

    def open(self, plan: ClusterPlan) -> None:
        """Make the namespaces, and nothing in them."""
        if why := what_is_missing():
            raise BackendError(why)
        features = self.probe()
        for need in sorted(plan.needs):
            if why := features.get(need, "this version does not have it"):
                raise Unsupported(f"netns has no {need}: {why}")
        self._plan = plan
        rig = Rig(plan.names, plan.folder.resolve(), argv=config_argv)
        with _told():
            rig.__enter__()
        self._opened = rig
        for member in plan.members:
            folder = rig.folder / member.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / CONFIG).write_text(json.dumps(member.config))

    def close(self) -> None:
        """End everyone and remove the namespaces."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _rig(self) -> Rig:
        if self._opened is None:
            raise BackendError("open the backend before its verbs are used")
        return self._opened

    # -- Time ----------------------------------------------------------------------------------

    def now(self) -> float:
        """The clock of this machine, which all its processes share."""
        return time.monotonic()

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Let time pass, renewing what acts on the network."""
        until = time.monotonic() + seconds
        while True:
            if is_done is not None and is_done():
                return True
            now = time.monotonic()
            if now >= until:
                return False
            with _told():
                self._rig.keep()
            step = POLL_SECONDS if is_done is not None else KEEP_SECONDS
            time.sleep(min(step, max(0.0, until - time.monotonic())))

    # -- Members -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member in its namespace."""
        self._check_known(name)
        if self.is_alive(name):
            raise BackendError(f"{name} runs already; restart it, or stop it before")
        config = next(one.config for one in self._plan.members if one.name == name)
        hosts = self._rig.hosts() if _is_told(config) else ()
        self._rig.start(name, initial_hosts=hosts)

    def stop(self, name: str) -> None:
        """Have a member leave: one that is paused does when it goes on."""
        self._living(name).ask_to_end()

    def kill(self, name: str) -> None:
        """End a member at once."""
        self._check_known(name)
        if name in self._rig.members:
            self._rig.members[name].kill()

    def restart(self, name: str) -> None:
        """Kill a member, if it runs, and start it anew."""
        self.kill(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """Stop a member's process; it dies with us."""
        self._living(name).pause()

    def resume(self, name: str) -> None:
        """Have it go on."""
        self._living(name).resume()

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        self._check_known(name)
        return self._rig.is_alive(name)

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """One request to a member, through its unix socket."""
        self._check_known(name)
        if not self.is_alive(name):
            raise MemberError(f"{name} does not answer {method} {target}: it does not run")
        with _told():
            # Whoever asks many of them does not wait meanwhile.
            self._rig.keep()
        try:
            return self._rig.ask(name, method, target, body)
        except RigError as error:
            raise MemberError(f"{name}: {error}") from None

    def _check_known(self, name: str) -> None:
        if name not in self._plan.names:
            names = " ".join(self._plan.names)
            raise BackendError(f"no member is called {name}; there are {names}")

    def _living(self, name: str) -> Process:
        self._check_known(name)
        if not self.is_alive(name):
            raise BackendError(f"{name} does not run")
        return self._rig.members[name]

    # -- The network ---------------------------------------------------------------------------

    def apply(self, state: NetworkState) -> None:
        """Make the network so."""
        with _told():
            self._rig.apply(state)

    def renew(self) -> None:
        """Have it go on."""
        with _told():
            self._rig.renew()

    def clear(self) -> None:
        """Have nothing act."""
        if self._opened is not None:
            with _told():
                self._opened.clear()

    def release(self, fault: str | None) -> None:
        """Let go what is held."""
        with _told():
            self._rig.release(fault)

    def bites(self) -> Bites:
        """What faults have done."""
        with _told():
            return self._rig.bites()

    # -- The end -------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop all members at one moment, and then end them."""
        processes = list(self._rig.members.values())
        for process in processes:
            process.pause()
        for process in processes:
            process.kill()

    def collect(self) -> Mapping[str, bytes]:
        """The journals of all incarnations."""
        traces = self._rig.collect()
        del traces["rig"]
        return traces

    def standstills(self) -> list[tuple[float, float]]:
        """When the machine gave nobody a turn."""
        watch = self._rig.watch
        return watch.spans() if watch is not None else []


def _is_told(config: Mapping[str, Any]) -> bool:
    """Whether a member must be told where the others are."""
    layers = list_layers(
        config["stack"], config.get("unicast") or None, config.get("discovery") or None
    )
    return any(name == STATIC for name, _values in layers)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong at the rig, as what every backend says."""
    try:
        yield
    except (RigError, TimeoutError) as error:
        raise BackendError(str(error)) from None
    except CommandError as error:
        raise BackendError(f"this machine refuses: {error}") from None
