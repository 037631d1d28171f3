"""How members and peers are started, and how their answers are read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import raw
from bench.driven import Driven, parse_status
from bench.errors import BenchError
from bench.idle import cpu_seconds, node_command
from bench.ours import Options, commands, member_words
from bench.payloads import LOAD, make_pool, request
from bench.peers import aeron, jars, jgroups
from bench.work import TRANSPORTS, Work
from stormcast.node.settings import load_settings

GROUP = Work(mode="multicast")
PAIR = Work(mode="unicast", members=2)


# -- Commands --------------------------------------------------------------------------------------


def test_jgroups_gets_a_member_per_name_on_loopback_only() -> None:
    started = jgroups.member_commands("jgroups", GROUP, "jar:classes")
    assert [argv[-3:] for argv in started] == [[f"n{n}", "3", "4"] for n in (1, 2, 3)]
    for argv in started:
        assert argv[argv.index("-cp") + 1 : argv.index("-cp") + 4] == [
            "jar:classes",
            "JGroupsPeer",
            "udp.xml",
        ]
        assert {"-Djgroups.bind_addr=127.0.0.1", "-Djgroups.udp.ip_ttl=0"} <= set(argv)


def test_stock_and_tuned_do_not_hear_each_other() -> None:
    one, other = (
        set(jgroups.member_commands(name, GROUP, "jar")[0]) for name in ("jgroups", "jgroups-tuned")
    )
    assert any(word.startswith("-Djgroups.udp.mcast_port=") for word in one - other)
    assert {"bench-jgroups"} <= one - other


def test_the_tuned_stack_is_a_file_of_ours_and_for_udp_only() -> None:
    path = Path(jgroups.config_of("jgroups-tuned", "udp"))
    assert "NAKACK4" in path.read_text()
    with pytest.raises(BenchError, match="use --peer jgroups"):
        jgroups.config_of("jgroups-tuned", "tcp")
    assert jgroups.config_of("jgroups", "tcp-nio2") == "tcp-nio.xml"


def test_aeron_takes_part_in_one_way_unicast_only(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="one-way unicast over udp"):
        aeron.commands("aeron", GROUP, tmp_path)
    default, large = (aeron.process_command(n, tmp_path, "jar") for n in ("aeron", "aeron-60k"))
    assert (default[-2], large[-2]) == ("1408", "61440")
    assert default[-3] != large[-3]


def test_raw_sockets_send_to_a_group_when_members_multicast() -> None:
    assert all("--group" in argv for argv in raw.commands(GROUP))
    assert not any("--group" in argv for argv in raw.commands(PAIR))
    with pytest.raises(BenchError, match="round trips"):
        raw.commands(Work(mode="roundtrip", transport="tcp"))


def test_a_chunk_holds_whole_messages_or_a_part_of_one() -> None:
    assert (len(raw.chunk_of(1000)), len(raw.chunk_of(7))) == (60_000, 59_997)
    assert len(raw.chunk_of(1_000_000)) == 60_000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_settings_of_our_members_are_accepted(transport: str, tmp_path: Path) -> None:
    words = member_words(Work(mode="multicast", transport=transport), Options(), tmp_path, 2)
    settings = load_settings(words["stack"], words["timing"], protocols=words["protocols"])
    assert settings.transport_config.bind_addr == "127.0.0.1"


def test_members_over_tcp_listen_where_the_others_look(tmp_path: Path) -> None:
    words = member_words(Work(mode="multicast", transport="tcp"), Options(), tmp_path, 2)
    assert words["protocols"]["TCP"]["bind_port"] == 17801
    assert words["protocols"]["STATIC"]["initial_hosts"] == (
        "127.0.0.1[17800],127.0.0.1[17801],127.0.0.1[17802]"
    )
    assert "--set" in node_command(Work(mode="multicast", transport="tcp"), 1, tmp_path)


def test_what_is_set_for_ours_goes_to_every_member(tmp_path: Path) -> None:
    options = Options(settings={"UDP": {"mcast_port": "7601"}, "NAKACK2": {"xmit_interval": "1s"}})
    for argv in commands(GROUP, options, tmp_path):
        assert '"mcast_port": "7601"' in argv[-1]
        assert '"bind_addr": "127.0.0.1"' in argv[-1]
        assert '"xmit_interval": "1s"' in argv[-1]


# -- Jars ------------------------------------------------------------------------------------------


def test_what_a_peer_lacks_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = {"java", "javac"}
    monkeypatch.setattr("shutil.which", lambda name: name if name in there else None)
    assert "no mvn to fetch org.jgroups:jgroups:" in (jars.missing(jgroups.ARTIFACT) or "")
    jar = tmp_path / "stormcast" / "peers" / jgroups.ARTIFACT.file
    jar.parent.mkdir(parents=True)
    jar.touch()
    assert jars.missing(jgroups.ARTIFACT) is None
    there.discard("javac")
    with pytest.raises(BenchError, match="no javac: install a JDK"):
        jars.class_path(jgroups.ARTIFACT, "JGroupsPeer.java")


# -- Payloads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 10, 100, 1000, 100_000])
def test_the_messages_of_a_pool_are_distinct_and_say_that_they_are_load(size: int) -> None:
    pool = make_pool(size, 0xABCD)
    assert len(set(pool)) == len(pool)
    assert {len(message) for message in pool} == {size}
    assert {message[0] for message in pool} == {LOAD}


def test_a_pool_of_large_messages_is_bounded_in_memory() -> None:
    assert len(make_pool(10, 1)) == 65_536
    assert len(make_pool(1000, 1)) == 1_048
    assert len(make_pool(1_000_000, 1)) == 64


def test_requests_are_numbered() -> None:
    assert request(100, 0x1FE)[1] == 0xFE
    assert len(request(100, 1)) == 100


# -- Answers ---------------------------------------------------------------------------------------


def driven(tmp_path: Path, script: str) -> Driven:
    return Driven("n1", [sys.executable, "-S", "-c", script], tmp_path / "log")


def test_an_answer_is_the_next_line_however_it_was_cut(tmp_path: Path) -> None:
    script = "import os\nos.write(1, b'{\"a\": 1}\\n{\"b\"')\ninput()\nos.write(1, b': 2}\\n')"
    process = driven(tmp_path, script)
    assert process.answer(10) == {"a": 1}
    assert process.ask("go", 10) == {"b": 2}
    process.end()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("print('hello')", "answered b'hello', which is not JSON"),
        ("print('[1]')", "not an object"),
        ("""print('{"error": "no member x"}')""", "n1: no member x"),
        ("raise SystemExit('out of luck')", "ended with exit code 1\n    out of luck"),
    ],
)
def test_a_bad_answer_says_whose_it_is(tmp_path: Path, script: str, complaint: str) -> None:
    process = driven(tmp_path, script)
    with pytest.raises(BenchError, match=complaint):
        process.answer(10)
    process.kill()


def test_silence_ends_after_the_time_that_was_given(tmp_path: Path) -> None:
    process = driven(tmp_path, "input()")
    with pytest.raises(BenchError, match="did not answer within 0 s"):
        process.answer(0.01)
    process.kill()
    process.kill()


def test_memory_and_threads_are_what_the_kernel_counts() -> None:
    text = "Name:\tjava\nVmRSS:\t  100000 kB\nThreads:\t27\n"
    assert parse_status(text) == {"rss_mb": 102.4, "threads": 27}


def test_processor_time_is_read_behind_whatever_the_name_is() -> None:
    fields = ["S", *("0" for _ in range(10)), "150", "50", *("0" for _ in range(8))]
    assert cpu_seconds(f"7 (a) b) {' '.join(fields)}") == pytest.approx(2.0, rel=0.01)
