"""What a member is told: the later source wins, origins are said, nonsense is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stormcast.node.control.settings import TlsSettings, read_control
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.member.loads import read_load
from stormcast.node.member.settings import Effective, MemberSettings, load_member

TOKEN = "0123456789abcdef-secret"  # noqa: S105 of a test


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(flags: dict[str, Any] | None = None, file: str = "", **environ: str) -> Effective:
    """What flags, a file and variables (without STORMCAST_) come to."""
    words: dict[str, Any] = dict(flags or {})
    if file:
        Path("x.yaml").write_text(file)
        words["--config"] = "x.yaml"
    return load_member(words, {f"STORMCAST_{key}": value for key, value in environ.items()})


def origins(effective: Effective) -> dict[str, str]:
    found: dict[str, str] = json.loads(effective.as_json())["origins"]
    return found


def refused(*args: Any, **rest: str) -> str:
    with pytest.raises(NodeError) as caught:
        told(*args, **rest)
    text = str(caught.value)
    assert "\n" not in text
    return text


# -- Who says so -----------------------------------------------------------------------------------


def test_without_a_word_it_is_a_member_on_udp() -> None:
    settings_ = told().settings
    assert (settings_.stack.name, settings_.stack.timing.name) == ("udp", "fast")
    assert (settings_.cluster, settings_.name) == ("stormcast", "")
    assert (settings_.journal, settings_.control, settings_.workload) == (None, None, ())
    assert set(origins(told()).values()) == {"default", "stack udp", "timing fast"}


def test_test_protocols_are_read_as_they_are_put_in_later() -> None:
    found = told(file="test_protocols: {DROP: {match: {kind: DATA}, above: UDP}}\n")
    assert found.settings.test_protocols == {"DROP": {"match": {"kind": "DATA"}, "above": "UDP"}}
    assert told(file=found.as_yaml()).settings.test_protocols == found.settings.test_protocols
    assert told().settings.test_protocols == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("test_protocols: 5", "test_protocols is 5: write a mapping"),
        ("test_protocols: {DROP: 5}", "test_protocols.DROP is 5: write a mapping"),
        ("test_protocols: {FLIP: {}}", "unknown test protocol FLIP"),
        ("test_protocols: {DISCARD: {upp: 0.1}}", "DISCARD: unknown setting upp"),
    ],
)
def test_a_test_protocol_that_cannot_be_is_refused_with_its_place(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        told(file=f"{given}\n")
    assert error.value.place is not None


def test_the_later_source_wins() -> None:
    everywhere: dict[str, Any] = {"file": "name: a\n", "NAME": "b"}
    assert told({"--name": "c"}, **everywhere).settings.name == "c"
    assert told(**everywhere).settings.name == "b"
    assert told(file="name: a\n").settings.name == "a"


def test_each_value_says_where_it_is_from() -> None:
    found = told(
        {"--name": "c", "--set": ["FD_ALL3.timeout=3s"]},
        "cluster: demo\nprotocols: {GMS: {join_timeout: 1s}, UDP: {ip_ttl: 1}}\n",
        RUN_FOR="5s",
        SET_UDP__BIND_ADDR="127.0.0.1",
    )
    where = origins(found)
    assert {
        key: where[key]
        for key in (
            "name",
            "cluster",
            "run_for",
            "leave_timeout",
            "protocols.FD_ALL3.timeout",
            "protocols.FD_ALL3.interval",
            "protocols.UNICAST3.sync",
            "protocols.GMS.join_timeout",
            "protocols.UDP.bind_addr",
            "protocols.UDP.ip_ttl",
            "protocols.UDP.bind_port",
        )
    } == {
        "name": "flag --name",
        "cluster": "file x.yaml",
        "run_for": "environment STORMCAST_RUN_FOR",
        "leave_timeout": "default",
        "protocols.FD_ALL3.timeout": "flag --set",
        "protocols.FD_ALL3.interval": "timing fast",
        "protocols.UNICAST3.sync": "stack udp",
        "protocols.GMS.join_timeout": "file x.yaml",
        "protocols.UDP.bind_addr": "environment STORMCAST_SET_UDP__BIND_ADDR",
        "protocols.UDP.ip_ttl": "file x.yaml",
        "protocols.UDP.bind_port": "default",
    }
    assert found.settings.stack.of("FD_ALL3").timeout == 3.0


def test_of_one_setting_the_later_source_wins_too() -> None:
    file = "protocols: {UDP: {bind_addr: 1.1.1.1}}\n"
    flags = {"--set": ["UDP.bind_addr=3.3.3.3"]}
    for effective, expected in (
        (told(flags, file, SET_UDP__BIND_ADDR="2.2.2.2"), "3.3.3.3"),
        (told({"--bind-addr": "4.4.4.4"}, file, SET_UDP__BIND_ADDR="2.2.2.2"), "4.4.4.4"),
        (told(flags, file, BIND_ADDR="2.2.2.2"), "3.3.3.3"),
        (told({}, file, SET_UDP__BIND_ADDR="2.2.2.2"), "2.2.2.2"),
        (told({}, file, BIND_ADDR="5.5.5.5"), "5.5.5.5"),
        (told({}, file), "1.1.1.1"),
    ):
        assert effective.settings.stack.of("UDP").bind_addr == expected


@pytest.mark.parametrize("stack", ["udp", "tcp", "tcp-nio2"])
def test_address_and_port_are_for_whichever_transport_there_is(stack: str) -> None:
    flags = {"--stack": stack, "--bind-addr": "127.0.0.1", "--port": "7801"}
    config = told(flags).settings.stack.transport_config
    assert (config.bind_addr, config.bind_port) == ("127.0.0.1", 7801)


def test_initial_hosts_are_for_a_stack_that_is_told() -> None:
    hosts = "10.0.0.1[7800],10.0.0.2[7800]"
    config = told({"--stack": "tcp", "--initial-hosts": hosts}).settings.stack.of("STATIC")
    assert config.initial_hosts == hosts
    assert "use a stack with STATIC" in refused({"--initial-hosts": hosts})


def test_members_may_be_found_in_another_way_than_the_stacks() -> None:
    hosts = {"--initial-hosts": "10.0.0.1[7800]"}
    stack = told({"--discovery": "STATIC", **hosts}).settings.stack
    assert [name for name, _config in stack.layers][-2:] == ["STATIC", "UDP"]
    assert stack.of("STATIC").initial_hosts == "10.0.0.1[7800]"
    assert stack.of("PING") is None
    file = "discovery: DNS_PING\nstack: tcp\nprotocols: {DNS_PING: {dns_query: a.b, port: 7800}}\n"
    found = told(file=file)
    assert found.settings.stack.of("DNS_PING").dns_query == "a.b"
    assert origins(found)["protocols.DNS_PING.dns_query"] == "file x.yaml"
    assert told({"--discovery": "PING"}).settings.stack == told().settings.stack


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ({"--discovery": "STATIK"}, "there is no such choice; did you mean STATIC?"),
        ({"--discovery": "STATIC", "--stack": "unicast-only"}, "use a stack with GMS"),
        ({"--discovery": "PING", "--stack": "tcp"}, "use STATIC or DNS_PING"),
        ({"--discovery": "DNS_PING"}, "dns_query is empty"),
        ({"--discovery": "STATIC", "--set": ["PING.repeat_interval=1s"]}, "no protocol PING"),
    ],
)
def test_another_way_to_find_members_must_fit(flags: dict[str, Any], remedy: str) -> None:
    assert remedy in refused(flags)


def test_text_becomes_what_a_setting_is() -> None:
    stack = told(
        {
            "--stack": "tcp",
            "--set": [
                "TCP.bind_port=7800",
                "TCP.tcp_nodelay=false",
                "TCP.send_buffer=1MiB",
                "TCP.linger=-1",
                "MFC.min_threshold=0.4",
                "FD_ALL3.timeout=2500ms",
                "STATIC.initial_hosts=a[1],b[2]",
            ],
        }
    ).settings.stack
    tcp = stack.of("TCP")
    assert (tcp.bind_port, tcp.tcp_nodelay, tcp.send_buffer, tcp.linger) == (7800, False, 2**20, -1)
    assert (stack.of("MFC").min_threshold, stack.of("FD_ALL3").timeout) == (0.4, 2.5)
    assert stack.of("STATIC").initial_hosts == "a[1],b[2]"


def test_a_generation_of_unicast_says_what_set_it() -> None:
    found = told({"--unicast": "UNICAST3-SYNC", "--stack": "tcp"})
    assert found.settings.stack.unicast_config.sync == "spaced"  # type: ignore[attr-defined]
    assert origins(found)["protocols.UNICAST3.sync"] == "flag --unicast"


def test_a_museum_stack_takes_historical_flaws() -> None:
    found = told(file="stack: group-museum\nhistorical: {conn_ids: none}\n")
    assert found.settings.stack.unicast_config.historical.conn_ids == "none"
    assert origins(found)["historical.conn_ids"] == "file x.yaml"
    assert "museum" in refused(file="historical: {conn_ids: none}\n")


# -- Print and take again --------------------------------------------------------------------------


def again(effective: Effective) -> MemberSettings:
    Path("again.yaml").write_text(effective.as_yaml())
    return load_member({"--config": "again.yaml"}, {}).settings


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"--stack": "tcp-no-retransmit", "--timing": "compatible"},
        {"--stack": "mcast", "--journal": "j", "--control": "unix:/tmp/x: y.sock", "--name": "1.5"},
        {"--name": "on", "--cluster": "null", "--run-for": "90min", "--outbox-bytes": "1MiB"},
        {"--unicast": "UNICAST4", "--set": ["UDP.bind_addr=match-interface:eth.*, lo # x"]},
    ],
)
def test_what_is_printed_is_taken_again_and_means_the_same(flags: dict[str, Any]) -> None:
    effective = told(flags)
    assert again(effective) == effective.settings
    assert yaml.safe_load(effective.as_yaml()) == json.loads(effective.as_json())["settings"]


@settings(max_examples=15)
@given(
    text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30),
    seconds=st.integers(1, 10**7).map(lambda number: f"{number}us"),
    size=st.integers(1, 8 << 20),
)
def test_whatever_is_said_is_taken_again(text: str, seconds: str, size: int) -> None:
    effective = load_member(
        {
            "--stack": "tcp",
            "--set": [f"STATIC.repeat_interval={seconds}"],
            "--journal": text,
            "--outbox-bytes": str(size),
        },
        {},
    )
    content = yaml.safe_load(effective.as_yaml())
    assert content["journal"]["directory"] == text
    assert again(effective) == effective.settings


def test_a_workload_is_printed_and_taken_again() -> None:
    Path("load.yaml").write_text("- {do: multicast, rate: 100/s, size: 10B..2KiB}\n")
    effective = told({"--workload": "load.yaml"})
    assert again(effective) == effective.settings
    assert effective.settings.workload == (
        read_load({"do": "multicast", "rate": "100/s", "size": "10B..2KiB"}),
    )
    Path("scenario.yaml").write_text("name: x\nworkload:\n- {do: multicast, rate: 100/s}\n")
    assert len(told(WORKLOAD="scenario.yaml").settings.workload) == 1


def test_every_line_says_where_it_is_from() -> None:
    lines = [line for line in told().as_yaml().splitlines() if not line.startswith("#")]
    values = [line for line in lines if not line.endswith(":")]
    assert len(values) > 80
    assert all("  # " in line for line in values)


# -- Secrets ---------------------------------------------------------------------------------------


OPEN = {"--control": "0.0.0.0:9000", "--control-tls": "none"}


def write_token(token: str) -> None:
    Path("token").touch(0o600)
    Path("token").write_text(token)


def test_a_token_is_never_shown() -> None:
    write_token(f"{TOKEN}\n")
    effective = told({**OPEN, "--control-token-file": "token"})
    assert effective.settings.control is not None
    assert effective.settings.control.token == TOKEN
    shown = effective.as_yaml() + effective.as_json() + repr(effective)
    assert TOKEN not in shown
    assert "the token is not shown; it is from token" in shown


@pytest.mark.parametrize(
    "token", ["short", "with spaces in it, really", "ümlaut-is-no-plain-letter"]
)
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    write_token(token)
    text = refused({**OPEN, "--control-token-file": "token"})
    assert "16 or more" in text or "not plain text" in text
    assert token not in text


def test_a_token_comes_from_a_file_of_its_owner_and_from_nowhere_else() -> None:
    write_token(TOKEN)
    flags = {"--control": "127.0.0.1:9", "--control-token-file": "token"}
    for some in (flags, {"--control": "127.0.0.1:9"}, {}):
        text = refused(some, CONTROL_TOKEN=TOKEN)
        assert "STORMCAST_CONTROL_TOKEN: a token comes from a file; unset the variable" in text
        assert TOKEN not in text
    assert "no such file" in refused({"--control-token-file": "nowhere"}).lower()
    Path("token").chmod(0o640)
    assert "control.token_file token: others can read or change it (mode 640); chmod 600" in (
        refused(flags)
    )
    Path("token").chmod(0o600)
    write_token("")
    assert "16 or more" in refused(flags), "an empty file is no way to go without"


def test_a_member_that_others_reach_needs_a_certificate() -> None:
    write_token(TOKEN)
    flags = {"--control": "0.0.0.0:9000", "--control-token-file": "token"}
    assert "it needs TLS; set control.certificate_file" in refused(flags)
    assert "no such choice; known: required, none" in refused({**flags, "--control-tls": "off"})
    files = {"--control-certificate-file": "c", "--control-private-key-file": "k"}
    control = told(
        flags, **{_variable(flag): value for flag, value in files.items()}
    ).settings.control
    assert control is not None
    assert (control.tls.certificate_file, control.tls.private_key_file) == ("c", "k")


def _variable(flag: str) -> str:
    return flag[2:].replace("-", "_").upper()


# -- The control address ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("127.0.0.1:9000", "127.0.0.1", 9000, ""),
        ("localhost:0", "127.0.0.1", 0, ""),
        ("[::1]:9000", "::1", 9000, ""),
        ("unix:/run/x.sock", "", 0, "/run/x.sock"),
        ("unix:x.sock", "", 0, "x.sock"),
    ],
)
def test_where_it_listens(text: str, host: str, port: int, path: str) -> None:
    control = read_control(text)
    assert (control.host, control.port, control.path) == (host, port, path)
    assert control.is_loopback


@pytest.mark.parametrize("text", ["0.0.0.0:9000", "[::]:9000", "198.18.0.2:9000"])
def test_where_others_reach_it_it_needs_a_token(text: str) -> None:
    with pytest.raises(ConfigError, match="it needs a token"):
        read_control(text)
    assert not read_control(text, TOKEN, tls=TlsSettings(mode="none")).is_loopback


def test_probes_may_be_where_others_reach_them_and_take_no_token() -> None:
    write_token(TOKEN)
    flags = {"--probes": "0.0.0.0:9001", "--control": "unix:x", "--control-token-file": "token"}
    effective = told(flags)
    probes = effective.settings.probes
    assert probes is not None
    assert (probes.host, probes.port, probes.token) == ("0.0.0.0", 9001, "")  # noqa: S104 a test
    assert told({}, PROBES="unix:p").settings.probes is not None
    assert told({"--control": "unix:x"}).settings.probes is None
    assert "control.probes is '9001': write HOST:PORT" in refused({"--probes": "9001"})


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("9000", "HOST:PORT"),
        ("127.0.0.1:", "HOST:PORT"),
        ("127.0.0.1:http", "HOST:PORT"),
        ("127.0.0.1:65536", "0..65535"),
        ("example.org:9000", "no address"),
        ("127.0.0.1:٩", "HOST:PORT"),
        ("unix:", "unix:/path"),
        ("unix:/" + "x" * 107, "shorter"),
    ],
)
def test_an_address_that_is_none(text: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=r"control\.address") as caught:
        read_control(text)
    assert remedy in str(caught.value)


# -- Nonsense --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        ("nam: x\n", "x.yaml:1:1: unknown key nam; did you mean name?"),
        ("journal: {dir: x}\n", "journal: unknown key dir"),
        ("journal: x\n", "write a mapping"),
        ("jurnal: {directory: x}\n", "did you mean journal?"),
        ("protocols: {UPD: {x: 1}}\n", "did you mean UDP?"),
        ("protocols: {UDP: {bind_adr: x}}\n", "did you mean bind_addr?"),
        ("protocols: {UDP: 5}\n", "write a mapping"),
        ("protocols: [UDP]\n", "write a mapping"),
        ("workload: [{do: multicas}]\n", "did you mean multicast?"),
        ("name: 5\n", "write text"),
        ("name: on\n", "write text"),
        ("run_for: 5\n", "a duration with its unit"),
        ("name: a\nname: b\n", "x.yaml:2:1: not YAML: the key name is there twice"),
        ("protocols: {UDP: {ip_ttl: 1, ip_ttl: 2}}\n", "ip_ttl is there twice"),
        ("name: [\n", "not YAML"),
        ("- name\n", "write a mapping"),
        ("name: a\x00b\n", "not YAML"),
        ("stack: upd\n", "did you mean udp?"),
        ("timing: fats\n", "did you mean fast?"),
        ("loop: trio\n", "there is no such choice; known: asyncio, uvloop"),
        ("unicast: UNICAST5\n", "there is no such choice; did you mean UNICAST?"),
        ("verify: some\n", "there is no such choice; known: all, one, none"),
        ("name: a b\n", "write letters"),
        ("cluster: ''\n", "write letters"),
        ("seed: -1\n", "it must be 0 or more"),
        ("leave_timeout: 0s\n", "give it 1s"),
        ("journal: {directory: j, limit_bytes: 1KiB}\n", "journal.limit_bytes"),
        ("journal: {directory: j, when_full: explode}\n", "journal.when_full"),
        ("outbox_bytes: 0\n", "outbox_bytes"),
        ("max_frame: 1GiB\n", "max_frame"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_a_file_that_cannot_be_meant(file: str, remedy: str) -> None:
    text = refused(file=file)
    assert remedy in text
    assert re.match(r"x\.yaml:[0-9]+:[0-9]+: ", text), text


@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("name: a\nprotocols:\n  UDP: {ip_ttl: 1, bind_adr: x}\n", "x.yaml:3:20: UDP: unknown"),
        ("protocols:\n  UDP:\n    ip_ttl: 256\n    mcast_port: 0\n", "x.yaml:4:5: mcast_port is"),
        ("protocols: {FRAG: {frag_size: 1MiB}}\n", "x.yaml:1:20: stack udp: FRAG.frag_size is"),
        ("stack: tcp\ndiscovery: PING\n", "x.yaml:2:1: stack tcp: PING multicasts"),
        ("journal:\n  directory: j\n  limit_bytes: 1KiB\n", "x.yaml:3:3: journal.limit_bytes"),
        ("<<: {seed: -1}\n", "x.yaml:1:6: seed is -1"),
        ("workload:\n- {do: multicast}\n- {do: unicast, rate: 5}\n", "x.yaml:3:17: workload: rate"),
        (
            "workload: {do: unicast, to: [n1, n1]}\n",
            "x.yaml:1:34: workload: to is 'n1': it is listed twice",
        ),
        ("workload:\n- {do: multicast}\n- 5\n", "x.yaml:3:3: workload: write a mapping"),
    ],
)
def test_what_is_wrong_in_a_file_is_where_the_error_says(file: str, start: str) -> None:
    assert refused(file=file).startswith(start)


def test_of_values_that_contradict_each_other_the_one_said_last_is_to_blame() -> None:
    """FRAG.frag_size must be below the least credits: each is right by itself."""
    file = "protocols: {MFC: {max_credits: 64KiB}}\n"
    assert refused({}, file).startswith("x.yaml:1:19: stack udp: FRAG.frag_size is")
    raised = {"--set": ["FRAG.frag_size=50000"]}
    assert told({}, "protocols: {MFC: {max_credits: 200KB}}\n", SET_FRAG__FRAG_SIZE="1000")
    low = "protocols: {MFC: {max_credits: 100KB}, FRAG: {frag_size: 1KB}}\n"
    assert told({}, low)
    assert refused(raised, low).startswith("flag --set: stack udp: FRAG.frag_size is")


def test_a_workload_file_has_places_too() -> None:
    Path("load.yaml").write_text("name: x\nworkload:\n- {do: multicast, rat: 5/s}\n")
    assert refused({"--workload": "load.yaml"}).startswith("load.yaml:3:19: workload: unknown key")
    Path("load.yaml").write_text("- {do: multicast}\n- {do: multicas}\n")
    assert refused(WORKLOAD="load.yaml").startswith("load.yaml:2:4: workload: do is 'multicas'")


def test_a_file_that_cannot_be_read() -> None:
    for flags, remedy in (
        ({"--config": "nowhere.yaml"}, "nowhere.yaml"),
        ({"--config": "."}, "name a file"),
        ({"--workload": "nowhere.yaml"}, "flag --workload"),
    ):
        assert remedy in refused(flags)
    Path("latin.yaml").write_bytes(b"name: \xe9\n")
    assert "UTF-8" in refused({"--config": "latin.yaml"})
    Path("large.yaml").write_text("#" * (1 << 21))
    assert "write less" in refused({"--config": "large.yaml"})


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("NAM", "x", "STORMCAST_NAM: no such setting; did you mean STORMCAST_NAME?"),
        ("CONTROL_TOKEN_FIL", "x", "did you mean STORMCAST_CONTROL_TOKEN_FILE?"),
        ("SET_UDP_BIND_ADDR", "x", "STORMCAST_SET_PROTOCOL__KEY"),
        ("SET_UPD__BIND_ADDR", "x", "did you mean UDP?"),
        ("SET_UDP__BIND_ADR", "x", "did you mean bind_addr?"),
        ("SET_UDP__IP_TTL", "many", "ip_ttl is 'many'"),
        ("RUN_FOR", "5", "STORMCAST_RUN_FOR is '5': it has no unit; write a duration"),
        ("PORT", "http", "bind_port is 'http'"),
        ("MAX_BATCH", "5.5", "whole number"),
    ],
)
def test_a_variable_that_cannot_be_meant(name: str, value: str, remedy: str) -> None:
    text = refused(**{name: value})
    assert remedy in text
    assert f"STORMCAST_{name}" in text


def test_what_kubernetes_adds_for_a_service_is_not_for_us() -> None:
    found = told(
        PORT="tcp://10.0.0.1:7800",
        SERVICE_HOST="10.0.0.1",
        SERVICE_PORT="7800",
        SERVICE_PORT_MEMBER="7800",
        PORT_7800_TCP="tcp://10.0.0.1:7800",
        PORT_7800_TCP_ADDR="10.0.0.1",
        NODE_SERVICE_HOST="10.0.0.1",
        NODE_PORT="tcp://10.0.0.1:7800",
    )
    assert found.settings == told().settings
    assert told(PORT="7805").settings.stack.transport_config.bind_port == 7805


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ({"--set": ["UDP.bind_addr"]}, "write PROTOCOL.key=value"),
        ({"--set": ["bind_addr=x"]}, "write PROTOCOL.key=value"),
        ({"--set": ["=x"]}, "write PROTOCOL.key=value"),
        ({"--set": ["UDP.ip_ttl=1", "UDP.ip_ttl=2"]}, "given twice"),
        ({"--set": ["UDP.bind_addr=x"], "--bind-addr": "y"}, "keep one"),
        ({"--set": ["TCP.bind_addr=x"]}, "flag --set: TCP.bind_addr: stack udp has no protocol"),
        ({"--set": ["UDP.ip_ttl=256"]}, "ip_ttl is 256"),
        ({"--port": "70000"}, "bind_port is 70000"),
        ({"--set": ["MFC.min_threshold=1ms"]}, "write a share such as 5%"),
        ({"--run-for": "5"}, "--run-for is '5': it has no unit; write a duration"),
        ({"--name": "-x"}, "write letters"),
    ],
)
def test_a_flag_that_cannot_be_meant(flags: dict[str, Any], remedy: str) -> None:
    text = refused(flags)
    assert remedy in text
    assert any(flag in text for flag in flags)
