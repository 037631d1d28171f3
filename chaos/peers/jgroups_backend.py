"""Members of JGroups in namespaces: the same verbs, faults and traces as Stormcast's own.

Faults act on packets by address, so they need not know whose these are. What knows frames of
Stormcast, or commands of its members, is not there, and a scenario that needs it is `unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stormcast.chaos.backends.base import BackendError, ClusterPlan, Unsupported
from stormcast.chaos.language.network_state import PACKETS, NetworkState
from stormcast.chaos.peers.jars import JarError
from stormcast.chaos.peers.jgroups_member import STACKS, argv_on, classes
from stormcast.chaos.peers.traffic import CountedBackend

_FRAMES: Final = "a rule knows frames of Stormcast, and JGroups has others"
_COMMANDS: Final = "a member of JGroups has no such command"
LACKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rule-drop", "rule", "rule-over-members", "rule-on-streams"), _FRAMES),
    "commands": _COMMANDS,
    "no-group": "JGroups always forms a group",
    **dict.fromkeys(("keys", "change-keys"), "JGroups does not know Stormcast's keys"),
}
"""The features that no machine has for members of JGroups, and why."""


def with_jgroups(features: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the features of netns, as far as members of JGroups have them."""
    return {**features, **LACKS}


class JGroupsBackend(CountedBackend):
    """Members of JGroups on one stack."""

    def __init__(
        self,
        stack: str,
        features: Mapping[str, str | None] | None = None,
        flaws: Mapping[str, str] | None = None,
    ) -> None:
        if stack not in STACKS:
            raise Unsupported(f"JGroups has no stack {stack} here; use {' or '.join(STACKS)}")
        try:
            super().__init__(features, argv_on(stack, classes(), flaws))
        except JarError as error:
            raise BackendError(str(error)) from None

    def features(self) -> Mapping[str, str | None]:
        """Return the features of this machine that members of JGroups have."""
        return with_jgroups(super().features())

    def open(self, plan: ClusterPlan) -> None:
        """Make the namespaces and the folders of members; no member runs yet."""
        if plan.rules_in_members and plan.needs & {"rule-on-streams"}:
            raise Unsupported(f"netns has no rule-on-streams for JGroups: {_FRAMES}")
        super().open(plan)

    def apply(self, state: NetworkState) -> None:
        """Bring the network into `state`; the dice are thrown for packets, not for frames."""
        super().apply(replace(state, dice=PACKETS))
