"""One member's pod: its keeper, its agent, and the journals and logs of the run."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.agent.client import AgentClient, AgentError, LeaseLapsedError, read_answer
from stormcast.chaos.backends.base import BackendError, MemberError
from stormcast.chaos.backends.pods.http_pool import UnreachableError
from stormcast.chaos.backends.pods.journals import JOURNALS_BYTES, Journals
from stormcast.chaos.backends.pods.keeper_client import (
    KeeperClient,
    SilentError,
    patiently,
    words_of,
)
from stormcast.chaos.backends.pods.pod import AGENT, Pod, Way, request_of
from stormcast.chaos.records.exits import KILLED, TOLD_TO_LEAVE, MemberExit
from stormcast.node.control.client import Reply
from stormcast.node.core.errors import NodeError

CLAIM_SECONDS: Final = 30.0
"""Seconds that a keeper waits for a run's next claim before it ends the run's member."""
_BUSY: Final = 409
_BY_SIGNAL: Final = 128
"""A container that ended by a signal has this exit code and the signal's number on top."""


class LostError(BackendError):
    """A pod, its keeper or its agent was started anew during a run, or its lease has lapsed."""


class MemberPod:
    """The pod in which one member of a run lives."""

    def __init__(
        self, way: Way, pod: Pod, name: str, token: str, journals: int = JOURNALS_BYTES
    ) -> None:
        self.pod = pod
        self.name = name
        self.incarnations: list[int] = []
        """The keeper's numbers of the incarnations that this run started."""
        self._forgotten: set[int] = set()
        """Those of them whose journals the keeper was told to delete."""
        self.is_paused = False
        self.is_lost = False
        """Whether the keeper does not answer, or knows nothing of the last incarnation."""
        self.seen_alive = time.monotonic()
        """The time of the last look that found the last incarnation running."""
        self.end: MemberExit | None = None
        """The exit of the last incarnation; None: it has not ended, as far as is known."""
        self.stopped: tuple[float, float] | None = None
        """The time before and the time after the moment at which the last incarnation was frozen;
        None: it was not, or was paused before."""
        self._lapses: int | None = None
        """The number of pauses that had lapsed in its keeper when this run first paused the
        member."""
        self._told: tuple[int, ...] = ()
        """The codes with which the last incarnation ends if it does what it was told."""
        self.agent = AgentClient(self._ask_agent)
        self.keeper = KeeperClient(way, pod, name, token)
        self._journals = Journals(self.keeper, name, journals)
        self._way = way
        self._token = token

    def claim(self, run: str) -> bool:
        """Claim the pod for a run, or renew the claim; returns whether the claim is new."""
        asked = {"run": run, "lease": CLAIM_SECONDS}
        is_fresh: bool = self.keeper.ask("POST", "/claim", asked)["fresh"]
        return is_fresh

    def start(self, config: dict[str, Any]) -> None:
        """Start a new incarnation of the member."""
        started = self.keeper.ask("POST", "/start", {"config": config})
        self.incarnations.append(started["incarnation"])
        self.is_paused, self.stopped = False, None
        self.seen_alive, self.end, self._told = time.monotonic(), None, ()

    def kill(self) -> None:
        """End the member at once, if it runs."""
        reply = self.keeper.reply("POST", "/kill", {})
        if not reply.is_ok and reply.status != _BUSY:
            raise BackendError(f"{self.pod.name}: POST /kill: {words_of(reply)}")
        self.is_paused = False
        if reply.is_ok:
            # The keeper refuses where no member runs, and else answers when it has ended.
            self._told = KILLED
            self._note(reply.value())
            self._check_pause(reply.value())

    def stop(self) -> None:
        """Have the member leave."""
        self.keeper.ask("POST", "/stop", {})
        self._told = TOLD_TO_LEAVE

    def pause(self, lease: float) -> None:
        """Pause the member for `lease` seconds."""
        self._check_pause(self.keeper.ask("POST", "/pause", {"lease": lease}))
        self.is_paused = True

    def resume(self) -> None:
        """Resume the member."""
        self._check_pause(self.keeper.ask("POST", "/resume", {}))
        self.is_paused = False

    def freeze(self, lease: float) -> None:
        """Pause the last incarnation for good, if it runs. Ask again for `BACK_SECONDS` where no
        keeper answers."""
        if not self.incarnations or self.end is not None:
            return
        first = time.monotonic()
        try:
            last, reply = patiently(lambda: (time.monotonic(), self._pause_last(lease)))
        except SilentError:
            self.is_lost = True
            raise
        if reply.status == _BUSY:
            # It has ended, and its keeper tells how.
            self.is_alive()
            return
        answer = self.keeper.value(reply, "POST /pause")
        self._check_pause(answer)
        if not self.is_paused:
            # A request before may have paused it, though no answer came.
            self.stopped = last if answer["fresh"] else first, time.monotonic()
        self.is_paused = True

    def _pause_last(self, lease: float) -> Reply:
        # Not a later one, which a keeper has that was started anew.
        asked = {"lease": lease, "incarnation": self.incarnations[-1]}
        return self.keeper.reply("POST", "/pause", asked)

    def _check_pause(self, answer: Mapping[str, Any]) -> None:
        """Raise LostError if a pause of this run has ended by itself: the judge would believe that
        the member was paused."""
        if self._lapses is None:
            self._lapses = answer["lapses"]
        elif answer["lapses"] != self._lapses:
            raise LostError(f"{self.name} was paused, and went on: nobody renewed that in time")

    def is_alive(self) -> bool:
        """Whether the incarnation that this run started last still runs."""
        now = time.monotonic()
        try:
            state = self.keeper.ask("GET", "/state")
        except BackendError:
            self.is_lost = True
            raise
        is_last = bool(self.incarnations) and state["incarnation"] == self.incarnations[-1]
        self.is_lost = bool(self.incarnations) and not is_last
        if is_last and state["alive"]:
            self.seen_alive = now
        elif is_last:
            self._note(state)
        return is_last and bool(state["alive"])

    def _note(self, state: Mapping[str, Any]) -> None:
        """Note the end of the last incarnation, as its keeper tells it."""
        is_last = bool(self.incarnations) and state["incarnation"] == self.incarnations[-1]
        if is_last and state["code"] is not None and self.end is None:
            self.end = self._ended(int(state["code"]), is_ordered=state["code"] in self._told)

    def note_restart(self, now: Pod) -> None:
        """Note that the pod's container was started again, and the last incarnation ended with
        it, by the API server's description of the pod now."""
        if now.restarts > self.pod.restarts and self.incarnations and self.end is None:
            code = now.last_code
            why = now.last_reason if now.last_reason not in ("Error", "Completed") else ""
            by_signal = code > _BY_SIGNAL
            self.end = self._ended(_BY_SIGNAL - code if by_signal else code, why=why)

    def _ended(self, code: int, *, is_ordered: bool = False, why: str = "") -> MemberExit:
        return MemberExit(
            name=self.name,
            incarnation=len(self.incarnations),
            at=self.seen_alive,
            code=code,
            is_ordered=is_ordered,
            why=why,
        )

    def ask(self, method: str, target: str, body: object) -> Any:  # noqa: ANN401 whatever the member says
        """Send one request to the member; MemberError if it does not answer or refuses."""
        try:
            reply = self.keeper.reply(method, f"/member{target}", body)
        except BackendError as error:
            raise MemberError(str(error)) from None
        if not reply.is_ok:
            raise MemberError(f"{self.name}: {method} {target}: {reply.status} {words_of(reply)}")
        return reply.value()

    def collect(self, folder: Path) -> dict[str, bytes]:
        """Fetch the member's journals and logs into the folder of the run; returns the traces."""
        kept = {
            number: life
            for life, number in enumerate(self.incarnations, 1)
            if number not in self._forgotten
        }
        return self._journals.fetch(folder, kept)

    def forget(self, labels: Collection[str]) -> None:
        """Have the keeper delete the journals of incarnations that have ended, by the labels of
        their traces."""
        known = self._journals.numbers
        numbers = [known.pop(label) for label in labels if label in known]
        if numbers:
            self.keeper.ask("POST", "/journals/forget", {"incarnations": numbers})
            self._forgotten.update(numbers)

    def weight(self) -> tuple[str, dict[str, float]] | None:
        """Return the name of the incarnation that runs, and what it takes of its machine; None if
        none does."""
        reply = self.keeper.reply("GET", "/weight", None)
        if reply.status == _BUSY:
            return None
        found = self.keeper.value(reply, "GET /weight")
        return f"{self.name}:{found.pop('incarnation')}", found

    # -- Its agent -------------------------------------------------------------------------------

    def _ask_agent(self, method: str, target: str, body: object) -> Any:  # noqa: ANN401 as answered
        what = f"the agent of {self.name}: {method} {target}"
        if not self.pod.has_agent:
            raise AgentError(f"{what}: the pod has none: install with agent.enabled=true")
        port = self.pod.port(AGENT)
        try:
            reply = self._way.send(port, request_of(method, target, body, self._token))
        except (UnreachableError, BackendError) as error:
            raise AgentError(f"{what}: {error}") from None
        return read_answer(what, reply.status, reply.text)

    def give_back(self, run: str) -> None:
        """Undo what a run did here, and have the pod's own member start. Where an agent or a keeper
        cannot be reached, its lease lapses by itself."""
        with suppress(NodeError):
            if self.keeper.ask("GET", "/state")["run"] != run:
                # The claim was refused, or has lapsed: what acts here may be another run's.
                return
            if self.pod.has_agent:
                self.agent.clear()
        with suppress(NodeError):
            self.keeper.ask("POST", "/give-back", {"run": run})

    # -- Leases ----------------------------------------------------------------------------------

    def renew(self, run: str, lease: float, *, pause: float | None, is_applied: bool) -> None:
        """Renew the claim, the network state, and a pause for `pause` seconds; LostError if one of
        them is lost."""
        if self.claim(run):
            raise LostError(f"the keeper of {self.name} was started anew in the middle of the run")
        if pause is not None:
            self._check_pause(self.keeper.ask("POST", "/renew", {"lease": pause}))
        if is_applied:
            try:
                self.agent.renew(lease)
            except LeaseLapsedError as error:
                raise LostError(f"the network of {self.name} has healed: {error}") from None
