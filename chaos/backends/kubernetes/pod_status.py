"""Reads from the API server's description of a pod why it, or a container of it, does not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stormcast.node.core.names import one_line

_LONGEST: Final = 300


def trouble_of(meta: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return why not all containers of a pod run; empty if they do."""
    if meta.get("deletionTimestamp"):
        return "it is being deleted; wait for the one that replaces it"
    containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for one in containers:
        if "running" in one.get("state", {}):
            continue
        why = why_not_running(one)
        if why:
            return f"container {one['name']}: {why}"
    if status.get("phase") == "Running":
        return ""
    for condition in status.get("conditions", ()):
        if condition.get("status") == "False" and condition.get("message"):
            return _line(f"{condition.get('reason', '')}: {condition['message']}")
    return f"it is {status.get('phase', 'unknown').lower()}"


def why_not_running(container: Mapping[str, Any]) -> str:
    """Return why a container does not run, and how it ended before; empty if it completed."""
    state = container.get("state", {})
    waiting, ended = state.get("waiting", {}), state.get("terminated", {})
    before = container.get("lastState", {}).get("terminated", {})
    image = container.get("image", "")
    parts: list[str] = []
    reason = str(waiting.get("reason") or ended.get("reason") or "it has not started")
    if reason == "Completed":
        return ""
    parts.append(reason)
    if "Image" in reason:
        parts.append(f"image {image}")
    message = waiting.get("message") or ended.get("message")
    if message:
        parts.append(str(message))
    last = ended or before
    if last.get("exitCode") is not None:
        parts.append(f"it ended with {last['exitCode']} ({last.get('reason', '')})")
        if last.get("message"):
            parts.append(str(last["message"]))
    return _line(", ".join(parts))


def _line(text: str) -> str:
    return one_line(text, _LONGEST)
