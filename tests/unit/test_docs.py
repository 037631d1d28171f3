"""The docs say what the code does: tables, examples, settings, reasons, commands and links."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml
from xxhash import xxh3_64_intdigest

import stormcast
from docs.make_tables import TABLES, features, filled
from stormcast.chaos.backends.kubernetes.release_access import NO_POD_HAS
from stormcast.chaos.backends.pods.features import OF_PODS
from stormcast.chaos.campaigns.library import library
from stormcast.chaos.campaigns.live import ACTS, KINDS, NO_MACHINE_HAS, live_runs
from stormcast.chaos.campaigns.museum import EXHIBITS
from stormcast.chaos.guests.scenario_file import load_guests, parse_guests
from stormcast.chaos.language.cluster import CLUSTER, GENERATIONS
from stormcast.chaos.language.scenario import (
    BUDGET,
    GUARANTEES,
    LIMITS,
    NETWORK,
    Scenario,
    parse_scenario,
)
from stormcast.chaos.language.timeline import WORDS, actions
from stormcast.chaos.language.workload import load_shapes
from stormcast.chaos.oracles.verdict import CHECKS
from stormcast.chaos.session.simulation import simulate
from stormcast.chaos.soak.kinds import KINDS as KINDS_OF_STORMS
from stormcast.chaos.soak.storm import Storm, what_runs
from stormcast.chaos.soak.storm_file import parse_storm
from stormcast.cli import COMMANDS
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.match import ANYTHING, Match
from stormcast.node.core.timing import Timing
from stormcast.node.member.loads import LOADS
from stormcast.node.protocols.discovery import DiscoveryConfig, DnsPingConfig, StaticConfig
from stormcast.node.protocols.flow import HistoricalFlow
from stormcast.node.protocols.frag import HistoricalFrag
from stormcast.node.protocols.multicast import (
    HistoricalMulticast,
    McastConfig,
    MulticastConfig,
    Nakack2Config,
)
from stormcast.node.protocols.testing import TEST_PROTOCOLS, TestProtocolConfig
from stormcast.node.protocols.unicast import (
    Historical,
    Unicast1Config,
    Unicast2Config,
    Unicast3Config,
    Unicast4Config,
    UnicastConfig,
)
from stormcast.node.reading.config_shapes import notation_for
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.matches import MATCH
from stormcast.node.settings import load_settings
from stormcast.node.settings.protocols import CONFIGS, DISCOVERIES
from stormcast.node.settings.rules import check_order
from stormcast.node.settings.transports import Nio2Config, TcpConfig, TransportConfig, UdpConfig
from stormcast.node.trace import EVENT_NAMES, Event, read_blocks_untrusted

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "bench").glob("*.md")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
MEMBERS = ("n0", "n1", "n2")
SETTINGS_PAGES: dict[type, tuple[str, type | None]] = {
    UnicastConfig: ("protocols/unicast.md", None),
    Unicast1Config: ("protocols/unicast1.md", UnicastConfig),
    Unicast2Config: ("protocols/unicast2.md", UnicastConfig),
    Unicast3Config: ("protocols/unicast3.md", UnicastConfig),
    Unicast4Config: ("protocols/unicast4.md", UnicastConfig),
    MulticastConfig: ("protocols/multicast.md", None),
    Nakack2Config: ("protocols/nakack2.md", MulticastConfig),
    McastConfig: ("protocols/mcast.md", MulticastConfig),
    CONFIGS["FRAG"]: ("protocols/frag.md", None),
    CONFIGS["MFC"]: ("protocols/flow.md", None),
    CONFIGS["GMS"]: ("protocols/gms.md", None),
    CONFIGS["STABLE"]: ("protocols/stable.md", None),
    CONFIGS["VERIFY_SUSPECT2"]: ("protocols/verify_suspect2.md", None),
    CONFIGS["FD_ALL3"]: ("protocols/fd_all3.md", None),
    CONFIGS["FD_SOCK2"]: ("protocols/fd_sock2.md", None),
    CONFIGS["MERGE3"]: ("protocols/merge3.md", None),
    DiscoveryConfig: ("protocols/discovery.md", None),
    StaticConfig: ("protocols/discovery.md", DiscoveryConfig),
    DnsPingConfig: ("protocols/discovery.md", DiscoveryConfig),
    TransportConfig: ("transports.md", None),
    UdpConfig: ("transports.md", TransportConfig),
    TcpConfig: ("transports.md", TransportConfig),
    Nio2Config: ("transports.md", TcpConfig),
    Timing: ("stacks.md", None),
    TestProtocolConfig: ("protocols/test-protocols.md", None),
    **{
        test_protocol.config_type: ("protocols/test-protocols.md", TestProtocolConfig)
        for test_protocol in TEST_PROTOCOLS.values()
        if test_protocol.config_type is not TestProtocolConfig
    },
}
"""Where settings are described, and the ones they add to."""


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
    words = set(re.findall(r"(?<!from )\bstormcast ([a-z]+[a-z-]*)", shown))
    assert words <= COMMANDS.keys()
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


# -- Parts ---------------------------------------------------------------------------------------


def test_what_the_rig_knows_of_node_is_listed() -> None:
    """What the import contract lets pass is what docs/architecture.md says."""
    listed = page("architecture.md").partition("| of `node` | what for |")[2].partition("\n\n")[0]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (ignored,) = [
        set(contract["ignore_imports"])
        for contract in contracts["contracts"]
        if contract.get("source_modules") == ["stormcast.chaos"] and "ignore_imports" in contract
    ]
    told = {f"stormcast.chaos.** -> stormcast.node.{name}" for name in words(listed)}
    assert ignored == told | {"stormcast.chaos.backends.sim.** -> stormcast.node.**"}


# -- Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_the_code_says(name: str) -> None:
    """Where this fails: `.venv/bin/python -m docs.make_tables`, and look at what changed."""
    assert page(name) == filled(name, page(name))


def test_what_a_backend_refuses_is_no_feature_of_it_in_the_table() -> None:
    rows = [line.strip("| ").split(" | ") for line in features().splitlines()[2:]]
    lacking = [{row[0].strip("`") for row in rows if row[column] == "–"} for column in (3, 4, 5)]
    assert lacking == [
        {*NO_MACHINE_HAS},
        {*NO_MACHINE_HAS, *OF_PODS},
        {*NO_MACHINE_HAS, *NO_POD_HAS},
    ]


def test_the_readme_shows_the_table_of_chaos_test_as_it_is() -> None:
    """Its rows, columns and number of runs; the seconds are those of one machine."""
    text = (ROOT / "README.md").read_text()
    head, *lines = text.partition("\nprotocol  ")[2].partition("\nseconds: from")[0].splitlines()
    acts = [act.name for act in ACTS]
    assert re.split(r"\s{2,}", head.strip()) == acts
    runs = list(live_runs())
    tried = {(run.kind, run.act) for run in runs}
    kinds = [kind.name for kind in KINDS]
    shown = [re.split(r"\s{2,}", line.strip()) for line in lines if line != "…"]
    assert [row[0] for row in shown] == [kind for kind in kinds if kind in {r[0] for r in shown}]
    for kind, *cells in shown:
        assert [cell != "-" for cell in cells] == [(kind, act) in tried for act in acts], kind
    assert f"verdict: holds   {len(runs)} runs on netns" in text
    assert f"Spark, on the same {len(runs)} runs: holds" in text
    assert f"museum of {len(EXHIBITS)} flaws" in text.replace("\n", " ").replace("  ", " ")


def event_rows() -> list[list[str]]:
    return rows(page("trace-format.md").partition("\n## Events\n")[2].partition("\n### ")[0])


def test_every_kind_of_event_is_described() -> None:
    assert {int(row[0]): row[1] for row in event_rows()} == EVENT_NAMES


GROUP_STORIES = {
    # Loss, a merge, a crash: repairs by others than the sender, suspicions, stability.
    "udp": (
        "multicast_settings: {xmit_from_random_member: true}",
        "{at: 4s, do: partition, groups: halves, for: 8s}, {at: 20s, do: crash, member: n1}, "
        "{at: 24s, do: leave, member: n0}",
    ),
    # A full window: somebody blocks, acks come, and are frozen while a digest is in use.
    "mcast": (
        "multicast_settings: {window_messages: 20}",
        "{at: 5s, do: stall, member: n2, for: 3s}, {at: 12s, do: join, member: n3}",
    ),
    # One message that never arrives, and nobody who asks for it: in the end, an alarm.
    "tcp-no-retransmit": (
        "multicast_settings: {gap_alarm: 2s}",
        "{at: 4s, do: rule, does: drop, match: {kind: DATA, protocol: NAKACK2, to: n1}, times: 1}",
    ),
}


def group_story(stack: str) -> Scenario:
    """Four members that multicast while something happens to them."""
    cluster, steps = GROUP_STORIES[stack]
    return parse_scenario(
        "name: story\nguarantees: [G1]\nnetwork: {delay: 1ms}\nlimits: {run: 120s}\n"
        f"cluster: {{members: 4, stack: {stack}, timing: fast, max_batch: 3, late: [n3], "
        f"{cluster}}}\n"
        "workload: [{do: multicast, from: all, count: 60, rate: 30/s, burst: 5, start: 3s}]\n"
        f"timeline: [{{at: 1s, do: loss, rate: 5%, for: 9s}}, {steps}]\n"
    )


RARE = {"delivered": {"flags", "stream", "trim"}, "retransmitted": {"flags"}}
"""What needs a flag of the sender, or a batch of which only a part is new."""


@cache
def recorded_fields() -> dict[str, set[str]]:
    """The fields that events of each kind set, in a few runs."""
    wanted = {"narrow-link", "receiver-forgets-sender", "slow-application"}
    stories = [
        replace(scenario, cluster=replace(scenario.cluster, max_batch=3))
        for scenario in library()
        if scenario.name in wanted
    ]
    stories += map(group_story, GROUP_STORIES)
    found: dict[str, set[str]] = {}
    for story in stories:
        for event in events_of(story):
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


def test_a_described_field_is_set_by_some_event() -> None:
    """Of the kinds that a run always has; the rest depends on the luck of the story."""
    for name in ("view", "suspect", "conn", "delivered", "purged", "retransmitted", "alarm"):
        (described,) = [words(row[2]) for row in event_rows() if row[1] == name]
        assert described - RARE.get(name, set()) <= recorded_fields()[name], name


def reasons_of(source: str) -> set[str]:
    """The reasons for refusals that stand literally in a module."""
    literal = re.findall(r"(?:BadFrame|\.drop)\(\s*\"([a-z-]+)\"", source)
    # Functions that say why not, and whose answer is counted.
    judges = r"def _?(?:objection|obstacle)\(.*?(?=\n    def |\Z)"
    for body in re.findall(judges, source, re.DOTALL):
        literal += re.findall(r"(?:return |, )\"([a-z-]+)\"", body)
    return set(literal)


def test_every_reason_for_a_refusal_is_listed() -> None:
    listed = words(page("wire-format.md").partition("## What is refused")[2])
    for path in (ROOT / "node").rglob("*.py"):
        source = path.read_text()
        about = re.findall(r"\.drop\(f\"\{what\}(-[a-z-]+)\"", source)
        speakers = re.findall(r"_(?:sender_for|is_stale)\(\w+, (?:\w+, )?\"([a-z]+)\"\)", source)
        assert reasons_of(source) <= listed
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


WORDS_FOR: dict[str, object] = {"empty": "", "none": (), "anything": ANYTHING}
"""Defaults that a settings file has no text for."""


def converted(value: object, kind: object) -> object:
    """A value of a file, as the setting of this type that it becomes."""
    return notation_for(str(kind), "").read(PlainItem(value))


def value_of(text: str, kind: object) -> object:
    """A default as the docs write it: as a settings file would, but for bare numbers."""
    kind = str(kind)
    if (text in WORDS_FOR and kind != "str") or text == "empty":
        return WORDS_FOR[text]
    if kind in ("float", "Share", "int") and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return int(text) if kind == "int" else float(text)
    return {"true": True, "false": False}.get(text) if kind == "bool" else converted(text, kind)


def defaults(config: type) -> dict[str, object]:
    return {
        field.name: field.default
        for field in dataclasses.fields(config)
        if field.name != "historical"
    }


def settable(config: type) -> frozenset[str]:
    """What `set-attribute` changes: it reaches the windows, and no other protocol."""
    is_window = issubclass(config, UnicastConfig | MulticastConfig)
    named: frozenset[str] = getattr(config, "settable", frozenset()) if is_window else frozenset()
    return named


def test_all_settings_have_a_page() -> None:
    kinds = {
        *CONFIGS.values(),
        *(test_protocol.config_type for test_protocol in TEST_PROTOCOLS.values()),
    }
    assert kinds <= SETTINGS_PAGES.keys()


@pytest.mark.parametrize("config", SETTINGS_PAGES, ids=lambda config: config.__name__)
def test_settings_are_described_with_their_defaults(config: type) -> None:
    """Of those that add to others: what they add, and whose default they change."""
    name, base = SETTINGS_PAGES[config]
    shared = defaults(base) if base is not None else {}
    expected = {
        setting: default
        for setting, default in defaults(config).items()
        if setting not in shared or shared[setting] != default
    }
    kinds = {field.name: field.type for field in dataclasses.fields(config)}
    table = {row[0].strip("`"): row for row in settings_rows(name, config)}
    assert {key: value_of(row[1], kinds[key]) for key, row in table.items()} == expected
    may_change = {key for key, row in table.items() if row[2] == "yes"}
    assert may_change == settable(config) & expected.keys()


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("protocols/unicast.md", Historical),
        ("protocols/multicast.md", HistoricalMulticast),
        ("protocols/flow.md", HistoricalFlow),
        ("protocols/frag.md", HistoricalFrag),
    ],
)
def test_historical_flaws_are_described_with_their_defaults(name: str, config: type) -> None:
    kinds = {field.name: field.type for field in dataclasses.fields(config)}
    described = {row[0].strip("`"): row[1] for row in settings_rows(name, config)}
    assert {key: value_of(text, kinds[key]) for key, text in described.items()} == defaults(config)


def test_every_condition_of_a_match_is_described() -> None:
    text = page("protocols/test-protocols.md").partition("## Match")[2].partition("## Settings")[0]
    renamed = {"protocols": "protocol", "kinds": "kind", "sources": "from", "dests": "to"}
    known = {renamed.get(field.name, field.name) for field in dataclasses.fields(Match)} - {
        "connection"
    }
    keyed = (row[0] for row in rows(text.partition("\n| key")[2]))
    assert {key for cell in keyed for key in re.findall(r"`(\w+)`", cell)} == known


# -- Stacks --------------------------------------------------------------------------------------


def between(name: str, mark: str) -> list[list[str]]:
    """The rows of a table that stands between two marks of a page."""
    found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", page(name), re.DOTALL)
    assert found, f"{name} has no table {mark}"
    return rows(found[1])


def folder(name: str) -> dict[str, dict[str, Any]]:
    """The files of a folder of settings, by name."""
    found = files("stormcast.node").joinpath(name).iterdir()
    return {
        path.name.removesuffix(".yaml"): yaml.safe_load(path.read_text())
        for path in found
        if path.name.endswith(".yaml")
    }


def test_every_stack_is_described() -> None:
    told = {row[0].strip("`"): row[1:5] for row in between("stacks.md", "stacks")}
    kinds = ("transport", "unicast", "multicast")
    found = {}
    for stack in folder("stacks"):
        settings = load_settings(stack)
        seeks = [name for name, _config in settings.layers if name in DISCOVERIES]
        found[stack] = [*(getattr(settings, kind) or "–" for kind in kinds), *(seeks or ["–"])]
    assert told == found


def test_what_the_fast_timing_changes_is_described() -> None:
    changed = {
        (protocol, setting): (defaults(CONFIGS[protocol])[setting], value)
        for protocol, values in folder("timings")["fast"]["protocols"].items()
        for setting, value in values.items()
    }
    kinds = {
        (protocol, field.name): field.type
        for protocol, config in CONFIGS.items()
        for field in dataclasses.fields(config)
    }
    told = {(row[0], row[1].strip("`")): row[2:] for row in between("stacks.md", "fast")}
    assert told.keys() == changed.keys()
    for key, (was, now) in changed.items():
        kind = kinds[key]
        wanted = (was, converted(now, kind))
        assert tuple(value_of(text, kind) for text in told[key]) == wanted, key


def refusals(head: str) -> list[list[str]]:
    """The rows of a table of stacks.md, found by its head."""
    return rows(page("stacks.md").partition(f"\n| {head} |")[2].partition("\n\n")[0])


@pytest.mark.parametrize("row", refusals("top to bottom"), ids=lambda row: row[0])
def test_a_list_is_refused_as_described(row: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        check_order(row[0].strip("`").split(), "mine")
    assert str(refused.value) == f"stack mine: {row[1]}"


@pytest.mark.parametrize("row", refusals("stack | set"), ids=lambda row: row[1])
def test_settings_are_refused_as_described(row: list[str]) -> None:
    stack, values, because = row[0].strip("`"), yaml.safe_load(row[1].strip("`")), row[2]
    with pytest.raises(ConfigError) as refused:
        load_settings(stack, protocols=values)
    assert because in str(refused.value)


def stack_examples() -> list[str]:
    return [
        example
        for path in PAGES
        for example in re.findall(
            r"^```yaml stack\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
        )
    ]


@pytest.mark.parametrize("timing", ["compatible", "fast"])
@pytest.mark.parametrize("example", stack_examples())
def test_every_example_is_a_stack(
    example: str, timing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one with test protocols, whose settings only a stack file can hold."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "mine.yaml").write_text(example)
    copytree(ROOT / "node" / "timings", tmp_path / "timings")
    monkeypatch.setattr("stormcast.node.settings.files.files", lambda _package: tmp_path)
    settings = load_settings("mine", timing)
    listed = [
        item if isinstance(item, str) else next(iter(item))
        for item in yaml.safe_load(example)["protocols"]
    ]
    assert [name for name, _config in settings.layers] == listed
    for place, name, config in settings.test_protocols:
        given = yaml.safe_load(example)["protocols"][place][name]
        assert config.match == MATCH.read(PlainItem(given.get("match", {}), "match"))


# -- Refusals ------------------------------------------------------------------------------------

REFUSING = {
    "gms.md": ("protocols/gms",),
    "merge3.md": ("protocols/merge3",),
    "fd_all3.md": ("protocols/fd_all3.py",),
    "fd_sock2.md": ("protocols/fd_sock2",),
    "verify_suspect2.md": ("protocols/verify_suspect2.py",),
    "discovery.md": ("protocols/discovery.py",),
    "stable.md": ("protocols/stable",),
    "flow.md": ("protocols/flow",),
    "frag.md": ("protocols/frag.py", "protocols/unfinished.py"),
    "multicast.md": ("protocols/multicast", "protocols/windowed.py"),
}
"""Pages with a table of reasons, and where those stand in the code."""
OF_ANY_PROTOCOL = frozenset(
    {
        "kind",
        "body-short",
        "body-long",
        "count",
        "address",
        "view-members",
        "digest-entry",
        "flag",
        "flags",
    }
)
"""Reasons of malformed frames, which wire-format.md has."""
ELSEWHERE = {"frag.md": {"fragment", "fragment-expired"}}
"""Reasons that the stack gives for a protocol."""


@pytest.mark.parametrize("name", REFUSING)
def test_a_page_names_each_reason_of_its_protocol(name: str) -> None:
    reasons = ELSEWHERE.get(name, set()).union(*map(reasons_of, sources(REFUSING[name])))
    text = page(f"protocols/{name}").partition("## What is refused")[2].partition("\n## ")[0]
    told = {reason for row in rows(text) for reason in words(row[0])}
    assert told - OF_ANY_PROTOCOL == reasons - OF_ANY_PROTOCOL


def sources(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        found = ROOT / "node" / path
        for file in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            yield file.read_text()


# -- Scenarios and guarantees --------------------------------------------------------------------


def yaml_examples() -> list[str]:
    return [
        example
        for path in PAGES
        if path.name not in ("soak.md", "guests.md")  # A storm; guests in place of members.
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


def test_the_example_of_a_storm_says_what_holds_without_one() -> None:
    text = page("soak.md")
    example, of_turns = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    storm = parse_storm(example)
    assert storm == Storm(cluster=storm.cluster)
    assert [what_runs(one.cluster) for one in parse_storm(of_turns).by_turn()] == [
        "udp, fast",
        "udp, UNICAST4, fast, window_messages 16, conn_expiry_timeout 2.0",
        "mcast, compatible",
        "tcp-nio2, fast, FRAG.frag_size 1500, MFC.max_credits 30000, max_batch 3",
    ]
    assert {f"`{kind}`" for kind in KINDS_OF_STORMS} <= set(re.findall(r"`[a-z-]+`", text))


def test_the_example_of_guests_is_the_file_that_is_shown_to_fail() -> None:
    example, of_images, found, of_pods = re.findall(
        r"^```yaml\n(.*?)^```", page("guests.md"), re.DOTALL | re.MULTILINE
    )
    told, shown = parse_guests(example), load_guests(ROOT / "examples/redis/failover.yaml")
    assert replace(told, about=shown.about) == shown
    whole_file = parse_guests(f"name: images\n{of_images}expect: {{ready_within: 9s}}\n")
    assert whole_file.guests[0].image == "redis:7"
    assert parse_guests(f"name: found\n{found}").targets["db"] == "compose:shop/db"
    assert parse_guests(f"name: pods\n{of_pods}").targets["db"] == "pod:shop/db-0"


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


# -- The architecture ------------------------------------------------------------------------------

ARCHITECTURE = ROOT / "docs" / "architecture.md"
PRODUCT = ("node", "chaos", "pipeline", "stormcast", "bench", "helm", "manifests", "docker")


@cache
def product_files() -> frozenset[str]:
    """Every file of the product, by its path in the repository."""
    return frozenset(
        str(path.relative_to(ROOT)) for part in PRODUCT for path in (ROOT / part).rglob("*")
    )


@cache
def defined() -> frozenset[str]:
    """Every module, and every name that a class, a function or an assignment of the product makes,
    and of what a class has also `Class.name`."""
    found = set[str]()
    for path in product_files():
        if path.endswith(".py"):
            found.add(Path(path).stem)
            found |= _defined_by(ast.parse((ROOT / path).read_text()))
    return frozenset(found)


def _defined_by(tree: ast.AST) -> set[str]:
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                inner = {one for part in node.body for one in _defined_by(part)}
                found |= {name} | {f"{name}.{one}" for one in inner}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def quoted(text: str) -> list[str]:
    """What a page puts between backquotes, outside of its drawings."""
    return re.findall(
        r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    )


def test_every_file_of_the_architecture_is_there() -> None:
    """`core/codec.py` is found as `node/core/codec.py`, `lane.py` wherever it is."""
    named = [one for one in quoted(ARCHITECTURE.read_text()) if re.fullmatch(r"[\w/]+\.py", one)]
    there = product_files()
    assert len(named) > 50
    assert [one for one in named if not any(f"/{path}".endswith(f"/{one}") for path in there)] == []


def test_every_folder_of_the_architecture_is_there() -> None:
    named = [one for one in quoted(ARCHITECTURE.read_text()) if re.fullmatch(r"\w+(/\w+)+", one)]
    assert len(named) > 20
    assert [one for one in named if not (ROOT / one).is_dir()] == []


def test_every_class_and_method_of_the_architecture_is_there() -> None:
    """`Stack.receive` is what class Stack has, `stack.end_turn(now)` what somebody has."""
    named = {
        one.partition("(")[0]
        for one in quoted(ARCHITECTURE.read_text())
        if re.fullmatch(r"([A-Za-z]\w*\.)*[A-Za-z_]\w*(\(.*\))?", one)
        and (one[0].isupper() or "." in one or "(" in one)
        and not re.fullmatch(r"[\w/]+\.(py|toml|html)", one)
    }
    known = {name: name if name[0].isupper() else name.rpartition(".")[2] for name in named}
    assert len(named) > 15
    assert [name for name, wanted in known.items() if wanted not in defined()] == []


def test_each_class_that_the_api_names_is_imported_from_stormcast() -> None:
    text = re.sub(r"```.*?```", "", (DOCS / "api.md").read_text(), flags=re.DOTALL)
    named = {
        word
        for code in re.findall(r"`([^`]+)`", text)
        for word in re.findall(r"(?<![\w.])[A-Z][a-z]+[A-Za-z]*\b", code)
    } - {*dir(builtins)}
    assert {"Address", "BindError", "Channel", "Delivery", "JournalConfig"} <= named
    assert named <= set(stormcast.__all__)
    assert all(getattr(stormcast, name).__name__ == name for name in named)
    assert "stormcast.node" not in text
