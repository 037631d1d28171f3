"""Members as real processes in network namespaces: one bridge, one namespace per member.

Needs root, iproute2 and nftables. Nothing leaves the namespaces that a run makes: their bridge has
no way out, and no address, rule or setting outside of them is touched.

The verbs are plain calls, not coroutines: each is a few system calls, or waits for one process to
do as it was told, and there is nothing to do meanwhile. And a member dies with the *thread* that
started it (see `process`), so all of a run belongs to one thread.
"""

from stormcast.chaos.backends.netns.commands import MemberSpec, member_argv
from stormcast.chaos.backends.netns.leftovers import clean
from stormcast.chaos.backends.netns.network import Network, why_not
from stormcast.chaos.backends.netns.process import Process
from stormcast.chaos.backends.netns.running import CommandError, run_command, what_is_missing
from stormcast.chaos.backends.run_id import RunId

__all__ = [
    "CommandError",
    "MemberSpec",
    "Network",
    "Process",
    "RunId",
    "clean",
    "member_argv",
    "run_command",
    "what_is_missing",
    "why_not",
]
