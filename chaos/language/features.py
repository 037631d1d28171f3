"""The features that a backend may have, and those that a scenario needs: the words of the
feature × backend matrix."""

from __future__ import annotations

from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.language.scenario import Scenario

FEATURES: Final[dict[str, str]] = {
    "members": "start, stop, kill and restart members",
    "pause": "stop a member and have it go on",
    "partition": "keep members from hearing others, one way or both",
    "loss": "lose a share of the frames, chosen by the seed",
    "loss-model": "lose frames in bursts, or each n-th",
    "delay": "have frames arrive later, with jitter",
    "netem": "have the kernel do those delays that have no jitter, with no program in the way",
    "duplicate": "have frames arrive twice",
    "reorder": "have frames overtake each other",
    "corrupt": "have frames arrive with a bit flipped",
    "bandwidth": "limit the bytes per second",
    "large-datagrams": "let datagrams of many packets pass a network that is always narrow",
    "packets": "drop packets by protocol, port, size and number, whatever is in them",
    "packet-contents": "choose packets by what scapy finds in them; delay, double or change them",
    "rule-drop": "drop frames that are known by themselves",
    "rule": "delay, hold, double or corrupt chosen frames, or drop the n-th of them",
    "rule-over-members": "count the frames to several members in one rule, and know the "
    "connections of control frames",
    "first-conn": "have members count their connections from another number than 1",
    "frames-of-streams": "do to frames of a connection, on their way, what rules do to datagrams",
    "rule-on-streams": "drop, delay or double chosen frames of a TCP connection, inside the member",
    "group": "members that find each other and form a group",
    "no-group": "members that are told of each other, without a group",
    "keys": "have members seal what they send",
    "change-keys": "change the members' keys while they run",
    "strangers": "have somebody without a key hear frames, repeat them and forge others",
    "commands": "have members forget or close connections, take views and settings, stall",
}
"""Each feature, and what it is."""
OTHER_WAYS: Final = frozenset({"netem", "frames-of-streams"})
"""Features that no scenario needs: without them the same is done in another way."""

ONLY_SIMULATED: Final = {
    "strangers": "nobody but the simulator has strangers on the way between members; use "
    "--backend sim",
    "large-datagrams": "a kernel cuts a datagram into packets, and drops it whole where the queue "
    "of the link has no room for all of them: nothing would ever arrive; use a stack with FRAG and "
    "a frag_size of some packets, a larger bandwidth, or --backend sim",
}
"""Features that only the simulator has, and why."""

_NO_PACKETS: Final = (
    "the simulator has frames, and no packets with ports; choose a rule, or use --backend netns"
)
ONLY_REAL: Final = {
    "packets": _NO_PACKETS,
    "packet-contents": _NO_PACKETS,
}
"""Features that the simulator alone lacks, and why."""

_BY_FAULT: Final[dict[type, str]] = {
    faults.Partition: "partition",
    faults.Cut: "partition",
    faults.Loss: "loss",
    faults.GilbertElliott: "loss-model",
    faults.NthLoss: "loss-model",
    faults.Delay: "delay",
    faults.Duplicate: "duplicate",
    faults.Reorder: "reorder",
    faults.Corrupt: "corrupt",
    faults.Bandwidth: "bandwidth",
    faults.AlterPackets: "packet-contents",
    faults.Pause: "pause",
    faults.Resume: "pause",
    faults.ChangeKeys: "change-keys",
    faults.Listen: "strangers",
    faults.Replay: "strangers",
    faults.Forge: "strangers",
}
_COMMANDS: Final = (
    faults.Forget,
    faults.Close,
    faults.InstallView,
    faults.SetAttribute,
    faults.Stall,
    faults.Consume,
)
_BY_LINK: Final = {
    "loss": "loss",
    "jitter": "delay",
    "duplicate": "duplicate",
    "reorder": "reorder",
    "corrupt": "corrupt",
    "bandwidth": "bandwidth",
}


def features_of(scenario: Scenario, *, in_members: bool, is_group: bool) -> frozenset[str]:
    """Return the features that a scenario needs; `in_members`: rules are done inside of members."""
    found = {"members", "group" if is_group else "no-group"}
    base, plain = scenario.network, faults.Link()
    found |= {what for key, what in _BY_LINK.items() if getattr(base, key) != getattr(plain, key)}
    if base.delay > plain.delay:
        found.add("delay")
    if scenario.cluster.sealed:
        found.add("keys")
    if scenario.cluster.unicast_first_conn:
        found.add("first-conn")
    for step in scenario.timeline:
        action = step.action
        if isinstance(action, faults.Rule):
            found |= _of_rule(action, in_members=in_members)
        elif isinstance(action, _COMMANDS):
            found.add("commands")
        elif isinstance(action, faults.DropPackets):
            found.add("packets" if action.match.is_told_by_headers else "packet-contents")
        elif (what := _BY_FAULT.get(type(action))) is not None:
            found.add(what)
    return frozenset(found)


def _of_rule(rule: faults.Rule, *, in_members: bool) -> set[str]:
    if in_members:
        return {"rule-on-streams"}
    found = {"rule-drop" if rule.is_told_by_the_preamble() else "rule"}
    if rule.counts_over_members or rule.needs_both_directions:
        found.add("rule-over-members")
    return found
