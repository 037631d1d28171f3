"""`stormcast bench core|sim`: full stacks without a network."""

from __future__ import annotations

import argparse
import json
import platform

from bench import core, group, group_sim, sim

TIMINGS = ("fast", "compatible")
GROUP_STACKS = ("udp", "mcast")
GENERATIONS = ("UNICAST", "UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")


def bench(what: str, argv: list[str]) -> int:
    """Measure, and print medians with their spread."""
    parser = argparse.ArgumentParser(
        prog=f"stormcast bench {what}", description="Measure this machine.", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--unicast", choices=GENERATIONS)
    parser.add_argument("--timing", choices=TIMINGS)
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds: write a whole number from 1")
    return _core(args) if what == "core" else _sim(args)


def _core(args: argparse.Namespace) -> int:
    unicast, timing = args.unicast or "UNICAST3-SYNC", args.timing or "fast"
    figures = [
        core.measure(size, messages, args.rounds, unicast, timing)
        for size, messages in ((100, 400_000), (1000, 120_000), (10_000, 20_000))
    ]
    bare = {figure.size: figure.median for figure in figures}
    groups = [
        group.measure(members, size, messages, args.rounds, stack, timing)
        for stack in GROUP_STACKS
        for members in (3, 10)
        for size, messages in ((100, 120_000), (1000, 30_000))
    ]
    if args.json:
        print(
            json.dumps(
                {
                    "messages_per_second": {
                        str(figure.size): round(figure.median) for figure in figures
                    },
                    "spread": {str(figure.size): round(figure.spread, 4) for figure in figures},
                    "rounds": {
                        str(figure.size): [round(rate) for rate in figure.rounds]
                        for figure in figures
                    },
                    "unicast": unicast,
                    "timing": timing,
                    "groups": [
                        {
                            "stack": figure.stack,
                            "members": figure.members,
                            "size": figure.size,
                            "deliveries_per_second": round(figure.median),
                            "ratio": round(figure.median / bare[figure.size], 3),
                            "spread": round(figure.spread, 4),
                            "rounds": [round(rate) for rate in figure.rounds],
                        }
                        for figure in groups
                    ],
                    "python": platform.python_version(),
                }
            )
        )
        return 0
    print(f"two full stacks in memory, {unicast}, {timing}; messages per second on one core")
    for figure in figures:
        print(
            f"  {figure.size:6} B  {figure.median:12,.0f}  "
            f"spread {figure.spread:.1%} over {len(figure.rounds)} rounds"
        )
    print("complete group stacks in memory, all multicast; deliveries per second on one core,")
    print("those to the sender itself apart, and their ratio to the unicast figure of that size")
    for one in groups:
        print(
            f"  {one.stack:5}  {one.members:2} members  {one.size:6} B  "
            f"{one.median:12,.0f}  x {one.median / bare[one.size]:.2f}  "
            f"spread {one.spread:.1%}"
        )
    return 0


def _sim(args: argparse.Namespace) -> int:
    unicast = args.unicast or "UNICAST3"
    timings = (args.timing,) if args.timing else TIMINGS
    figures = [sim.measure(unicast, timing, rounds=args.rounds) for timing in timings]
    groups = [group_sim.measure(load, rounds=args.rounds) for load in group_sim.LOADS]
    if args.json:
        first = figures[0]
        print(
            json.dumps(
                {
                    # Of the first timing: fast, unless another one was asked for.
                    "events_per_second": round(first.median),
                    "timing": first.timing,
                    "by_timing": {figure.timing: _sim_figure(figure) for figure in figures},
                    "groups": {figure.name: _group_figure(figure) for figure in groups},
                    "unicast": unicast,
                    "loss": first.loss,
                    "pairs": first.pairs,
                    "python": platform.python_version(),
                }
            )
        )
        return 0
    print(f"{sim.PAIRS} pairs, {unicast}, {sim.LOSS:.0%} loss, trace on; events/s on one core")
    for figure in figures:
        print(
            f"  {figure.timing:10}  {figure.median:10,.0f}  "
            f"spread {figure.spread:.1%} over {len(figure.rounds)} rounds"
        )
    print("5 members of a complete group stack (udp, fast), 1 % loss, trace on, payloads checked")
    for whole in groups:
        print(
            f"  {whole.name:24}  {whole.median:10,.0f} events/s  "
            f"{whole.virtual:.0f} virtual seconds in {whole.seconds:.1f} s  "
            f"spread {whole.spread:.1%}"
        )
    return 0


def _group_figure(figure: group_sim.GroupSimFigure) -> dict[str, object]:
    return {
        "events_per_second": round(figure.median),
        "spread": round(figure.spread, 4),
        "rounds": [round(rate) for rate in figure.rounds],
        "events": figure.events,
        "virtual_seconds": round(figure.virtual, 3),
        "seconds": round(figure.seconds, 3),
        "delivered": figure.delivered,
    }


def _sim_figure(figure: sim.SimFigure) -> dict[str, object]:
    return {
        "events_per_second": round(figure.median),
        "spread": round(figure.spread, 4),
        "rounds": [round(rate) for rate in figure.rounds],
        "events": figure.events,
        "delivered": figure.delivered,
        "trace_bytes": figure.trace_bytes,
    }
