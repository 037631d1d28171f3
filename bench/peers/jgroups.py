"""JGroups: how a member of it is started, stock or tuned."""

from __future__ import annotations

from typing import Final

from bench.errors import BenchError
from bench.peers.jars import HERE, Artifact, class_path
from bench.work import Work

ARTIFACT: Final = Artifact("org.jgroups", "jgroups", "5.5.3.Final")
STOCK: Final = {"udp": "udp.xml", "tcp": "tcp.xml", "tcp-nio2": "tcp-nio.xml"}
"""Configurations that come with the jar."""
MCAST_PORTS: Final = {"jgroups": 45588, "jgroups-tuned": 45688}
"""Apart, so that two groups in one network do not hear each other."""
THREADS: Final = 4
"""Senders per member: what its own performance tests use."""
FIRST_PORT: Final = 7800


def config_of(name: str, transport: str) -> str:
    """Return the configuration that a peer uses over a transport."""
    if name == "jgroups":
        return STOCK[transport]
    if transport != "udp":
        raise BenchError(f"--peer {name} is for --transport udp; use --peer jgroups")
    return str(HERE / "tuned.xml")


def commands(name: str, work: Work) -> list[list[str]]:
    """Return one command per member, in the order in which they are to be started."""
    return member_commands(name, work, class_path(ARTIFACT, "JGroupsPeer.java"))


def member_commands(name: str, work: Work, classes: str) -> list[list[str]]:
    """Return the commands, given the class path."""
    return [
        [
            "java",
            "-Xmx1g",
            "-Djava.net.preferIPv4Stack=true",
            "-Djgroups.bind_addr=127.0.0.1",
            "-Djgroups.udp.ip_ttl=0",
            f"-Djgroups.udp.mcast_port={MCAST_PORTS[name]}",
            f"-Djgroups.tcpping.initial_hosts=127.0.0.1[{FIRST_PORT}]",
            "-cp",
            classes,
            "JGroupsPeer",
            config_of(name, work.transport),
            f"bench-{name}",
            member,
            str(work.members),
            str(THREADS),
        ]
        for member in work.names()
    ]
