"""The `stormcast` command: finds the function behind a sub-command and hands it the other words.

Functions are named as text and imported when called, so that `stormcast trace` works, and starts
fast, where the chaos rig is not installed.
"""

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import stormcast
from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.node.core.errors import did_you_mean
from stormcast.streams import OutputLost, drop_stdout, guard

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run a scenario file and judge it", "stormcast.run:run"),
    "replay": ("run a run directory again and compare every byte", "stormcast.replay:replay"),
    "shrink": (
        "make a failing run's scenario as small as it can be",
        "stormcast.chaos.commands.shrink:shrink",
    ),
    "plan": ("print the timed steps of a scenario and seed", "stormcast.chaos.commands.run:plan"),
    "chaos-test": (
        "run every scenario file and print the verdicts",
        "stormcast.suite:chaos_test",
    ),
    "scenarios": (
        "list the scenarios that ship, or print one",
        "stormcast.chaos.commands.scenarios:scenarios",
    ),
    "init": ("write a first scenario, with comments", "stormcast.chaos.commands.scenarios:init"),
    "museum": (
        "show each known flaw, and that its fix removes it",
        "stormcast.chaos.commands.museum:museum",
    ),
    "search": ("look for violations over many random seeds", "stormcast.search:search"),
    "soak": (
        "play a storm over one cluster, and judge it while it lasts",
        "stormcast.soak:soak",
    ),
    "attack": (
        "do something to containers, namespaces or processes of this machine, now",
        "stormcast.attack:attack",
    ),
    "compare": (
        "lay two soaks or runs side by side, or run one scenario on several protocols",
        "stormcast.compare:compare",
    ),
    "compare-with": (
        "play scenarios by members of a peer, such as JGroups, and judge both alike",
        "stormcast.chaos.commands.compare_with:compare_with",
    ),
    "doctor": (
        "say what this host can do, and how it could do more",
        "stormcast.chaos.commands.host:doctor",
    ),
    "clean": ("remove what killed runs left behind", "stormcast.chaos.commands.host:clean_up"),
    "node": ("run one member of a group", "stormcast.node.member.cli:node"),
    "key": (
        "make the key of a cluster, and change it while members run",
        "stormcast.node.keys.cli:key",
    ),
    "agent": (
        "apply faults to the networks of members, as HTTP requests say",
        "stormcast.chaos.agent.process:agent",
    ),
    "keep": (
        "start, stop and pause a container's member, as HTTP requests say",
        "stormcast.node.keeper.cli:keep",
    ),
    "serve": (
        "run the scenarios of a folder in turn; verdicts as metrics over HTTP",
        "stormcast.chaos.commands.serve:serve",
    ),
    "verify": ("judge the traces of runs, or of a soak, on Spark", "stormcast.verify:verify"),
    "executor": (
        "run tasks of Spark, in a pod that its driver starts",
        "stormcast.pipeline.executor:executor",
    ),
    "trace": ("read the traces that members write", "stormcast.node.trace.cli:trace"),
    "report": ("write the HTML reports of runs again", "stormcast.pipeline.report.cli:report"),
    "bench": ("measure members and their peers, the core, the simulator", "bench.cli:bench"),
}
"""Sub-command to its help and its `module:function`, called with the other words."""

_HELP: Final = """\
usage: stormcast SUB-COMMAND [...]
       stormcast SUB-COMMAND --help
       stormcast --version

sub-commands:
{commands}

exit codes:
  0  holds
  1  violated
  2  usage
  3  unknown or unsupported
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    guard()
    try:
        try:
            return _dispatch(words)
        finally:
            # Here, not at interpreter exit, a reader that went away can still be dealt with.
            sys.stdout.flush()
    except OutputLost as lost:
        drop_stdout()
        if lost.is_pipe:
            return Exit.PIPE_CLOSED
        # Whatever came of it: whoever asked has not been told.
        print(f"stormcast: stdout cannot be written to: {lost.why}", file=sys.stderr)
        return Exit.UNKNOWN
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  Python would exit with 1: a crash is no violation.
        if is_exhausted(error):
            print(f"stormcast: {in_words(error)}", file=sys.stderr)
        else:
            traceback.print_exc()
        return Exit.UNKNOWN


def _dispatch(words: list[str]) -> int:
    match words:
        case []:
            print(_help(), end="", file=sys.stderr)
            return Exit.USAGE
        case ["-h" | "--help", *_]:
            print(_help(), end="")
            return Exit.HOLDS
        case ["--version", *_]:
            print(f"stormcast {stormcast.__version__}")
            return Exit.HOLDS
        case [name, *rest] if name in COMMANDS:
            _, target = COMMANDS[name]
            return _load(target)(rest)
        case [name, *_]:
            print(_unknown(name), file=sys.stderr)
    return Exit.USAGE


def _load(target: str) -> Callable[[list[str]], int]:
    module, _, function = target.partition(":")
    if module.startswith("bench.") and not _is_checkout():
        return _needs_checkout
    command: Callable[[list[str]], int] = getattr(import_module(module), function)
    return command


def _is_checkout() -> bool:
    """Whether this is the repository: `bench` is not installed, and somebody else's package of that
    name is none of ours."""
    spec = find_spec("bench")
    beside = Path(stormcast.__file__).parents[1] / "bench" / "__init__.py"
    return spec is not None and spec.origin is not None and Path(spec.origin) == beside


def _needs_checkout(_words: list[str]) -> int:
    print("stormcast: bench is not installed: run it in the repository", file=sys.stderr)
    return Exit.UNKNOWN


def _help() -> str:
    rows = (f"  {name:<11} {about}" for name, (about, _) in COMMANDS.items())
    return _HELP.format(commands="\n".join(rows))


def _unknown(name: str) -> str:
    remedy = did_you_mean(name, COMMANDS) or "see stormcast --help"
    return f"stormcast: no sub-command {name!r}, {remedy}"
