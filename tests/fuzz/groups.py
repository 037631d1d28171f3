"""Groups under attack: three members under load in namespaces, an attacker on their bridge, and the
endpoint that is the target."""

from __future__ import annotations

import ctypes
import http.client
import json
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.netns.backend import NetnsBackend, features_here
from stormcast.chaos.backends.netns.commands import CONFIG, JOURNAL, PORT, MemberSpec, member_argv
from stormcast.chaos.backends.netns.names import BRIDGE
from stormcast.chaos.backends.netns.network import NAMESPACES
from stormcast.chaos.backends.netns.process import Process, environment, until
from stormcast.chaos.plugin.live_cluster import Clusters, LiveCluster
from stormcast.node.bound import bound_to_me
from stormcast.node.core.model import Address
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer
from tests.fuzz.facts import Facts
from tests.fuzz.requests import Door
from tests.fuzz.tallies import Tally
from tests.helpers.tokens import token_file

NAMES: Final = ("n0", "n1", "n2")
ATTACKER: Final = "attacker"
DOOR: Final = "door"
"""Where the agent under attack lives."""
ENDLESS: Final = 10**8
MOST_HELLOS: Final = 200
TOKEN: Final = "fuzz-0123456789abcdef"  # noqa: S105 of a test
_CONTROL_PORT: Final = 9000
_KEEPER_PORT: Final = 7801
_AGENT_PORT: Final = 7900
_MULTICAST_PORT: Final = 45588
CLONE_NEWNET: Final = 0x40000000
PATIENT: Final[Mapping[str, Mapping[str, str]]] = {
    "FD_ALL3": {"timeout": "30s", "interval": "2s"},
    "VERIFY_SUSPECT2": {"timeout": "5s"},
}
"""A machine that is busy with an attack may leave a member without a turn for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attacked, and how."""

    name: str
    stack: str
    by: str
    """`datagrams`, `streams`, `monitors` or `requests`."""
    share: float
    """Of all frames of a campaign."""
    rate: float
    """Frames a second at most."""
    has_powers: bool
    """Whether some frames change a group without keys: those are sent in rounds of their own."""


TARGETS: Final = (
    Target(name="udp", stack="udp", by="datagrams", share=0.4, rate=12e3, has_powers=True),
    Target(name="tcp", stack="tcp", by="streams", share=0.15, rate=5e3, has_powers=True),
    Target(name="tcp-nio2", stack="tcp-nio2", by="streams", share=0.15, rate=5e3, has_powers=True),
    Target(name="fd-sock2", stack="udp", by="monitors", share=0.12, rate=8e3, has_powers=False),
    Target(name="control", stack="udp", by="requests", share=0.06, rate=1e3, has_powers=False),
    Target(name="agent", stack="udp", by="requests", share=0.06, rate=1e3, has_powers=False),
    Target(name="keeper", stack="udp", by="requests", share=0.06, rate=1e3, has_powers=False),
)
BY_NAME: Final = {target.name: target for target in TARGETS}


@cache
def _features() -> Mapping[str, str | None]:
    """Found out once: it takes a second."""
    return features_here()


class DoorBackend(NetnsBackend):
    """Members of which one has an endpoint on the network, which asks for a token."""

    def __init__(
        self, features: Mapping[str, str | None], target: str, on_first: Callable[[], None]
    ) -> None:
        """`on_first`: called before the first member starts."""
        super().__init__(features, self._words)
        self._target = target
        self._on_first: Callable[[], None] | None = on_first

    def start(self, name: str) -> None:
        on_first, self._on_first = self._on_first, None
        if on_first is not None:
            on_first()
        super().start(name)

    def _words(self, python: str, spec: MemberSpec) -> tuple[str, ...]:
        words = member_argv(python, spec)
        if spec.name != NAMES[0] or self._target not in {"control", "keeper"}:
            return words
        token = token_file(spec.folder, TOKEN)
        if self._target == "control":
            words = tuple(
                f"{spec.address}:{_CONTROL_PORT}" if word.startswith("unix:") else word
                for word in words
            )
            # What is tried here are requests, so they need not be sealed.
            return (*words, "--control-token-file", str(token), "--control-tls", "none")
        variables = {
            "NAME": spec.name,
            "BIND_ADDR": spec.address,
            "PORT": PORT,
            "JOURNAL": spec.folder / JOURNAL,
        }
        return (
            *("env", *(f"STORMCAST_{name}={value}" for name, value in variables.items())),
            *(python, "-m", "stormcast", "keep", "--folder", str(spec.folder), "--start"),
            *("--listen", f"{spec.address}:{_KEEPER_PORT}", "--token-file", str(token)),
            *("--tls", "none"),
            *("--config", CONFIG),
        )

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
        """Ask the member whose endpoint is on the network over the network, from its namespace."""
        if name != NAMES[0] or self._target != "control":
            return super().ask(name, method, target, body)
        self.opened.agent.keep()
        if not self.is_alive(name):
            raise MemberError(f"{name} does not answer {method} {target}: it does not run")
        network = self.opened.network
        at = (network.address(name), _CONTROL_PORT)
        # Who reads only may ask again: its connection may have been ended for that of an attacker.
        tries = 5 if method == "GET" else 1
        for left in reversed(range(tries)):
            try:
                with connect_inside(network.run.namespace(name), at) as connection:
                    return _ask(connection, method, target, body)
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise MemberError(f"{name}: {method} {target}: {error!r}") from None
        raise AssertionError


def connect_inside(space: str, at: tuple[str, int]) -> socket.socket:
    """Return a connection that was made in a namespace: a socket stays in that of its maker."""

    def make() -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with (NAMESPACES / space).open() as handle:
            if libc.setns(handle.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return socket.create_connection(at, 10.0)

    # A thread of its own, which ends: it is the thread that is moved.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()


def _ask(connection: socket.socket, method: str, target: str, body: object) -> Any:
    host = http.client.HTTPConnection("member")
    host.sock = connection
    data = None if body is None else json.dumps(body).encode()
    host.request(method, target, data, {"Authorization": f"Bearer {TOKEN}"})
    answer = host.getresponse()
    text = answer.read()
    if answer.status >= http.client.BAD_REQUEST:
        raise MemberError(f"{method} {target}: {answer.status} {text[:200]!r}")
    return json.loads(text)


class Siege:
    """One group under load, and its attacker. Everything ends with the `with` block."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        seed: int,
        settings: Sequence[str] = (),
        *,
        is_keyed: bool = False,
    ) -> None:
        self.target = target
        self.is_keyed = is_keyed
        """Whether members have a key; the attacker has none, and hears all from the beginning."""
        self.folder = folder
        self._settings = settings
        self._undo = ExitStack()
        self._recorder: Attacker | None = None
        self._hellos: tuple[bytes, ...] = ()
        self._backend = DoorBackend(_features(), target.name, self._record)
        self.clusters = Clusters(
            backend="netns",
            seed=seed,
            name=f"fuzz-{target.name}",
            folder=folder,
            is_kept=False,
            replay="see the finding",
        )
        self.group: LiveCluster
        self.agent: Process | None = None
        self.attacker: Attacker

    def __enter__(self) -> Self:
        self._undo.callback(self.clusters.close)
        try:
            self._begin()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._undo.close()

    def _begin(self) -> None:
        # Each datagram as users have it: `cluster` would have it carry one frame.
        udp = {"UDP": {"bundler": "transfer-queue", "offload": "auto"}}
        known = {**PATIENT, **(udp if self.target.stack == "udp" else {})}
        protocols = {name: dict(values) for name, values in known.items()}
        for setting in self._settings:
            name, _, value = setting.partition("=")
            protocol, _, key = name.partition(".")
            protocols.setdefault(protocol, {})[key] = value
        self.group = self.clusters(
            (*NAMES, ATTACKER, DOOR),
            stack=self.target.stack,
            late=[ATTACKER, DOOR],
            backend=self._backend,
            protocols=protocols,
            sealed=self.is_keyed,
        )
        self.group.wait_for_view(*NAMES)
        self.group.multicast(ENDLESS, NAMES, rate="40/s", size="16B..2KiB")
        self.group.unicast(ENDLESS, NAMES, NAMES, rate="20/s", size="16B..500B")
        self.group.wait_for_traffic(*NAMES, more=5)
        if self.target.name == "agent":
            self.start_agent()

    def _record(self) -> None:
        """Hear the hellos of members with a key: they say them when they begin."""
        if self.is_keyed:
            self._recorder = self._undo.enter_context(
                Attacker(self, {"by": "record", "most": MOST_HELLOS}, BRIDGE)
            )
            self._recorder.answer()

    def hellos(self) -> tuple[bytes, ...]:
        """Return the sealed hellos that were heard; recording ends."""
        if self._recorder is not None:
            self._recorder.ask(0, 0, 0.0)
            self._hellos = tuple(bytes.fromhex(hello) for hello in self._recorder.answer())
            self._recorder = None
        return self._hellos

    def start_agent(self) -> None:
        """Start an agent that could act on all members, in a namespace of its own."""
        network = self._backend.opened.network
        sites = [asdict(site) for site in network.sites() if site.name in NAMES]
        config = self.folder / "agent-under-attack.json"
        at = f"{network.address(DOOR)}:{_AGENT_PORT}"
        token = str(token_file(self.folder, TOKEN))
        told = {"table": "fuzzed", "control": at, "token_file": token, "tls": "none"}
        config.write_text(json.dumps({**told, "sites": sites}))
        words = (sys.executable, "-m", "stormcast", "agent", "--config", str(config))
        variables = environment({}, network.run)
        argv = bound_to_me(network.inside(DOOR, words))
        agent = Process(argv, self.folder, "agent-under-attack", variables)
        self._undo.callback(agent.kill)
        self.agent = agent
        until(lambda: "listening" in agent.tail(), 40.0, lambda: f"an agent\n{agent.tail()}")

    # -- What is attacked ----------------------------------------------------------------------

    def processes(self) -> dict[str, Process]:
        """Return the processes whose memory is looked at, by name."""
        members = self._backend.opened.members.processes
        found = {name: members[name] for name in NAMES}
        return found | ({"agent": self.agent} if self.agent is not None else {})

    @property
    def address(self) -> str:
        """Where the attacker is."""
        return self._backend.opened.network.address(ATTACKER)

    def door(self, target: str = "") -> Door:
        """Return the endpoint under attack; another than that of the group's target by its name."""
        network = self._backend.opened.network
        host = network.address(NAMES[0])
        target = target or self.target.name
        if target == "control":
            return Door(
                name=NAMES[0], host=host, port=_CONTROL_PORT, token=TOKEN,
                reads=("/state", "/metrics", "/workload", "/probes"),
                commands=(
                    "/attributes", "/workload", "/probes", "/consume", "/peers", "/view",
                    "/forget", "/close",
                ),
                largest=64 << 10,
            )  # fmt: skip  # one group a line
        if target == "keeper":
            return Door(
                name=NAMES[0], host=host, port=_KEEPER_PORT, token=TOKEN,
                reads=("/state", "/member/state"),
                commands=("/claim", "/give-back", "/member/attributes", "/member/consume"),
                largest=1 << 20,
            )  # fmt: skip  # one group a line
        return Door(
            name="agent", host=network.address(DOOR), port=_AGENT_PORT, token=TOKEN,
            reads=("/state",),
            commands=("/apply", "/renew", "/clear", "/release"),
            largest=1 << 20,
        )  # fmt: skip  # one group a line

    def facts(self, seconds: float) -> Facts:
        """Return what an attacker learns of the group in so many seconds."""
        states = {name: self.group.state(name) for name in NAMES}
        listed = states[NAMES[0]]["view"]["members"]
        members = tuple(
            Address(int(one["identity"], 16), one["name"], one["where"]) for one in listed
        )
        monitors = [
            int(line.rpartition(" ")[2])
            for member in members
            for line in states[member.name]["bound"]
            if line.startswith("FD_SOCK2 listens on port")
        ]
        alone, group = routes(self.target.stack)
        cluster = hash64(str(self.group.session.plan.run).encode()) & 0xFFFFFFFF
        heard = self._listen(seconds)
        return Facts(
            cluster=cluster,
            members=members,
            view=int(states[NAMES[0]]["view"]["number"]),
            monitors=tuple(monitors),
            alone=alone,
            group=group,
            multicast=multicast_place(states[NAMES[0]]["bound"]),
            corpus=tuple(heard),
            hellos=self.hellos(),
            is_keyed=self.is_keyed,
        )

    def _listen(self, seconds: float) -> list[bytes]:
        order = {"by": "listen", "seconds": seconds, "most": 2000}
        with Attacker(self, order, BRIDGE) as listener:
            return [bytes.fromhex(frame) for frame in listener.answer()]


class Attacker:
    """The process of `attacker.py`, in a namespace of its own, or in that of the bridge."""

    def __init__(self, siege: Siege, order: Mapping[str, Any], where: str = ATTACKER) -> None:
        path = siege.folder / f"{order['by']}.json"
        path.write_text(json.dumps(order))
        network = siege._backend.opened.network
        words = (sys.executable, "-m", "tests.fuzz.attacker", str(path))
        self._log = (siege.folder / "attacker.log").open("ab")
        self._popen = subprocess.Popen(
            bound_to_me(network.inside(where, words)),
            env=environment({}, network.run),
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.kill()
        self._popen.wait()
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._log.close()

    def ask(self, first: int, count: int, rate: float) -> None:
        """Have it send chunks; `answer` says what became of that."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{json.dumps({'first': first, 'count': count, 'rate': rate})}\n")
        self._popen.stdin.flush()

    def has_answered(self) -> bool:
        """Whether an answer has come, or the end."""
        assert self._popen.stdout is not None
        return bool(select.select([self._popen.stdout], [], [], 0)[0])

    def answer(self) -> Any:
        """Return its answer; OSError if it has ended."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            tail = Path(self._log.name).read_text()[-2000:]
            raise OSError(f"the attacker ended\n{tail}")
        return json.loads(line)

    def tally(self) -> Tally:
        """Return its answer to `ask`."""
        return Tally.from_words(self.answer())


def routes(stack: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the protocols that take frames for one member, and for the group, in a stack."""
    me = Address(1, "x")
    tracer = Tracer(me.short, 0, hash64, lambda _block: None)
    made = Stack(me, "", load_settings(stack, "fast"), hash64, tracer, 0.0)
    receiver = made._receiver
    return tuple(sorted(receiver._routes)), tuple(sorted(receiver._group_routes))


def multicast_place(bound: Sequence[str]) -> tuple[str, int]:
    """Return where a member hears multicasts, by what it says that it has bound."""
    for line in bound:
        if line.startswith("multicast "):
            host, _bracket, rest = line.removeprefix("multicast ").partition("[")
            return host, int(rest.partition("]")[0])
    return "", 0


def descriptors(pid: int) -> int:
    """Return how many file descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
