"""`python -m tests.fuzz`: hostile frames against groups under load; `make fuzz-live`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns import why_not
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.exits import Exit
from stormcast.node.core.errors import NodeError
from tests.fuzz import report
from tests.fuzz.campaign import Campaign, Plan
from tests.fuzz.groups import TARGETS
from tests.fuzz.rounds import FORGED, KEYED, PLAIN

TELL_SECONDS = 5.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Send hostile frames to groups under load, in network namespaces (as root).",
        epilog="exit codes: 0 all holds; 1 there are findings; 2 usage; 3 not all was played or "
        "judged; 130 interrupted. What is done is kept in --out: the same command goes on.",
        allow_abbrev=False,
    )
    names = [target.name for target in TARGETS]
    parser.add_argument("--frames", type=int, default=10_000_000, help="in all (default 10⁷)")
    parser.add_argument(
        "--target", action="append", choices=names, help="one of several (default: all)"
    )
    parser.add_argument(
        "--part",
        choices=(PLAIN, FORGED),
        help="frames without power over a group without keys, or all (default: both)",
    )
    parser.add_argument("--seed", type=int, default=1, help="which frames (default 1)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first frame")
    parser.add_argument("--round", type=int, default=1_000_000, help="frames against one group")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz-live"), help="what is kept")
    parser.add_argument("--facts", type=Path, help="send what was recorded there once more")
    parser.add_argument(
        "--shrink-trials", type=int, default=8, help="groups spent on halving a finding's range"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PROTOCOL.key=value",
        help="a setting of all members",
    )
    parser.add_argument(
        "--keyed",
        action="store_true",
        help="members have a key, and the attacker has none: nothing is forgiven",
    )
    return parser


def _parts(words: argparse.Namespace) -> tuple[str, ...]:
    """Return the parts that are played: with keys no frame has power, so there is one."""
    if words.keyed:
        return (KEYED,)
    return (words.part,) if words.part else (PLAIN, FORGED)


class _Teller:
    """Says on stderr how far it is, every few seconds."""

    def __init__(self) -> None:
        self._said = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said >= TELL_SECONDS or not text.endswith("frames"):
            self._said = now
            print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Run a campaign, or go on with one; returns the exit code."""
    parser = _parser()
    words = parser.parse_args(argv)
    if words.keyed and words.part:
        parser.error("--part is of groups without keys; drop it, or --keyed")
    if why := why_not():
        print(f"fuzz-live: {why}", file=sys.stderr)
        return Exit.UNKNOWN
    plan = Plan(
        frames=words.frames,
        seed=words.seed,
        targets=tuple(words.target or (target.name for target in TARGETS)),
        parts=_parts(words),
        round_frames=words.round,
        first=words.first,
        settings=tuple(words.set),
    )
    try:
        campaign = Campaign(plan, words.out, _Teller())
    except NodeError as error:
        print(f"fuzz-live: {error}", file=sys.stderr)
        return Exit.USAGE
    code: Exit | None = None
    try:
        with sigterm_interrupts():
            campaign.run(words.facts, words.shrink_trials)
    except KeyboardInterrupt:
        print("interrupted: what was played is kept", file=sys.stderr)
        code = Exit.INTERRUPTED
    except (NodeError, OSError, pytest.skip.Exception) as error:
        print(f"fuzz-live: {error}", file=sys.stderr)
    results = campaign.results
    lines = [report.table(results), *report.reasons(results), *report.powers(results)]
    print("\n".join([*lines, *report.findings(results)]))
    return report.exit_of(results, len(campaign.left)) if code is None else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
