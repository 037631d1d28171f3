"""What the network between members is to be like, as one value: what a backend is handed, and what
an agent carries out.

It is the whole truth each time, never a change to what was before: whoever gets it makes the
network so, whatever it was. As text it is YAML in the words of a scenario.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import permutations

from stormcast.chaos.faults import Link, Names, NetworkFault
from stormcast.chaos.language.scenario import NETWORK
from stormcast.chaos.language.shapes import Plain, flow
from stormcast.chaos.language.timeline import NETWORK_FAULTS, WORDS, actions
from stormcast.node.reading.yaml_nodes import Item, compose


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """Every member, the network as it is by itself, and the faults that act on it, by id."""

    members: Names
    places: Mapping[str, Names] = field(default_factory=dict)
    """The IP addresses of each member, IPv4 or IPv6; empty where a backend has none."""
    base: Link = field(default_factory=Link)
    """The default one means: as the backend's network is by itself."""
    faults: Mapping[str, NetworkFault] = field(default_factory=dict)
    """By id, in the order in which they began."""
    seed: int = 1
    """Of the dice (chaos/faults/fate.py: the key of a fault's dice at a receiver)."""
    netem: bool = False
    """Whether every member's kernel can delay packets by itself, and is to."""

    def struck(self, dest: str) -> Iterator[tuple[str, str, NetworkFault]]:
        """What acts on frames to one member: id, who sends, the fault."""
        for fault_id, fault in self.faults.items():
            for source in self.members:
                if source != dest and fault.strikes(source, dest):
                    yield fault_id, source, fault

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every sender and receiver."""
        yield from permutations(self.members, 2)

    def to_text(self) -> str:
        """As YAML; `from_text` makes an equal one of it."""
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
        return "".join(f"{key}: {flow(value)}\n" for key, value in whole.items())


def parse_state(text: str) -> NetworkState:
    """A state from its text; raises nothing but ConfigError."""
    root = compose(text, "state", "scenario")
    found = root.entries(("members", "places", "network", "faults", "seed", "netem"), ())
    members = tuple(item.text() for item in found["members"].items())
    shapes = actions(members)
    faults: dict[str, NetworkFault] = {}
    for item in found["faults"].items():
        do = item.peek("do").one_of(NETWORK_FAULTS, "network fault")
        faults[item.peek("id").text()] = shapes[do].read(item, besides=["id", "do"])
    return NetworkState(
        members=members,
        places={key.node.value: _addresses(value) for key, value in found["places"].pairs()},
        base=NETWORK.read(found["network"]),
        faults=faults,
        seed=found["seed"].whole(0, (1 << 63) - 1),
        netem=found["netem"].flag(),
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
