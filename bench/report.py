"""The report of a run: JSON for programs, lines for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench import figures, machine
from bench.cluster import Result
from bench.ours import Options


def as_json(result: Result) -> dict[str, Any]:
    """Return everything about a run."""
    plan = result.plan
    return {
        **figures.report(plan.work, result.rounds),
        "check": result.check.as_json() if result.check else None,
        "failed": result.failed,
        "idle": result.idle,
        "stats": result.stats,
        "settings": {
            **asdict(plan.work),
            "rounds": plan.rounds,
            "seconds": plan.seconds,
            "network": result.network,
            "delayed_by": result.delayed_by,
            **_options_json(plan.options),
        },
        "interrupted": result.is_interrupted,
        **machine.describe(),
    }


def _options_json(options: Options) -> dict[str, Any]:
    return {
        "stack": options.stack,
        "timing": options.timing,
        "set": {name: dict(values) for name, values in options.settings.items()},
        "encrypt": options.encrypt,
        "burst": options.burst,
    }


def lines(result: Result, said: dict[str, Any]) -> list[str]:
    """Return the figures as lines for people."""
    found = [f"{result.plan.work}: {said['unit']} ({result.network})"]
    for name, rounds in result.rounds.items():
        value, spread = said["peers"].get(name, said["ours"]), said["spread"][name]
        if value is None:
            found.append(f"  {name:14} nothing")
            continue
        apart = "unbounded" if spread is None else f"{spread:.1%}"
        line = f"  {name:14} {value:12,.0f}  spread {apart} over {len(rounds)} rounds"
        if (factor := said["ratio"].get(name)) is not None:
            line += f"  ours × {factor:.2f}"
        if more := said["details"][name]:
            line += f"  p99 {more['p99_us']:,} µs, {more['count_in_5_s']:,} in 5 s"
        found.append(line)
    found += [f"  {name:14} not measured: {reason}" for name, reason in result.failed.items()]
    return [*found, *_check_lines(result)]


def _check_lines(result: Result) -> list[str]:
    check = result.check
    if check is None:
        return ["  interrupted: nothing was checked"] if result.is_interrupted else []
    verdict = "hold" if check.holds else "FAILED: the figure of ours does not count"
    lines = [
        f"  journals: {verdict}; {check.messages:,} messages, {check.journal_bytes / 1e6:.1f} MB, "
        f"read in {check.seconds:.1f} s"
    ]
    return [*lines, *(f"    {name}: {found}" for name, found in check.findings.items())]
