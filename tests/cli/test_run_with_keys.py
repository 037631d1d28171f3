"""`--key-file`: all members of a run, a suite or a soak have its keys, and nobody is shown them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import Backend
from stormcast.chaos.backends.by_name import make_backend
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.node.keys.cluster_keys import change_keys, read_keys, write_new_key
from stormcast.node.trace import OVERHEARD, read_blocks_untrusted
from tests.helpers.shell import Shell
from tests.helpers.soaks import GENTLE

HEARD = """\
name: heard
guarantees: [G1, G2, G3, G4, S1]
cluster: {members: 2, stack: udp}
workload: [{do: unicast, from: n0, to: n1, count: 20, rate: 20/s}]
timeline: [{at: 0s, do: listen, for: 3s}]
"""
CHANGING = """\
name: changing
guarantees: [G1]
cluster: {members: 2, stack: udp, sealed: true}
workload: [{do: multicast, count: 20}]
timeline: [{at: 1s, do: change-keys, step: add}]
"""


@pytest.fixture(autouse=True)
def _files(shell: Shell) -> None:
    shell.write(HEARD, "heard.yaml")
    shell.write(CHANGING, "changing.yaml")
    write_new_key(shell.folder / "cluster.key")


def overheard(run: str) -> list[int]:
    """Digests of what the stranger took for messages."""
    blocks = read_blocks_untrusted(
        (Path(run) / "trace" / "rig.trace").read_bytes(), xxh3_64_intdigest
    )
    return [event.digest for block in blocks for event in block.events if event.kind == OVERHEARD]


def seals_with(shell: Shell, file: str, out: str) -> Sequence[int]:
    said = shell("run", "heard.yaml", "--key-file", file, "--out", out)
    assert said.code == 0, said.err
    return overheard(out)


def test_members_seal_with_the_key_of_the_file(shell: Shell) -> None:
    (key,) = read_keys("cluster.key")
    bare = shell("run", "heard.yaml", "--out", "bare")
    assert bare.code == 1
    assert "S1  violated" in bare.out
    said = shell("run", "heard.yaml", "--key-file", "cluster.key", "--out", "sealed")
    assert said.code == 0
    assert "S1  holds" in said.out
    assert f"members seal with key {key.name}" in said.err
    assert "sealed: true" in Path("sealed/scenario.yaml").read_text()
    assert not set(overheard("bare")) & set(overheard("sealed"))


def test_another_key_seals_otherwise_and_the_first_of_two_seals(shell: Shell) -> None:
    one = seals_with(shell, "cluster.key", "one")
    assert seals_with(shell, "cluster.key", "again") == one
    write_new_key(Path("other.key"))
    other = seals_with(shell, "other.key", "other")
    assert len(other) == len(one)
    assert not set(other) & set(one)
    change_keys(Path("cluster.key"), "add")
    assert seals_with(shell, "cluster.key", "two") == one


def test_no_file_of_a_run_and_no_line_has_the_key(shell: Shell) -> None:
    secret = Path("cluster.key").read_text().strip()
    said = shell("run", "heard.yaml", "--key-file", "cluster.key", "--out", "kept")
    assert secret not in said.out + said.err
    kept = [path.read_bytes() for path in Path("kept").rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert not [data for data in kept if secret.encode() in data or bytes.fromhex(secret) in data]
    assert read_keys("cluster.key")[0].secret.hex() == secret


def test_a_run_with_a_key_is_repeated_without_it(shell: Shell) -> None:
    """But for what strangers heard of it, of which there is nothing here."""
    Path("plain.yaml").write_text(HEARD.replace("{at: 0s, do: listen, for: 3s}", ""))
    assert shell("run", "plain.yaml", "--key-file", "cluster.key", "--out", "kept").code == 0
    said = shell("replay", "kept")
    assert (said.code, "identical" in said.out) == (0, True), said.out


def test_a_run_that_a_stranger_heard_is_repeated_with_its_key(shell: Shell) -> None:
    (key,) = read_keys("cluster.key")
    assert shell("run", "heard.yaml", "--key-file", "cluster.key", "--out", "kept").code == 0
    said = shell("replay", "kept")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"stormcast: members of kept sealed by key {key.name} of a file, and what strangers heard "
        "depends on it: give that file, --key-file FILE\n"
    )
    write_new_key(Path("other.key"))
    assert shell("replay", "kept", "--key-file", "other.key").code == 2
    change_keys(Path("cluster.key"), "add")
    said = shell("replay", "kept", "--key-file", "cluster.key")
    assert (said.code, "identical" in said.out) == (0, True), said.out
    said = shell("replay", "kept", "--key-file", "nothing.key")
    assert (said.code, "--key-file nothing.key: No such file" in said.err) == (2, True)


def test_a_controller_has_all_members_seal_but_those_whose_keys_change(shell: Shell) -> None:
    folder = Path("served")
    folder.mkdir()
    for name in ("heard.yaml", "changing.yaml"):
        Path(name).rename(folder / name)
    words = ["serve", "--backend", "sim", "--scenarios", "served", "--once", "--json"]
    assert shell(*words).code == 1
    said = shell(*words, "--key-file", "cluster.key")
    assert said.code == 0, said.out + said.err
    told = [json.loads(line) for line in said.out.splitlines()]
    assert {one["scenario"]: one["verdict"] for one in told} == {
        "heard": "holds",
        "changing": "holds",
    }
    sealed = {one["scenario"]: Path(one["run"]) / "scenario.yaml" for one in told}
    assert "sealed: true" in sealed["heard"].read_text()
    assert sealed["changing"].read_text() == CHANGING
    assert read_keys("cluster.key")[1:] == ()
    said = shell(*words[:1], "--scenarios", "served", "--once", "--key-file", "cluster.key")
    assert (said.code, "members of a release have its key" in said.err) == (2, True)


@pytest.mark.slow
def test_the_chaos_test_has_all_members_seal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = [parse_scenario(HEARD), parse_scenario(CHANGING)]
    monkeypatch.setattr("stormcast.chaos.commands.suite.library", lambda: scenarios)
    monkeypatch.setattr("stormcast.chaos.commands.suite.tour", list)
    words = ["chaos-test", "--backend", "sim", "--timing", "fast", "--workers", 2, "--json"]
    assert shell(*words).json["verdict"] == "violated"
    said = shell(*words, "--key-file", "cluster.key")
    assert (said.code, said.json["verdict"]) == (0, "holds"), said.out
    texts = [(Path(row["run"]) / "scenario.yaml").read_text() for row in said.json["runs"]]
    assert all("sealed: true" in text for text in texts)
    said = shell(*words, "--key-file", "nothing.key")
    assert (said.code, "--key-file nothing.key: No such file" in said.err) == (2, True)


@pytest.mark.slow
def test_a_soak_has_all_members_seal_also_where_it_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def made(name: str, **options: Any) -> Backend:
        given.append(options)
        return make_backend(name, **options)

    monkeypatch.setattr("stormcast.chaos.commands.soak.make_backend", made)
    storm = shell.write(GENTLE, "gentle.yaml")
    words = ["soak", "--for", "5s", "--key-file", "cluster.key"]
    assert shell(*words, "--storm", storm, "--out", "sealed").code == 0
    assert "sealed: true" in Path("sealed/storm.yaml").read_text()
    assert shell(*words, "--resume", "sealed").code == 0
    # That of a new soak is asked what it can do, before a cluster is made.
    assert given == [{}, *[{"keys": read_keys("cluster.key")}] * 2]

    assert shell("soak", "--for", "5s", "--storm", storm, "--out", "bare").code == 0
    said = shell(*words, "--resume", "bare")
    assert (said.code, "as it began, without keys; drop it" in said.err) == (2, True)
    said = shell(*words, "--backend", "kubernetes", "--out", "pods")
    assert (said.code, "members of a release have its key" in said.err) == (3, True)
    said = shell("soak", "--key-file", "nothing.key", "--out", "pods")
    assert (said.code, "--key-file nothing.key: No such file" in said.err) == (2, True)
    assert not Path("pods").exists()


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["heard.yaml", "--key-file", "nothing.key"], 2, "--key-file nothing.key: No such file"),
        (["heard.yaml", "--key-file", "heard.yaml"], 2, "others can read or change it"),
        (["heard.yaml", "--key-file", "no.key"], 2, "a key is a line of 64 hexadecimal digits"),
        (["changing.yaml", "--key-file", "cluster.key"], 2, "is not changed; drop --key-file"),
        (
            ["heard.yaml", "--key-file", "cluster.key", "--backend", "kubernetes"],
            3,
            "members of a release have its key",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    shell: Shell, words: list[str], code: int, why: str
) -> None:
    no_key = Path("no.key")
    no_key.write_text("not a key\n")
    no_key.chmod(0o600)
    Path("heard.yaml").chmod(0o644)
    said = shell("run", *words)
    assert said.code == code
    assert why in said.err
    assert len(said.err.splitlines()) == 1
    assert not Path("runs").exists()
