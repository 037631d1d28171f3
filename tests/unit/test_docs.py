"""The docs say what the code does: tables, examples, settings, reasons, commands and links."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from chaos.backends.sim import simulate
from chaos.cli import library
from chaos.cluster import CLUSTER, GENERATIONS
from chaos.oracles.verdict import CHECKS
from chaos.scenario import BUDGET, GUARANTEES, LIMITS, NETWORK, parse_scenario
from chaos.timeline import WORDS, actions
from chaos.workload import LOADS, load_shapes
from docs.make_tables import TABLES, filled
from node.protocols.unicast import (
    Historical,
    Unicast1Config,
    Unicast2Config,
    Unicast3Config,
    Unicast4Config,
    UnicastConfig,
)
from node.settings import convert
from node.trace import EVENT_NAMES, Event, read_blocks_untrusted
from stormcast.cli import COMMANDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "bench").glob("*.md")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
MEMBERS = ("n0", "n1", "n2")
GENERATION_CONFIGS = {
    "unicast1.md": Unicast1Config,
    "unicast2.md": Unicast2Config,
    "unicast3.md": Unicast3Config,
    "unicast4.md": Unicast4Config,
}


def page(name: str) -> str:
    return (DOCS / name).read_text()


def rows(text: str) -> list[list[str]]:
    """The rows of the Markdown tables in a text, without their heads."""
    cut = [[cell.strip() for cell in line.strip("|").split("|")] for line in _lines(text)]
    heads = {number - 1 for number, row in enumerate(cut) if set("".join(row)) <= {"-", " "}}
    return [row for at, row in enumerate(cut) if at not in heads and at - 1 not in heads]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def words(text: str) -> set[str]:
    """What stands in backticks, blocks apart."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"`([^`\n]+)`", prose))


def code(text: str) -> str:
    """What stands in backticks, in fences, or indented."""
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^ {4}.*", text, re.MULTILINE)
    return "\n".join([*blocks, *indented, *words(text)])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# -- Links and commands --------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors that the headings of a page make."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", path.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        there = path.parent / target if target else path
        assert there.exists(), f"no {target}"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{target} has no heading #{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_command_shown_exists(path: Path) -> None:
    shown = code(path.read_text())
    assert set(re.findall(r"\bstormcast ([a-z]+[a-z-]*)", shown)) <= COMMANDS.keys()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+[a-z-]*)", shown)) <= set(targets)


def test_the_readme_leads_to_every_page() -> None:
    """Directly, or by one page more."""
    reached = {ROOT / "README.md"}
    for _ in range(2):
        for path in list(reached):
            targets = re.findall(r"\]\(([^)#\s]+\.md)", path.read_text())
            reached |= {(path.parent / target).resolve() for target in targets}
    assert {path for path in PAGES if path.is_relative_to(DOCS)} <= reached


# -- Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_the_code_says(name: str) -> None:
    """Where this fails: `.venv/bin/python -m docs.make_tables`, and look at what changed."""
    assert page(name) == filled(name, page(name))


def event_rows() -> list[list[str]]:
    return rows(page("trace-format.md").partition("\n## Events\n")[2].partition("\n### ")[0])


def test_every_kind_of_event_is_described() -> None:
    assert {int(row[0]): row[1] for row in event_rows()} == EVENT_NAMES


@cache
def recorded_fields() -> dict[str, set[str]]:
    """The fields that events of each kind set, in a few runs."""
    wanted = {"narrow-link", "receiver-forgets-sender", "slow-application"}
    found: dict[str, set[str]] = {}
    for scenario in library():
        if scenario.name in wanted:
            for event in events_of(
                replace(scenario, cluster=replace(scenario.cluster, max_batch=3))
            ):
                fields = {name for name, value in event._asdict().items() if value}
                found.setdefault(event.name, set()).update(fields - {"kind", "time"})
    return found


def events_of(scenario: object) -> Iterator[Event]:
    run = simulate(scenario, 1)  # type: ignore[arg-type]
    for data in run.traces.values():
        for block in read_blocks_untrusted(data, xxh3_64_intdigest):
            yield from block.events


@pytest.mark.parametrize("name", EVENT_NAMES.values())
def test_an_event_sets_no_field_that_is_not_described(name: str) -> None:
    (described,) = [words(row[2]) for row in event_rows() if row[1] == name]
    assert described <= set(Event._fields)
    assert recorded_fields().get(name, set()) <= described


def test_every_reason_for_a_refusal_is_listed() -> None:
    listed = words(page("wire-format.md").partition("## What is refused")[2])
    for path in (ROOT / "node").rglob("*.py"):
        source = path.read_text()
        literal = re.findall(r"(?:BadFrame|\.drop)\(\s*\"([a-z-]+)\"", source)
        about = re.findall(r"\.drop\(f\"\{what\}(-[a-z-]+)\"", source)
        speakers = re.findall(r"_(?:sender_for|is_stale)\(\w+, (?:\w+, )?\"([a-z]+)\"\)", source)
        assert {*literal} <= listed
        for end in about:
            assert any(one.endswith(end) for one in listed), end
        for who in speakers:
            assert any(one.startswith(f"{who}-") for one in listed), who


# -- Settings ------------------------------------------------------------------------------------


def settings_rows(name: str, config: type) -> list[list[str]]:
    found = re.search(
        rf"<!-- settings {config.__name__} -->\n(.*?)<!-- /settings -->", page(name), re.DOTALL
    )
    assert found, f"{name} has no settings of {config.__name__}"
    return rows(found[1])


def value_of(text: str, kind: object) -> object:
    """A default as the docs write it: as a settings file would, but for a bare 0."""
    if text.isdecimal():
        return float(text) if str(kind) == "float" else int(text)
    return (
        {"true": True, "false": False}.get(text) if str(kind) == "bool" else convert("", text, kind)
    )


def defaults(config: type) -> dict[str, object]:
    return {
        field.name: field.default
        for field in dataclasses.fields(config)
        if field.name != "historical"
    }


@pytest.mark.parametrize(
    ("name", "config"), [("unicast.md", UnicastConfig), *GENERATION_CONFIGS.items()]
)
def test_settings_are_described_with_their_defaults(name: str, config: type[UnicastConfig]) -> None:
    """Of a generation: those that it adds, and those whose default it changes."""
    shared = defaults(UnicastConfig) if config is not UnicastConfig else {}
    expected = {
        setting: default
        for setting, default in defaults(config).items()
        if setting not in shared or shared[setting] != default
    }
    kinds = {field.name: field.type for field in dataclasses.fields(config)}
    table = {row[0].strip("`"): row for row in settings_rows(f"protocols/{name}", config)}
    assert {key: value_of(row[1], kinds[key]) for key, row in table.items()} == expected
    may_change = {key for key, row in table.items() if row[2] == "yes"}
    assert may_change == config.settable & expected.keys()


def test_historical_flaws_are_described_with_their_defaults() -> None:
    kinds = {field.name: field.type for field in dataclasses.fields(Historical)}
    table = settings_rows("protocols/unicast.md", Historical)
    described = {row[0].strip("`"): row[1] for row in table}
    assert {key: value_of(text, kinds[key]) for key, text in described.items()} == defaults(
        Historical
    )


# -- Scenarios and guarantees --------------------------------------------------------------------


def yaml_examples() -> list[str]:
    return [
        example
        for path in PAGES
        for example in re.findall(
            r"^```yaml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
        )
    ]


def whole(example: str) -> str:
    """A part of a scenario file, made a file."""
    given = set(re.findall(r"^(\w+):", example, re.MULTILINE))
    rest = {"name": "example", "guarantees": "[G1]", "cluster": "{members: 3}"}
    return example + "".join(f"{key}: {text}\n" for key, text in rest.items() if key not in given)


@pytest.mark.parametrize("example", yaml_examples())
def test_every_example_is_a_scenario(example: str) -> None:
    parse_scenario(whole(example))


def test_every_word_of_a_timeline_has_an_example() -> None:
    shown = {
        type(step.action)
        for example in yaml_examples()
        for step in parse_scenario(whole(example)).timeline
    }
    assert shown == set(WORDS)


def test_every_key_is_described() -> None:
    text = page("scenarios.md")
    described = words(text)
    shapes = [CLUSTER, NETWORK, BUDGET, LIMITS, *load_shapes(MEMBERS).values()]
    match = {"protocol", "kind", "connection", "seqno", "occurrence", "transmission", "flags"}
    keys = {key for shape in shapes for key in shape.keys}
    assert (keys | match | set(LOADS) | set(WORDS.values())) <= described
    assert all(generation in text for generation in GENERATIONS)
    for word, shape in actions(MEMBERS).items():
        examples = "\n".join(re.findall(rf"do: {word}\b.*", text))
        for key in shape.keys:
            assert f"{key}:" in examples or key in described, f"{word}: {key}"


def test_every_guarantee_has_its_place() -> None:
    text = page("guarantees.md")
    defined = set(re.findall(r"^## ([A-Z]\d): ", text, re.MULTILINE))
    reserved = {row[0] for row in rows(text.partition("## Reserved")[2])}
    assert defined | reserved == set(GUARANTEES)
    assert not defined & reserved
    assert defined == {*CHECKS, "G8"}
