"""Guests of images, on the docker of this machine. The image is one that nobody here made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.daemon import Daemon, open_daemon
from stormcast.chaos.backends.docker.images import CHAOS_IMAGE
from stormcast.chaos.backends.docker.leftovers import RUN
from stormcast.chaos.backends.leftovers import clean
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.plugin.guests import GuestMaker
from stormcast.chaos.plugin.live_cluster import Chaos
from tests.helpers import containers
from tests.helpers.leaving_nothing import nothing_is_left

_daemon_answers = pytest.fixture(scope="module", autouse=True)(containers.answering)
pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]
_nothing_is_left = pytest.fixture(scope="module", autouse=True)(nothing_is_left)

IMAGE = "python:3.11-slim-bookworm"
"""What the project's own images are made from: where these are, it is."""
READS = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=2).read().decode())"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with closing(open_daemon()) as found:
        if not found.has_image(IMAGE):
            pytest.skip(f"docker has no image {IMAGE}")
        yield found


def run(file: Path, out: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "stormcast", "run", str(file), "--out", str(out)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | more,
    )


def written(folder: Path, timeline: str, /, within: str = "60s", **web: Any) -> Path:
    """A scenario whose guests are a web server, and one that looks at it all the time."""
    (folder / "site").mkdir()
    (folder / "site" / "page").write_text("what the scenario's folder has")
    server = {
        "image": IMAGE,
        "command": "sh -c 'cd \"$SITE\" && exec python -m http.server --bind {address} 8000'",
        "environment": {"SITE": "/site", "OTHER": "{looker}"},
        "mounts": {"site": "/site"},
        "ready": {"tcp": 8000, "within": "60s"},
        # What is process 1 hears of no signal that it does not ask for.
        "stop": "SIGKILL",
        **web,
    }
    looks = (
        "import time, urllib.request as u\nwhile True:\n try: u.urlopen('http://{web}:8000/page', "
        "timeout=1).read()\n except OSError: pass\n time.sleep(0.05)"
    )
    looker = {"image": IMAGE, "command": f'python -c "{looks}"', "stop": "SIGKILL"}
    scenario = {"web": server, "looker": looker}
    file = folder / "scenario.yaml"
    file.write_text(
        f"name: mine\nguests: {json.dumps(scenario)}\ntimeline:\n{timeline}"
        f"expect: {{ready_within: {within}}}\nlimits: {{run: 100s}}\n"
    )
    return file


STEPS = """\
  - {at: 500ms, do: partition, groups: [[web], [looker]], for: 2s, name: parted}
  - {at: 3s, do: pause, member: web, for: 1s, name: paused}
  - {at: 5s, do: crash, member: web, for: 1s, name: killed}
  - {at: 7s, do: restart, member: looker, name: anew}
"""


@pytest.mark.usefixtures("daemon")
def test_faults_strike_containers_as_they_strike_commands(tmp_path: Path) -> None:
    # Asked in the container: only there is what it mounts.
    ready = {"command": 'test "$(cat /site/page)" && test "$OTHER"', "within": "60s"}
    said = run(written(tmp_path, STEPS, ready=ready), tmp_path / "run")
    assert said.returncode == 0, said.stdout + said.stderr
    faults = json.loads((tmp_path / "run/verdict.json").read_text())["faults"]
    assert faults.pop("parted") > 0
    assert faults == {"paused": 1, "killed": 1, "anew": 1}
    assert "GET /page" in (tmp_path / "run/logs/web/web.log").read_text()


@pytest.mark.usefixtures("daemon")
def test_a_container_that_dies_by_itself_is_a_doubt_with_its_code_and_last_words(
    tmp_path: Path,
) -> None:
    dies = "python -c \"import time; time.sleep(3); raise SystemExit('no more room')\""
    steps = "".join(
        f"  - {{at: {at}, do: pause, member: looker, for: 1s}}\n" for at in ("1s", "9s")
    )
    ready = {"command": "true", "within": "60s"}
    file = written(tmp_path, steps, "3s", command=dies, ready=ready)
    said = run(file, tmp_path / "run")
    assert said.returncode == 3, said.stdout + said.stderr
    assert "web ended by itself with 1; its last line: no more room" in said.stdout


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("web", "more", "why"),
    [
        ({"image": "nobody/made:this"}, {}, "docker has no image nobody/made:this: docker pull"),
        ({"command": "no-such-program"}, {}, "no-such-program"),
        ({"mounts": {"sites": "/site"}}, {}, "mounts: there is no "),
        ({}, {CHAOS_IMAGE: "chaos:none"}, "docker has no image chaos:none, which holds"),
        ({}, {"DOCKER_HOST": "tcp://198.18.0.9:2375"}, "start dockerd here, and unset DOCKER_HOST"),
    ],
)
def test_what_cannot_start_is_one_line_and_leaves_nothing(
    tmp_path: Path, web: dict[str, Any], more: dict[str, str], why: str
) -> None:
    said = run(written(tmp_path, STEPS, **web), tmp_path / "run", **more)
    assert said.returncode == 3
    assert why in said.stderr.splitlines()[-1]
    assert not (tmp_path / "run" / "verdict.json").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_containers_end_with_the_rig(tmp_path: Path, daemon: Daemon, how: signal.Signals) -> None:
    steps = "  - {at: 90s, do: pause, member: web, for: 1s}\n"
    rig = subprocess.Popen(
        (sys.executable, "-m", "stormcast", "run", str(written(tmp_path, steps)),
         "--out", str(tmp_path / "run")),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def running() -> list[str]:
        """The containers of the rig that run."""
        found = []
        for one in daemon.containers(RUN):
            run = RunId.parse(one["Labels"][RUN])
            if run is not None and run.pid == rig.pid and one["State"] == "running":
                found.append(one["Id"])
        return found

    try:
        wait_for(lambda: len(running()) == 4)
    finally:
        rig.send_signal(how)
        rig.wait()
    wait_for(lambda: not running())
    if how is signal.SIGINT:
        assert rig.returncode == 128 + signal.SIGINT
    else:
        clean("docker")
    assert not [one for one in daemon.containers(RUN) if f"-{rig.pid}-" in one["Names"][0]]


def wait_for(is_so: object) -> None:
    assert callable(is_so)
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.usefixtures("daemon")
def test_a_test_starts_one_and_reaches_it_but_for_a_partition(
    guest: GuestMaker, chaos: Chaos
) -> None:
    server = guest(
        "python -m http.server --bind {address} 8000",
        image=IMAGE,
        ready={"tcp": 8000, "within": "60s"},
    )
    app = guest()
    url = f"http://{server.address}:8000/etc/hostname"
    assert app.run("python3", "-c", READS, url).strip()
    with chaos.partition([server], [app]) as parted:
        with pytest.raises(AssertionError):
            app.run("python3", "-c", READS, url)
        assert parted.bites > 0
    with chaos.kill(server):
        assert not server.is_alive
    assert "GET /etc/hostname" in server.log()
    with pytest.raises(BackendError, match="docker has no image nobody/made:this"):
        guest(image="nobody/made:this")
