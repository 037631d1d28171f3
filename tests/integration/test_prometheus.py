"""A real Prometheus scrapes real members, and says what it found."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.netns.control import ask
from stormcast.chaos.backends.netns.process import Process, environment, until
from tests.helpers.certificates import NAME, Issuer
from tests.helpers.processes import Members
from tests.helpers.tokens import token_file

NAMES = ("n0", "n1", "n2")
PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
TOKEN = "0123456789abcdef0123"  # noqa: S105 of a test

pytestmark = [
    pytest.mark.skipif(
        PROMETHEUS is None or PROMTOOL is None,
        reason="needs prometheus and promtool: apt-get install prometheus",
    ),
    pytest.mark.slow,
]


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Scraper:
    """A Prometheus with a data folder of its own."""

    def __init__(self, folder: Path, port: int, targets: list[str], **more: object) -> None:
        self.url = f"http://127.0.0.1:{port}"
        (folder / "token").write_text(TOKEN)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "900ms"},
            "scrape_configs": [
                {
                    "job_name": "stormcast",
                    "authorization": {"type": "Bearer", "credentials_file": str(folder / "token")},
                    "static_configs": [{"targets": targets}],
                    **more,
                }
            ],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config))
        assert PROMETHEUS is not None
        words = (
            PROMETHEUS,
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        self.process = Process(words, folder, "prometheus", environment({}))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What the query API answers, now; nothing while it is not there yet."""
        target = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(target, timeout=5.0) as answer:  # noqa: S310 our own URL
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            return []

    def values(self, expression: str) -> list[float]:
        """The values alone."""
        return [float(one["value"][1]) for one in self.query(expression)]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with Members(tmp_path) as made:
        yield made


def test_prometheus_scrapes_three_members_and_sees_them_count(
    members: Members, tmp_path: Path
) -> None:
    """Two on loopback as it is, one with a token, which Prometheus sends to all."""
    *ports, own = free_ports(4)
    for name, port in zip(NAMES, ports, strict=True):
        token = ("--control-token-file", str(token_file(tmp_path, TOKEN)))
        more = token if name == "n2" else ()
        members.start(name, "--control", f"127.0.0.1:{port}", *more)
    scraper = Scraper(tmp_path, own, [f"127.0.0.1:{port}" for port in ports])
    members.processes["prometheus"] = scraper.process

    def wait(expression: str, expected: list[float]) -> None:
        until(
            lambda: sorted(scraper.values(expression)) == expected,
            30.0,
            lambda: f"{expression}: {scraper.query(expression)}\n{members.tails()}",
            poll=0.25,
        )

    wait("up", [1, 1, 1])
    wait("stormcast_view_members", [3, 3, 3])
    wait("sum(stormcast_view_coordinates)", [1])
    assert {one["metric"]["member"] for one in scraper.query("stormcast_member_info")} == {*NAMES}

    before = sum(scraper.values("stormcast_workload_received_messages_total"))
    load = json.dumps({"do": "multicast", "rate": "500/s", "duration": "60s"}).encode()
    begun = urllib.request.Request(f"http://127.0.0.1:{ports[0]}/workload", data=load)
    with urllib.request.urlopen(begun, timeout=5.0) as answer:  # noqa: S310 our own URL
        assert answer.status == 202
    wait("count(rate(stormcast_workload_received_messages_total[10s]) > 100)", [3])
    assert sum(scraper.values("stormcast_workload_received_messages_total")) > before + 300
    wait('count(rate(stormcast_peer_received_messages_total{peer="n0"}[10s]) > 100)', [3])
    assert scraper.values("sum(stormcast_workload_mismatches_total)") == [0]

    members.processes["n1"].kill()
    wait("sum(up)", [2])
    wait("stormcast_view_members", [2, 2])


def test_prometheus_scrapes_over_tls_whom_it_verifies(members: Members, tmp_path: Path) -> None:
    """As docs/kubernetes.md says; one target has a certificate of another issuer."""
    *ports, own = free_ports(3)
    files = Issuer().write(tmp_path / "tls")
    other = Issuer().write(tmp_path / "other")
    for name, port, its in zip(NAMES, ports, (files, other), strict=False):
        members.start(
            name,
            *("--control", f"127.0.0.1:{port}"),
            *("--control-token-file", str(token_file(tmp_path, TOKEN))),
            *("--control-certificate-file", str(its.certificate)),
            *("--control-private-key-file", str(its.key)),
        )
    believed = {"ca_file": str(files.ca), "server_name": NAME}
    targets = [f"127.0.0.1:{port}" for port in ports]
    scraper = Scraper(tmp_path, own, targets, scheme="https", tls_config=believed)
    members.processes["prometheus"] = scraper.process

    def seen() -> list[tuple[str, str]]:
        found = scraper.query("up")
        return sorted((one["metric"]["instance"], one["value"][1]) for one in found)

    wanted = sorted([(targets[0], "1"), (targets[1], "0")])
    until(lambda: seen() == wanted, 30.0, lambda: f"{seen()}\n{members.tails()}", poll=0.25)
    members_of_view = scraper.query("stormcast_view_members")
    assert [one["metric"]["instance"] for one in members_of_view] == [targets[0]]


@pytest.mark.parametrize("stack", ["udp", "tcp-nio2"])
def test_promtool_has_nothing_to_say_about_the_metrics(members: Members, stack: str) -> None:
    flags = ["--stack", stack]
    if stack != "udp":
        port, other = free_ports(2)
        flags += ["--initial-hosts", f"127.0.0.1[{port}],127.0.0.1[{other}]"]
        members.start("n0", *flags, "--port", str(port))
        members.start("n1", *flags, "--port", str(other))
    else:
        members.start("n0")
        members.start("n1")
    members.wait_for_view("n0", "n1")
    members.ask("n0", "POST", "/workload", {"do": "multicast", "count": 100, "rate": "1000/s"})
    members.wait(lambda: members.state("n1")["workload"]["received"] == 100, "all of it")
    members.ask("n0", "POST", "/probes", {"DISCARD": {"up": 0.01}})
    assert PROMTOOL is not None
    for name in ("n0", "n1"):
        text = ask(members.control(name), "GET", "/metrics")
        assert "# HELP stormcast_view_members " in text
        done = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
