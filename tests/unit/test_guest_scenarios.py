"""Scenario files with guests: what they mean, and what is refused with which remedy."""

from __future__ import annotations

import pytest

from stormcast.chaos import faults
from stormcast.chaos.guests.processes import in_place_of_shell
from stormcast.chaos.guests.scenario import CLIENT, fill
from stormcast.chaos.guests.scenario_file import has_guests, parse_guests
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.language.schedule import schedule
from stormcast.node.core.errors import ConfigError

WHOLE = """\
name: two-guests
guests:
  a: {command: "serve --bind {address} --peer {b}", ready: {tcp: 80}}
  b: {command: "serve", stop: SIGINT}
client: {command: "{python} {folder}/c.py {a}", model: set}
timeline:
  - {at: 1s, do: partition, groups: [[a], [b, client]], for: 2s}
expect: {ready_within: 5s}
"""


def test_a_file_is_read_as_it_is_written() -> None:
    scenario = parse_guests(WHOLE)
    assert scenario.names == ("a", "b", CLIENT)
    assert scenario.guests[0].ready is not None
    assert scenario.guests[0].ready.tcp == 80
    assert scenario.guests[1].stop == "SIGINT"
    assert scenario.client is not None
    assert scenario.client.model == "set"
    [begin, end] = schedule(scenario.plan(), 1)
    assert begin.action == faults.Partition(groups=(("a",), ("b", CLIENT)))
    assert (begin.at, end.at) == (1.0, 3.0)


def test_words_in_braces_are_filled_in_for_a_shell() -> None:
    places = {"address": "198.18.0.2", "folder": "/a folder", "b": "198.18.0.3"}
    told = fill("x {address} {b} '{folder}' ${b} { b }", places)
    assert told == "x 198.18.0.2 198.18.0.3 ''/a folder'' ${b} { b }"


@pytest.mark.parametrize("do", ["crash", "pause"])
def test_no_random_choice_is_the_client(do: str) -> None:
    step = f"  - {{at: 1s, do: {do}, member: random}}\n"
    scenario = parse_guests(WHOLE.replace("expect:", f"{step}expect:"))
    for seed in range(50):
        struck = {getattr(step.action, "member", "a") for step in schedule(scenario.plan(), seed)}
        assert CLIENT not in struck


@pytest.mark.parametrize(
    ("command", "is_single"),
    [
        ("redis-server --save ''", True),
        ("a b && c", False),
        ("a > b", False),
        ("X=1 a", False),
        ("exec a", False),
        ("exit 3", False),
        ("a; b", False),
        ("if a", False),
    ],
)
def test_a_single_program_takes_the_place_of_its_shell(command: str, is_single: bool) -> None:
    assert in_place_of_shell(command) == (f"exec {command}" if is_single else command)


def _with(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_with("{b}", "{c}"), "command has {c}, which is no guest"),
        (_with("ready: {tcp: 80}", "ready: {condition: Ready}"), "only a cluster says one"),
        (_with("ready: {tcp: 80}", "ready: {}"), "one of tcp (a port), command"),
        (_with("  b:", "  client:"), "no word that is taken"),
        (_with("model: set", "model: sets"), "no such model; did you mean set?"),
        (_with("SIGINT", "SIGNIT"), "no such signal"),
        (_with("{at: 1s,", "{at: 1,"), "it has no unit"),
        (_with("do: partition, groups: [[a], [b, client]], for: 2s", "do: leave, member: a"),
         "nobody can tell a guest to do that; choose crash"),
        (_with("do: partition, groups: [[a], [b, client]], for: 2s", "do: rule, does: drop"),
         "it chooses frames of Stormcast"),
        (_with("do: partition, groups: [[a], [b, client]], for: 2s",
               "do: crash, member: coordinator"), "guests have no coordinator"),
        (_with("do: partition, groups: [[a], [b, client]], for: 2s", "do: crash, member: client"),
         "no such member"),
        (_with("groups: [[a], [b, client]]", "groups: isolate-coordinator"),
         "guests have no coordinator; list the groups"),
        (_with("expect:", "cluster: {members: 3}\nexpect:"), "remove one of them"),
        (_with('command: "serve", stop', """image: redis, command: "a 'b", stop"""),
         "close what is open in it"),
        (_with('command: "serve", stop', "image: ' redis', stop"), "write the name of an image"),
        (_with('command: "serve", stop', "stop"), "needs command, image or target"),
        (_with('command: "serve", stop', 'command: "serve", mounts: {x: /y}, stop'), "remove it"),
        (_with('command: "serve", stop', "image: redis, mounts: {x: etc}, stop"),
         "write where the container sees it"),
        (_with('command: "serve", stop', 'image: redis, environment: {A: "{c}"}, stop'),
         "A has {c}, which is no guest"),
        (_with('command: "serve", stop', "selector: redis, stop"), "unknown key 'selector'"),
        (_with('command: "serve", stop', "target: 'container:a', stop"), "neither started nor"),
        (_with("for: 2s", "for: 90s"), "beyond limits.run"),
        ("name: x\nguests: {a: {command: serve}}\n", "nothing would be judged"),
        (_with(", ready: {tcp: 80}", ""), "no guest says how it is known to be ready"),
    ],
)  # fmt: skip  # a table
def test_what_cannot_work_is_refused_with_its_place_and_the_remedy(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_guests(text, "bad.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("bad.yaml:")
    assert "\n" not in str(error.value)


FOUND = """\
name: found
guests:
  a: {target: "container:a", ready: {tcp: 80}}
  b: {target: "pid:7"}
client: {command: "c {a}", model: set}
timeline:
  - {at: 1s, do: partition, groups: [[a], [b]], for: 2s}
expect: {ready_within: 5s}
"""


def test_what_runs_already_has_networks_and_its_client_has_none_of_them() -> None:
    scenario = parse_guests(FOUND)
    assert scenario.names == ("a", "b")
    assert scenario.targets == {"a": "container:a", "b": "pid:7"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('target: "pid:7"', "command: serve", "write two files"),
        ('target: "pid:7"', "target: web", "as one of member:"),
        ('target: "pid:7"', 'target: "pid:"', "as one of member:"),
        ('target: "pid:7"', 'target: "pid:7", stop: SIGINT', "neither started nor stopped"),
        ("[[a], [b]]", "[[a], [b, client]]", "client"),
        ('"c {a}"', '"c {address}"', "no address of its own"),
        ("do: partition, groups: [[a], [b]], for: 2s", "do: crash, member: a", "choose pause"),
        ("do: partition, groups: [[a], [b]], for: 2s", "do: restart, member: a", "choose pause"),
    ],
)
def test_what_cannot_be_done_to_it_is_refused(old: str, new: str, said: str) -> None:
    assert old in FOUND
    with pytest.raises(ConfigError) as error:
        parse_guests(FOUND.replace(old, new), "bad.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("bad.yaml:")


PODS = """\
name: found
guests:
  a: {target: "pod:shop/a", ready: {condition: Ready}}
  b: {target: "label:app=b"}
timeline:
  - {at: 1s, do: partition, groups: [[a], [b]], for: 2s}
expect: {ready_within: 5s}
"""


def test_guests_may_be_pods() -> None:
    scenario = parse_guests(PODS)
    assert scenario.targets == {"a": "pod:shop/a", "b": "label:app=b"}
    assert (scenario.is_of_pods, scenario.backend) == (True, "kubernetes")
    assert parse_guests(FOUND).backend == "netns"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('target: "label:app=b"', 'target: "pid:7"', "some are pods, and some run on this machine"),
        ("condition: Ready", "condition: Ready, tcp: 80", "it needs one of tcp"),
        ("condition: Ready", "condition: ' Ready'", "write a condition of a pod"),
        ("do: partition, groups: [[a], [b]], for: 2s", "do: pause, member: a, for: 1s",
         "nothing in a pod can stop the first process"),
        ("do: partition, groups: [[a], [b]], for: 2s", "do: crash, member: a", "choose partition"),
    ],
)  # fmt: skip  # a table
def test_what_cannot_be_done_to_pods_is_refused(old: str, new: str, said: str) -> None:
    assert old in PODS
    with pytest.raises(ConfigError) as error:
        parse_guests(PODS.replace(old, new), "bad.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("bad.yaml:")


def test_other_commands_say_which_one_plays_such_a_file() -> None:
    with pytest.raises(ConfigError, match="stormcast run plays a file with guests"):
        parse_scenario(WHOLE)


def test_what_is_no_scenario_has_no_guests(tmp_path: object) -> None:
    assert not has_guests("order-under-loss")
    assert not has_guests(f"{tmp_path}/nothing.yaml")
