"""A machine that has run out of something, or lacks what others have: a command says in one line
what is the matter, with the exit code that it means, or it goes on as if nothing were."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns import Network, Process, RunId, run_command
from stormcast.chaos.backends.netns.leftovers import clean
from stormcast.chaos.backends.netns.process import environment, until
from stormcast.cli import COMMANDS
from stormcast.exits import Exit
from tests.helpers.processes import Members
from tests.helpers.sessions import session_of
from tests.kills import blocks, counting

pytestmark = pytest.mark.slow

SECONDS = 180.0
"""For what takes some seconds on a machine that has nothing else to do."""
SMALL = """
name: small
about: Zwei Mitglieder, ganz ohne Mühe.
guarantees: [G1]
cluster: {members: 2, stack: unicast-only, timing: fast}
workload:
- {do: unicast, from: n0, to: n1, count: 200, rate: 200/s, size: 100B}
limits: {run: 5s}
"""
LIVE = """
name: live
guarantees: [G1, G2, G3, G4]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 80, rate: 40/s, size: 64B}
timeline:
  - {at: 300ms, do: cut, from: n0, to: n1, for: 700ms}
limits: {run: 30s, settle: 1s}
"""
NO_ROOM = "no space left on device; make room on that disk, and do it again"
NO_MEMORY = "cannot allocate memory; give it more, and do it again"
READ_ONLY = "read-only file system"


def stormcast(
    folder: Path, *words: str, within: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command, without a terminal."""
    return subprocess.run(
        [*within, sys.executable, "-m", "stormcast", *words],
        cwd=folder,
        env=environment({}) if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def line_of(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line that a command says that ends with a code."""
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    (line,) = done.stderr.splitlines()
    assert line.startswith(("stormcast", "unsupported: ")), line
    return line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the two scenarios."""
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "live.yaml").write_text(LIVE)
    return tmp_path


@pytest.fixture
def kept(folder: Path) -> Path:
    """And a run directory, `kept`."""
    assert stormcast(folder, "run", "small.yaml", "--out", "kept").returncode == Exit.HOLDS
    return folder


# -- Descriptors -----------------------------------------------------------------------------------


def test_what_runs_by_itself_needs_few_descriptors(kept: Path) -> None:
    within = ("prlimit", "--nofile=16")
    for words in (
        ("run", "small.yaml", "--out", "run"),
        ("replay", "run"),
        ("trace", "stats", "run"),
        ("report", "run"),
    ):
        done = stormcast(kept, *words, within=within)
        assert (done.returncode, done.stderr) == (Exit.HOLDS, ""), words


@pytest.mark.root
def test_a_rig_with_few_descriptors_says_how_many_it_takes(folder: Path) -> None:
    """Its agent and its members have the same limit."""
    done = stormcast(
        folder, "run", "live.yaml", "--backend", "netns", "--out", "run",
        within=("prlimit", "--nofile=24"),
    )  # fmt: skip  # one command
    assert "raise the limit (ulimit -n 128, or more)" in line_of(done, Exit.UNKNOWN)
    assert not (folder / "run").exists()


@pytest.mark.root
def test_a_rig_goes_on_with_as_many_descriptors_as_it_asks_for(folder: Path) -> None:
    words = ("run", "live.yaml", "--backend", "netns", "--out", "run")
    done = stormcast(folder, *words, within=("prlimit", "--nofile=128"))
    assert done.returncode in (Exit.HOLDS, Exit.UNKNOWN), done.stderr
    assert "Traceback" not in done.stderr
    assert counting.wrong_verdicts(folder / "run", done.returncode) == []


def test_a_search_that_cannot_have_its_processes_leaves_none(folder: Path) -> None:
    """Each of them takes some descriptors of the one that starts them."""
    command = ("prlimit", "--nofile=12", sys.executable, "-m", "stormcast", "search")
    words = (*command, "--seeds", "4", "--workers", "2", "--out", "found")
    with subprocess.Popen(
        words,
        cwd=folder, env=environment({}), stdin=subprocess.DEVNULL, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip  # one command
        out, err = process.communicate(timeout=SECONDS)
    line = line_of(subprocess.CompletedProcess((), process.returncode, out, err), Exit.UNKNOWN)
    assert line == "stormcast: too many open files; raise the limit (ulimit -n), and do it again"
    assert session_of(process.pid) == []


# -- Memory ----------------------------------------------------------------------------------------

_LIMITED = """
import resource, sys
from pathlib import Path
import stormcast.chaos.commands.run
from stormcast.cli import main

pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[2:]))
"""
"""The command with so many MiB more than it has when all is imported."""


def limited(folder: Path, room: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-c", _LIMITED, str(room), *words),
        cwd=folder,
        env=environment({}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_run_for_which_there_is_no_memory_has_no_verdict(folder: Path) -> None:
    text = SMALL.replace("count: 200, rate: 200/s, size: 100B", "count: 3, rate: 1/s, size: 16MiB")
    (folder / "large.yaml").write_text(text)
    done = limited(folder, 16, "run", "large.yaml", "--out", "run")
    assert NO_MEMORY in line_of(done, Exit.UNKNOWN)
    assert not (folder / "run" / "verdict.json").exists()


@pytest.mark.root
def test_a_rig_whose_agent_has_no_memory_says_so(folder: Path) -> None:
    """It takes more than the rig, whose limit it has. What could not be removed for the same
    reason is removed by `clean`."""
    done = limited(folder, 12, "run", "live.yaml", "--backend", "netns", "--out", "run")
    assert "cannot allocate memory" in line_of(done, Exit.UNKNOWN)
    assert not (folder / "run").exists()
    assert clean() is not None


def test_a_load_for_which_there_is_no_memory_says_so_and_the_member_goes_on(
    tmp_path: Path,
) -> None:
    with Members(tmp_path, "--stack", "tcp-nio2") as members:
        members.form("n0")
        process = members.processes["n0"]
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (8 << 20)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
        load = {"do": "multicast", "count": 20, "closed": True, "size": "16MiB"}
        members.ask("n0", "POST", "/workload", load)

        def told() -> str:
            return str(members.ask("n0", "GET", "/workload")["loads"][0]["error"])

        members.wait(told, "the load is over", SECONDS)
        assert told() == f"a message of {16 << 20} bytes: {NO_MEMORY}"
        assert process.stop() == 0
        assert "Traceback" not in process.tail(1000)


# -- Disks -----------------------------------------------------------------------------------------

_ON_DISK = """
mount -t tmpfs -o size=4m stormcast-test disk
[ ! -d kept ] || cp -r kept disk/
head -c 8m /dev/zero > disk/ballast 2> /dev/null
truncate -s "-$LEFT" disk/ballast
[ "$READS" = yes ] && rm disk/ballast && mount -o remount,ro disk
"$@"
code=$?
find disk -mindepth 2 ! -path 'disk/kept*' > there
exit $code
"""


def on_disk(folder: Path, left: str, *words: str, reads: bool = False) -> list[str]:
    """The words that run something in a mount namespace of its own, where `disk` has so many bytes
    left, or can only be read. Afterwards the file `there` says what is on it."""
    (folder / "disk").mkdir(exist_ok=True)
    within = ["unshare", "--mount", "--propagation", "private"]
    told = ["env", f"LEFT={left}", f"READS={'yes' if reads else 'no'}"]
    return [*within, *told, "sh", "-c", _ON_DISK, "sh", *words]


def there(folder: Path) -> list[str]:
    return (folder / "there").read_text().split()


@pytest.mark.root
@pytest.mark.parametrize("left", ["0", "8K", "16K"])
def test_a_run_on_a_full_disk_says_so_and_leaves_no_half_of_anything(
    folder: Path, left: str
) -> None:
    done = stormcast(folder, "run", "small.yaml", "--out", "disk/run", within=on_disk(folder, left))
    assert NO_ROOM in line_of(done, Exit.UNKNOWN)
    assert "disk/run" in done.stderr
    left_over = [Path(path).name for path in there(folder)]
    assert not set(left_over) & {"verdict.json", "trace", ".trace.part", ".verdict.json.part"}
    if left == "0":
        assert left_over == []


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [
        ("report", "disk/kept"),
        ("trace", "export", "disk/kept", "disk/out"),
        ("init", "disk/mine.yaml"),
        ("search", "--seeds", "1", "--workers", "1", "--out", "disk/found"),
    ],
    ids=lambda words: words[0],
)
def test_results_for_which_there_is_no_room(kept: Path, words: tuple[str, ...]) -> None:
    line = line_of(stormcast(kept, *words, within=on_disk(kept, "0")), Exit.UNKNOWN)
    assert "no space left on device" in line.lower()
    assert "Errno 28" not in line


@pytest.mark.root
@pytest.mark.parametrize("backend", ["sim", "netns"])
def test_a_run_directory_that_can_only_be_read_is_refused(folder: Path, backend: str) -> None:
    words = ("run", "live.yaml", "--backend", backend, "--out", "disk/run")
    line = line_of(stormcast(folder, *words, within=on_disk(folder, "0", reads=True)), Exit.USAGE)
    assert line == f"stormcast: disk/run: {READ_ONLY}; name another, or mend it"
    assert there(folder) == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("node", "--journal", "disk/j"), Exit.USAGE),
        (("node", "--control", "unix:disk/c.sock"), Exit.USAGE),
        (("keep", "--listen", "unix:k.sock", "--folder", "disk/k"), Exit.USAGE),
        (("report", "disk/kept"), Exit.USAGE),
        (("verify", "disk/kept"), Exit.UNKNOWN),
        (("trace", "export", "disk/kept", "disk/out"), Exit.UNKNOWN),
        (("search", "--seeds", "1", "--out", "disk/found"), Exit.USAGE),
        (("shrink", "disk/kept"), None),
    ],
    ids=lambda one: "-".join(one[:2]) if isinstance(one, tuple) else "",
)
def test_what_can_only_be_read_is_said_to_be(
    kept: Path, words: tuple[str, ...], code: int | None
) -> None:
    more = ("--name", "a", "--bind-addr", "127.0.0.1") if words[0] == "node" else ()
    done = stormcast(kept, *words, *more, within=on_disk(kept, "0", reads=True))
    if code is None:
        # Nothing is to be shrunk of a run that holds, so nothing is to be written.
        assert "Traceback" not in done.stderr
        return
    line = done.stderr.splitlines()[-1]
    assert done.returncode == code, done.stderr
    assert READ_ONLY in line.lower()
    assert "Errno" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("words", [("trace", "stats"), ("replay",)], ids=["trace", "replay"])
def test_what_is_only_read_can_be_where_nothing_can_be_written(
    kept: Path, words: tuple[str, ...]
) -> None:
    done = stormcast(kept, *words, "disk/kept", within=on_disk(kept, "0", reads=True))
    assert (done.returncode, done.stderr) == (Exit.HOLDS, "")


_FILLS = """
mount -t tmpfs -o size=24m stormcast-test disk
"$@" &
rig=$!
# Until all three have begun to write.
for _ in $(seq 6000); do
    written=$(grep -l STRC disk/run/logs/*/journal/*/*.trace 2> /dev/null | wc -l)
    [ "$written" = 3 ] && break
    sleep 0.01
done
head -c 64m /dev/zero > disk/ballast 2> /dev/null
wait $rig
code=$?
cp -r disk/run kept
exit $code
"""


@pytest.mark.root
def test_a_disk_that_is_full_in_the_middle_of_a_run_leaves_the_journals(folder: Path) -> None:
    """There is no room for traces, and so none for a verdict. What members wrote before stays, and
    is sound."""
    (folder / "disk").mkdir()
    within = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _FILLS, "sh")
    words = ("run", "live.yaml", "--backend", "netns", "--out", "disk/run")
    line = line_of(stormcast(folder, *words, within=within), Exit.UNKNOWN)
    assert "no space left on device" in line
    run = folder / "kept"
    assert not {path.name for path in run.iterdir()} & {"trace", ".trace.part", "verdict.json"}
    journals = blocks.kept(run)
    assert {label.partition("-")[0] for label in journals} == {"n0", "n1", "n2"}
    assert all(blocks.raw_blocks(data) for data in journals.values())
    assert blocks.unknown_to_their_makers(journals) == []


# -- What others have ------------------------------------------------------------------------------


@pytest.fixture
def only_ipv6() -> Iterator[Network]:
    """The network of two members without any IPv4 address."""
    network = Network(RunId.next(), ("a", "b"))
    with ExitStack() as undo:
        undo.callback(network.remove)
        network.make()
        for name in network.names:
            space = network.run.namespace(name)
            run_command(("ip", "-n", space, "-4", "addr", "flush", "dev", "eth0"))
            run_command(("ip", "-n", space, "-4", "addr", "flush", "dev", "lo"))
        yield network


@pytest.mark.root
@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp", "tcp-nio2"])
def test_members_form_a_group_where_there_is_only_ipv6(
    tmp_path: Path, only_ipv6: Network, stack: str
) -> None:
    hosts = ",".join(f"{only_ipv6.address(name, ipv6=True)}[7800]" for name in ("a", "b"))
    listed = ("--initial-hosts", hosts) if stack.startswith("tcp") else ()
    words = ("--stack", stack, "--cluster", tmp_path.name, "--port", "7800", *listed)
    with ExitStack() as undo:
        running = {}
        for name in ("a", "b"):
            argv = (sys.executable, "-m", "stormcast", "node", "--name", name, *words)
            mine = ("--bind-addr", only_ipv6.address(name, ipv6=True))
            process = Process(
                only_ipv6.inside(name, (*argv, *mine)), tmp_path, name, environment({})
            )
            undo.callback(process.kill)
            running[name] = process
        until(
            lambda: all(" of 2: " in process.tail() for process in running.values()),
            SECONDS,
            lambda: "\n".join(process.tail() for process in running.values()),
            0.05,
        )
        assert [process.stop() for process in running.values()] == [0, 0]


@pytest.mark.root
def test_a_member_whose_group_no_route_leads_to_does_not_start(
    tmp_path: Path, only_ipv6: Network
) -> None:
    """A loopback interface has none of IPv6: members would be alone, and wonder."""
    run_command(("ip", "-n", only_ipv6.run.namespace("a"), "link", "del", "eth0"))
    words = ("node", "--name", "a", "--bind-addr", "::1", "--run-for", "100ms")
    done = stormcast(tmp_path, *words, within=only_ipv6.inside("a", ()))
    assert done.returncode == Exit.USAGE
    (line,) = (line for line in done.stderr.splitlines() if "multicast" in line)
    assert "on lo: network is unreachable" in line
    assert "add a route (ip -6 route add ff00::/8 dev lo table local)" in line
    way = ("route", "add", "ff00::/8", "dev", "lo", "table", "local")
    only_ipv6.execute("a", ("ip", "-6", *way))
    done = stormcast(tmp_path, *words, within=only_ipv6.inside("a", ()))
    assert done.returncode == Exit.HOLDS


@pytest.mark.root
def test_a_rig_runs_where_there_is_only_ipv6(folder: Path, only_ipv6: Network) -> None:
    done = stormcast(
        folder,
        "run",
        "live.yaml",
        "--backend",
        "netns",
        "--out",
        "run",
        within=only_ipv6.inside("a", ()),
    )
    assert done.returncode in (Exit.HOLDS, Exit.UNKNOWN), done.stderr
    assert "Traceback" not in done.stderr
    assert counting.wrong_verdicts(folder / "run", done.returncode) == []


@pytest.mark.root
def test_an_ipv4_address_where_there_is_none_is_refused(tmp_path: Path, only_ipv6: Network) -> None:
    words = ("node", "--name", "a", "--bind-addr", "127.0.0.1")
    line = line_of(stormcast(tmp_path, *words, within=only_ipv6.inside("a", ())), Exit.USAGE)
    assert "no interface of this host fits; there is " in line


def bare() -> dict[str, str]:
    """No HOME and nothing else that a login sets; ASCII is all that streams can take."""
    told = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    tree = environment({})["PYTHONPATH"]
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    return {**told, "PYTHONPATH": tree, **ascii_only}


def test_commands_go_on_without_home_terminal_and_locale(folder: Path) -> None:
    """In a session of its own, so that there is no terminal to be found either."""
    within = ("setsid", "--wait")
    for words in (
        ("run", "small.yaml", "--out", "Mühe"),
        ("replay", "Mühe"),
        ("trace", "cat", "Mühe"),
        ("report", "Mühe"),
        ("plan", "small.yaml"),
        ("scenarios",),
        ("node", "--print-config"),
    ):
        done = stormcast(folder, *words, within=within, env=bare())
        assert (done.returncode, done.stderr) == (Exit.HOLDS, ""), words
        assert done.stdout, words
    assert (folder / "Mühe" / "report.html").exists()


def test_every_command_can_tell_of_itself_in_ascii(tmp_path: Path) -> None:
    script = f"""
import sys
from stormcast.cli import main
for name in {sorted(COMMANDS)!r}:
    try:
        code = main([name, "--help"])
    except SystemExit as end:
        code = end.code or 0
    if code:
        print(name, code, file=sys.stderr)
"""
    done = subprocess.run(
        (sys.executable, "-c", script),
        cwd=tmp_path, env=bare(), capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip  # one command
    assert done.stderr.decode(errors="replace") == ""
    assert max(done.stdout) < 128


@pytest.mark.root
def test_a_rig_runs_without_home_terminal_and_locale(folder: Path) -> None:
    words = ("run", "live.yaml", "--backend", "netns", "--out", "run")
    done = stormcast(folder, *words, within=("setsid", "--wait"), env=bare())
    assert done.returncode in (Exit.HOLDS, Exit.UNKNOWN), done.stderr
    assert "Traceback" not in done.stderr
    assert counting.wrong_verdicts(folder / "run", done.returncode) == []


def test_a_name_that_is_not_of_the_locale_is_refused_in_one_line(tmp_path: Path) -> None:
    line = line_of(stormcast(tmp_path, "run", "Mühe.yaml", env=bare()), Exit.USAGE)
    assert line.endswith(".yaml: no such file or directory; name another, or mend it")
    assert line.isascii()
