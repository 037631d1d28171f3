"""The features of a backend with pods: those that all its agents have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from stormcast.chaos.agent.client import AgentError
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED

BY_ITSELF: Final = frozenset(
    {"members", "pause", "group", "no-group", "commands", "rule-on-streams"}
)
"""Features that need keepers and members, but no agent."""
OF_PODS: Final = {
    "rule-over-members": "each pod has an agent of its own, which sees only the frames to its "
    "member; name one member in `to` of a rule that counts (occurrence, times), and `kind: DATA` "
    "where it selects by connection",
}
"""Features that members in pods never have, and why."""


def common_features(
    answers: Iterable[Mapping[str, str | None]],
    never: Mapping[str, str],
    by_itself: Set[str] = BY_ITSELF,
) -> Mapping[str, str | None]:
    """Return by feature None where all agents have it, else a reason why not. `never`: features
    that there are not, and why; `by_itself`: those that need no agent."""
    missing = "no driver of this version does it"
    found: dict[str, str | None] = {**dict.fromkeys(FEATURES), **never, **ONLY_SIMULATED}
    for answer in answers:
        for feature in set(FEATURES) - by_itself:
            found[feature] = found[feature] or answer.get(feature, answer.get("", missing))
    return found


def features_of_agent(pod: MemberPod) -> Mapping[str, str | None]:
    """Return the features of one agent; where there is none, the reason under the key "".
    BackendError if it does not answer: what it could do, nobody knows."""
    try:
        return pod.agent.features()
    except AgentError as error:
        if pod.pod.has_agent:
            raise BackendError(str(error)) from None
        return {"": str(error)}
