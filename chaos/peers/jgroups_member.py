"""How a member of JGroups is started: its own stack, and the few settings changed in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.netns.commands import CONFIG, CONTROL, JOURNAL, MemberSpec
from stormcast.chaos.backends.netns.members import Argv
from stormcast.chaos.peers.jars import Artifact, class_path

JGROUPS: Final = Artifact("org.jgroups", "jgroups", "5.5.3.Final")
ARTIFACTS: Final = (
    JGROUPS,
    Artifact("com.dynatrace.hash4j", "hash4j", "0.20.0"),
    Artifact("com.google.code.gson", "gson", "2.11.0"),
)
"""The library under test, and what our member of it needs: XXH3 of the trace format, and JSON."""
SOURCES: Final = Path(__file__).parent / "jgroups"
STACKS: Final = {"udp": "udp.xml", "tcp": "tcp.xml"}
"""By the stack of a scenario: the configuration that comes with JGroups' jar."""
SETTINGS: Final[Mapping[str, str]] = {
    "FD_ALL3.timeout": "2000",
    "FD_ALL3.interval": "250",
    "VERIFY_SUSPECT2.timeout": "300",
    "MERGE3.min_interval": "200",
    "MERGE3.max_interval": "1000",
    "GMS.join_timeout": "500",
    "GMS.merge_timeout": "2000",
    "GMS.view_ack_collection_timeout": "1000",
    "STABLE.desired_avg_gossip": "2000",
}
"""What is changed in it: the values, in milliseconds, that Stormcast's timing `fast` has under the
same names. All else is as it ships."""
JVM: Final = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Several members share the cores of one machine: no collector, and no compiler, that takes a core
by itself."""


def classes() -> str:
    """Return the class path of the member; JarError where this machine cannot have it."""
    return class_path(ARTIFACTS, [SOURCES / "Member.java", *_others()])


def _others() -> list[Path]:
    return sorted(path for path in SOURCES.glob("*.java") if path.name != "Member.java")


def argv_on(stack: str, path: str, flaws: Mapping[str, str] | None = None) -> Argv:
    """Return what starts members on a stack, given the class path. `flaws`: by member, what its
    application does wrong on purpose, for tests of judges."""

    def argv(_python: str, spec: MemberSpec) -> Sequence[str]:
        properties = {
            "java.net.preferIPv4Stack": "true",
            "jgroups.bind_addr": spec.address,
        }
        if spec.initial_hosts:
            properties["jgroups.tcpping.initial_hosts"] = ",".join(spec.initial_hosts)
        words = {
            "--config": CONFIG,
            "--name": spec.name,
            "--stack": STACKS[stack],
            "--journal": str(spec.folder / JOURNAL),
            "--control": CONTROL,
            "--flaw": (flaws or {}).get(spec.name, "none"),
        }
        return (
            "java",
            *JVM,
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            path,
            "stormcast.Member",
            *(word for pair in words.items() for word in pair),
            *(word for pair in SETTINGS.items() for word in ("--set", "=".join(pair))),
        )

    return argv
