"""What is installed, in an environment that has nothing else of ours: the command by itself, and
the plugin in a project whose own packages are called as our folders are."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from venv import EnvBuilder
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TAKEN = ("bench", "chaos", "node", "pipeline")
"""Names that other projects have, too."""
OWN_PACKAGES = """
import bench, chaos, node, pipeline

def test_they_are_the_projects_own():
    assert [one.WHOSE for one in (bench, chaos, node, pipeline)] == ["mine"] * 4
"""
UNDER_CHAOS = """
import pytest

@pytest.mark.parametrize("count", (10, 20, 30))
def test_it(cluster, chaos, count):
    group = cluster(members=2)
    with chaos.loss("20%") as loss:
        group.multicast(count=count, rate="100/s")
        group.wait_until_delivered()
    assert loss.bites
"""
OWN_FIXTURES = """
import pytest

@pytest.fixture
def cluster():
    return "mine"

@pytest.fixture
def chaos():
    return "mine, too"

@pytest.fixture
def storm(stormcast_chaos):
    return stormcast_chaos

def test_it(cluster, chaos, stormcast_cluster, storm):
    assert (cluster, chaos) == ("mine", "mine, too")
    group = stormcast_cluster(members=2)
    with storm.loss("20%"):
        group.unicast(count=50)
        group.wait_until_delivered()

def test_what_is_lost_fails_it(stormcast_cluster):
    group = stormcast_cluster(members=2, stack="unicast-museum", unicast="UNICAST2", max_batch=1,
                              historical={"repair_ends": False}, guarantees=["G1", "G3"])
    with stormcast_cluster.chaos.rule("drop", kind="DATA", seqno=5, source="n0"):
        group.unicast(source="n0", dest="n1", count=5)
        group.wait(3)
"""
ASYNC = """
import asyncio
import pytest

@pytest.mark.asyncio
async def test_it(cluster, chaos):
    group = cluster(members=2)
    with chaos.loss("20%"):
        group.multicast(count=20, rate="100/s")
        await asyncio.sleep(0)
        group.wait_until_delivered()
"""
A_MEMBER = """
import asyncio
from stormcast import Channel, ChannelConfig, View, __version__, load_settings

async def main():
    settings = load_settings("unicast-only", "fast", protocols={
        "UDP": {"bind_addr": "127.0.0.1", "ip_mcast": "never"}})
    async with Channel(ChannelConfig(settings=settings, name="a")) as one:
        print(one.state, View.__name__, __version__)

asyncio.run(main())
"""

SETTINGS = """\
[pytest]
pythonpath = .
filterwarnings = error
asyncio_default_fixture_loop_scope = function
"""


class Project:
    """Somebody's folder, and the environment that they work in."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self._python = python

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self._python, *words],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def stormcast(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "stormcast", *words)

    def pytest(self, *words: str) -> str:
        return self.run("-m", "pytest", "-p", "no:cacheprovider", *words).stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", folder)
    with (ROOT / "pyproject.toml").open() as lock:
        # Another process of these tests may build, too, and both would write into ROOT/build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([sys.executable, *words, ROOT], check=True, timeout=300)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel, and with what it depends on: from the one of these tests,
    without the tree that is installed there."""
    folder = tmp_path_factory.mktemp("environment")
    EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    # Of a folder that a file like this names, no further such files are read: which is how the tree
    # of these tests is installed.
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


@pytest.fixture
def project(python: Path, tmp_path: Path) -> Project:
    made = Project(tmp_path, python)
    made.write({f"{name}/__init__.py": 'WHOSE = "mine"\n' for name in TAKEN})
    made.write({"pytest.ini": SETTINGS})
    return made


def test_nothing_but_stormcast_is_installed(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"stormcast"}
    wanted = {
        f"stormcast/{path.relative_to(ROOT)}"
        for room in ("node", "chaos", "pipeline")
        for path in (ROOT / room).rglob("*")
        if path.suffix in {".py", ".yaml", ".css", ".js"}
    }
    assert wanted <= set(names)
    assert "stormcast/py.typed" in names


def test_an_index_would_show_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    head, _, body = text.partition("\n\n")
    assert body.startswith("# Stormcast")
    for key in ("Requires-Python: >=3.11", "Classifier: Framework :: Pytest", "Keywords: "):
        assert key in head


def test_the_command_works_by_itself(project: Project) -> None:
    ran = project.stormcast("run", "order-under-loss")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("order-under-loss: holds")
    assert "order-under-loss" in project.stormcast("scenarios").stdout
    assert project.stormcast("init", "mine.yaml").returncode == 0
    assert project.stormcast("run", "mine.yaml").stdout.startswith("mine: holds")


def test_bench_says_where_it_is(project: Project) -> None:
    """The project's own `bench` is not taken for ours."""
    said = project.stormcast("bench", "core")
    assert (said.returncode, said.stdout) == (3, "")
    assert said.stderr == "stormcast: bench is not installed: run it in the repository\n"


def test_a_program_needs_one_import(project: Project) -> None:
    project.write({"member.py": A_MEMBER})
    said = project.run("-W", "error", "member.py")
    assert said.stderr == ""
    assert said.stdout.startswith("connected View ")


def test_the_projects_own_packages_are_its_own(project: Project) -> None:
    project.write({"test_own.py": OWN_PACKAGES, "test_chaos.py": UNDER_CHAOS})
    assert "4 passed" in project.pytest()


def test_it_works_on_two_workers(project: Project) -> None:
    project.write({"test_own.py": OWN_PACKAGES, "test_chaos.py": UNDER_CHAOS})
    assert "4 passed" in project.pytest("-n", "2")


def test_fixtures_have_other_names_where_these_are_taken(project: Project) -> None:
    """And a test that calls them otherwise is judged all the same."""
    project.write({"test_own.py": OWN_FIXTURES})
    said = project.pytest()
    assert "1 failed, 1 passed" in said
    assert "G1 violated: seqno 5 was sent and never delivered" in said


def test_it_works_beside_asyncio_tests(project: Project) -> None:
    project.write({"test_async.py": ASYNC})
    assert "1 passed" in project.pytest()
