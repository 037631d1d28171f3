"""A backend with members in pods, wherever these are.

Each pod has a keeper, which starts, stops and pauses its member, and an agent, which acts on its
network; both undo by themselves what nobody renews.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final, Protocol

from stormcast.chaos.backends.base import (
    LEASE_SECONDS,
    BackendError,
    Bites,
    ClusterPlan,
    MemberError,
    Unsupported,
)
from stormcast.chaos.backends.pods.leases import MOST_AT_ONCE, Leases
from stormcast.chaos.backends.pods.member_config import member_config
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.backends.pods.naming import renamed
from stormcast.chaos.backends.pods.pod import Pod
from stormcast.chaos.backends.pods.run_pods import RunPods
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.records.exits import MemberExit
from stormcast.node.core.errors import NodeError

POLL_SECONDS: Final = 0.05
FREEZE_SECONDS: Final = 300.0
"""Seconds from each renewal for which members stay frozen: much longer than other pauses, as they
are not to go on where all the journals take long."""
FREEZE_SPREAD: Final = 1.0
"""The most seconds from the first to the last member that is frozen: less than the shortest time,
with `timing: fast`, after which a member suspects one that is silent."""


class Place(Protocol):
    """Where the pods of a run are, and what is done in another way from place to place."""

    def features(self, threads: ThreadPoolExecutor) -> Mapping[str, str | None]:
        """Return by feature None where all agents there have it, else a reason why not."""
        ...

    def take_pods(self, plan: ClusterPlan, threads: ThreadPoolExecutor) -> dict[str, MemberPod]:
        """Return a pod for each member of the plan; BackendError if one does not run."""
        ...

    def pods(self) -> Sequence[Pod]:
        """Return the pods as they are now: restarts of their containers are known from then on."""
        ...

    def own_settings(self) -> Mapping[str, Any]:
        """Return settings that all members have in this place."""
        ...

    def change_keys(self, step: str) -> None:
        """Do one of KEY_STEPS to the keys of all members."""
        ...

    def close(self) -> None:
        """Let the pods go, or remove them."""
        ...


class PodsBackend:
    """Members in pods."""

    is_virtual = False

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._place = place
        self._test_protocols: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        """By member, the test protocols with which it is started."""
        self._plan: ClusterPlan | None = None
        self._claim = ""
        """The name of this run for keepers; it ends at random, because two runs may have one
        scenario and seed."""
        self._threads = ThreadPoolExecutor(max_workers=MOST_AT_ONCE, thread_name_prefix="pods")
        self._pods = RunPods({}, self._threads)
        self._leases: Leases | None = None
        self._bites_before: Bites = {}
        self._bites: Bites = {}

    def features(self) -> Mapping[str, str | None]:
        """Return the features that all agents have there."""
        return self._place.features(self._threads)

    def open(self, plan: ClusterPlan) -> None:
        """Claim a pod for each member of this run, and end the members that run there."""
        if self._plan is not None:
            raise BackendError("this backend has a cluster; make another one for another run")
        for need in sorted(plan.needs):
            if why := self.features().get(need, "this version does not have it"):
                raise Unsupported(f"{self.name} has no {need}: {why}")
        made = self._place.take_pods(plan, self._threads)
        self._plan = plan
        self._pods = RunPods(made, self._threads)
        self._claim = f"{plan.run}-{token_hex(4)}"
        self._pods.each(lambda pod: pod.claim(self._claim))
        self._leases = Leases(self._claim, tuple(self._pods))
        self._leases.start()
        self._pods.each(MemberPod.kill)
        self._pods.each(lambda pod: pod.keeper.ask("DELETE", "/journals"))
        if self._pods.have_agents:
            self._pods.each(lambda pod: pod.agent.clear())
            self._bites_before = self._pods.bites()

    def close(self) -> None:
        """Give the pods back: undo all that this run did, and have their own members start."""
        if self._leases is not None:
            if not self._leases.is_frozen:
                # After a run that broke off, the members' logs may tell why.
                with suppress(NodeError, OSError):
                    self.collect()
            self._leases.stop()
            self._leases = None
        pods, self._pods = self._pods, RunPods({}, self._threads)
        if pods:
            pods.each(lambda pod: pod.give_back(self._claim))
            self._threads.shutdown()
        self._place.close()

    # -- Time ----------------------------------------------------------------------------------

    def now(self) -> float:
        """Return this machine's clock; clocks of other machines are aligned by the time of day."""
        return time.monotonic()

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        """Wait for `seconds`, or until `is_done`; the thread of `Leases` renews meanwhile."""
        until = time.monotonic() + seconds
        while True:
            self._check()
            self._pods.look()
            if is_done is not None and is_done():
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))

    def _check(self) -> None:
        """Raise BackendError if this run has lost a pod or a lease."""
        if self._leases is not None:
            self._leases.check()

    # -- Members -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member in its pod."""
        pod = self._pod(name)
        if self.is_alive(name):
            raise BackendError(f"{name} runs already; restart it, or stop it before")
        assert self._plan is not None
        self.exits()
        plan = next(one for one in self._plan.members if one.name == name)
        hosts = [one.pod.addresses[0] for one in self._pods]
        config = member_config(plan, pod.pod.addresses[0], hosts)
        config |= dict(self._place.own_settings())
        if name in self._test_protocols:
            config["test_protocols"] = self._test_protocols[name]
        pod.start(config)

    def set_test_protocols(
        self, name: str, test_protocols: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Have a member begin with these test protocols when it is started next."""
        self._pod(name)
        self._test_protocols[name] = test_protocols

    def stop(self, name: str) -> None:
        """Have a member leave; a paused one does so when it goes on."""
        self._check()
        self._pods.living(name).stop()

    def kill(self, name: str) -> None:
        """End a member at once."""
        self._pod(name).kill()

    def restart(self, name: str) -> None:
        """Kill a member, if it runs, and start it anew."""
        self.kill(name)
        self.start(name)

    def change_keys(self, step: str) -> None:
        """Do one of KEY_STEPS to the keys of all members, which follow within a second."""
        self._check()
        self._place.change_keys(step)

    def pause(self, name: str) -> None:
        """Have a member's keeper stop it, for as long as the pause is renewed."""
        self._check()
        self._pods.living(name).pause(LEASE_SECONDS)

    def resume(self, name: str) -> None:
        """Resume a paused member."""
        self._check()
        self._pods.living(name).resume()

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        return self._pods.is_alive(name)

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """Send one request to a member, through its keeper."""
        self._check()
        try:
            return self._pods.known(name).ask(method, target, body)
        except MemberError:
            # It may have ended just now: whoever asks next whether it lives is told anew.
            self._pods.forget(name)
            raise

    def exits(self) -> list[MemberExit]:
        """Return the ends of all incarnations so far."""
        return self._pods.exits(self._place.pods)

    def _pod(self, name: str) -> MemberPod:
        """Return a member's pod for a verb that changes it: whether it lives is then asked anew."""
        self._check()
        self._pods.forget(name)
        return self._pods.known(name)

    # -- The network ---------------------------------------------------------------------------

    def apply(self, state: NetworkState) -> None:
        """Bring the network into `state`, in all pods at once."""
        assert self._leases is not None
        self._check()
        places = self._pods.places()
        whole = renamed(replace(state, places=places), self._pods.sites())
        # `applying` first: no renewal may meet agents of which only some have applied the state.
        with self._leases.applying():
            self._pods.each(lambda pod: pod.agent.apply(whole, LEASE_SECONDS))

    def renew(self) -> None:
        """Renew all leases now; a thread does so regularly in any case."""
        assert self._leases is not None
        self._leases.renew()
        self._check()

    def clear(self) -> None:
        """End all faults of the network."""
        if self._leases is None or not self._pods.have_agents:
            return
        self._leases.cleared()
        self._pods.each(lambda pod: pod.agent.clear())

    def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep."""
        self._pods.each(lambda pod: pod.agent.release(fault))

    def bites(self) -> Bites:
        """Return the bites of every fault since this run began, of all pods together."""
        if self._pods and self._pods.have_agents:
            self._bites = _less(self._pods.bites(), self._bites_before)
        return self._bites

    # -- The end -------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop all members that run, for long enough to collect their journals and logs."""
        assert self._leases is not None
        self._leases.frozen(FREEZE_SECONDS)
        # In each pod by itself: one that does not answer keeps no other from it.
        self._pods.each(lambda pod: pod.freeze(FREEZE_SECONDS))
        _check_one_moment([pod.stopped for pod in self._pods if pod.stopped is not None])

    def collect(self) -> Mapping[str, bytes]:
        """Fetch the journals and logs of all incarnations; returns the traces, by label."""
        assert self._plan is not None
        folder = self._plan.folder
        assert self._leases is not None
        with self._leases.collecting():
            found = self._pods.each(lambda pod: pod.collect(folder))
        return {label: blocks for traces in found for label, blocks in traces.items()}

    def forget(self, gone: Collection[str]) -> None:
        """Have keepers delete the journals of incarnations that are gone, by their labels, and
        agents the bites of faults that have ended."""
        self._check()
        self._pods.each(lambda pod: pod.forget(gone))
        if self._pods.have_agents:
            self._pods.each(lambda pod: pod.agent.forget_bites())
            there = self._pods.bites()
            # What is forgotten counts from nothing when a fault of the same id comes again.
            kept = {fault: counts for fault, counts in self._bites_before.items() if fault in there}
            self._bites_before = kept

    def weights(self) -> Mapping[str, Mapping[str, float]]:
        """Return what each living member, and each agent, takes of its machine, by its name and
        incarnation."""
        self._check()
        found = dict(filter(None, self._pods.each(MemberPod.weight)))
        if self._pods.have_agents:
            found |= dict(self._pods.each(lambda pod: pod.agent.weight()))
        return found


def _check_one_moment(stopped: Sequence[tuple[float, float]]) -> None:
    """Raise BackendError if members may have gone on for long while others were frozen: they would
    expel these, and the run would be blamed."""
    if not stopped:
        return
    spread = max(after for _, after in stopped) - min(before for before, _ in stopped)
    if spread > FREEZE_SPREAD:
        raise BackendError(
            f"it took {spread:.1f} s until all members were frozen, where {FREEZE_SPREAD:g} s are "
            "the most: the way to the pods is slow, or a machine"
        )


def _less(now: Bites, before: Bites) -> Bites:
    """Return the bites since an earlier moment: agents count over several runs, and two runs may
    use the same fault ids."""
    return {
        fault: {
            pair: number - before.get(fault, {}).get(pair, 0)
            for pair, number in pairs.items()
            if number > before.get(fault, {}).get(pair, 0)
        }
        for fault, pairs in now.items()
    }
