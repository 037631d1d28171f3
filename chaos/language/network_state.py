"""The state that the network between members shall have, as one value: a backend is handed it, and
an agent carries it out.

It is complete each time, never a change to the state before: a backend or an agent makes the
network so, whatever it was. As text it is YAML in the words of a scenario.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import permutations
from typing import Final

from stormcast.chaos.faults import BASE, Link, Names, NetworkFault
from stormcast.chaos.language.scenario import NETWORK
from stormcast.chaos.language.timeline import NETWORK_FAULTS, WORDS, actions
from stormcast.node.core.names import MAX_NAME, NAME
from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import Plain
from stormcast.node.reading.writing import flow
from stormcast.node.reading.yaml_nodes import compose

FAULT_ID: Final = re.compile(rf"(?!{BASE}$)[a-z][a-z0-9-]{{0,{MAX_NAME - 1}}}")
"""A fault's id: what a scenario names, or `f1`, `f2` … by which the schedule numbers faults."""
FRAMES: Final = "frames"
PACKETS: Final = "packets"
DICE: Final = (FRAMES, PACKETS)
_MEMBER_REMEDY: Final = f"write letters, digits, dots and dashes, {MAX_NAME} at most"
_ID_REMEDY: Final = (
    f"a fault's id has small letters, digits and dashes, {MAX_NAME} at most, and is not {BASE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """Every member, the network as it is by itself, and the faults that act on it, by id."""

    members: Names
    places: Mapping[str, Names] = field(default_factory=dict)
    """The IP addresses of each member, IPv4 or IPv6; empty where a backend has none."""
    base: Link = field(default_factory=Link)
    """The network without faults. The default means: as the backend's network is by itself."""
    faults: Mapping[str, NetworkFault] = field(default_factory=dict)
    """By id, in the order in which they began."""
    seed: int = 1
    """The seed of the dice (`fate_key` in chaos/faults/fate.py)."""
    netem: bool = False
    """Whether the kernel of every member can delay packets, and shall do so."""
    dice: str = FRAMES
    """For what a die is thrown: for `frames`, whose bytes say which they are, so that equal ones
    meet equal fates; or for `packets`, each anew, where members are not of Stormcast."""

    def struck(self, dest: str) -> Iterator[tuple[str, str, NetworkFault]]:
        """Yield each fault that acts on frames to one member: its id, the sender, the fault."""
        for fault_id, fault in self.faults.items():
            for source in self.members:
                if source != dest and fault.strikes(source, dest):
                    yield fault_id, source, fault

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every pair of a sender and a receiver."""
        yield from permutations(self.members, 2)

    def to_text(self) -> str:
        """Return the state as YAML; `parse_state` makes an equal one of it."""
        shapes = actions(self.members)
        listed: list[Plain] = [
            {"id": fault_id, "do": WORDS[type(fault)], **shapes[WORDS[type(fault)]].write(fault)}
            for fault_id, fault in self.faults.items()
        ]
        whole: dict[str, Plain] = {
            "members": list(self.members),
            "places": {name: list(addresses) for name, addresses in self.places.items()},
            "network": NETWORK.write(self.base),
            "faults": listed,
            "seed": self.seed,
            "netem": self.netem,
        }
        if self.dice != FRAMES:
            whole["dice"] = self.dice
        return "".join(f"{key}: {flow(value)}\n" for key, value in whole.items())


def parse_state(text: str) -> NetworkState:
    """Read a state from its text; raises nothing but ConfigError."""
    root = compose(text, "state", "scenario")
    found = root.entries(("members", "places", "network", "faults", "seed", "netem"), ("dice",))
    # Names and ids become words of the kernel's rules: whatever is no word is refused here.
    members = tuple(item.word(NAME, _MEMBER_REMEDY) for item in found["members"].items())
    shapes = actions(members)
    faults: dict[str, NetworkFault] = {}
    for item in found["faults"].items():
        do = item.peek("do").one_of(NETWORK_FAULTS, "network fault")
        fault_id = item.peek("id").word(FAULT_ID, _ID_REMEDY)
        faults[fault_id] = shapes[do].read(item, besides=["id", "do"])
    return NetworkState(
        members=members,
        places={
            key.word(NAME, _MEMBER_REMEDY): _addresses(value)
            for key, value in found["places"].pairs()
        },
        base=NETWORK.read(found["network"]),
        faults=faults,
        seed=found["seed"].whole(0, (1 << 63) - 1),
        netem=found["netem"].flag(),
        dice=found["dice"].one_of(DICE, "dice") if "dice" in found else FRAMES,
    )


def _addresses(item: Item) -> Names:
    return tuple(_address(each) for each in item.items())


def _address(item: Item) -> str:
    text = item.text()
    try:
        ip_address(text)
    except ValueError:
        raise item.refuse("write an IP address such as 198.18.0.2") from None
    return text
