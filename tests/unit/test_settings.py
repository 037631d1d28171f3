"""Settings: what cannot work is refused before anything starts, with the reason and the remedy."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.flow import HistoricalFlow
from stormcast.node.protocols.frag import HistoricalFrag
from stormcast.node.protocols.gms.config import GmsConfig
from stormcast.node.protocols.multicast import HistoricalMulticast
from stormcast.node.protocols.unicast import Historical, Unicast3Config, Unicast4Config
from stormcast.node.protocols.unicast.config import FLAWLESS
from stormcast.node.reading.config_shapes import notation_of, shape_of
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.quantities import SETTING_DURATION, SETTING_SIZE
from stormcast.node.settings import GENERATIONS, StackSettings, load_settings
from stormcast.node.settings.protocols import RELIABLE_UNICAST
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

TIMINGS = ("compatible", "fast")


# -- Names and values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"xmit_intervall": 0.5},
            "UNICAST3: unknown setting xmit_intervall; did you mean xmit_interval?",
        ),
        (
            {"xmit_interval": "5 parsecs"},
            "UNICAST3.xmit_interval is '5 parsecs': it has the unknown unit 'parsecs'; write a "
            "duration such as 500ms (units: s, ms, us, min, h)",
        ),
        (
            {"xmit_interval": "500"},
            "UNICAST3.xmit_interval is '500': it has no unit; write a duration such as 500ms "
            "(units: s, ms, us, min, h)",
        ),
        (
            {"window_bytes": "4 MiBs"},
            "UNICAST3.window_bytes is '4 MiBs': it has the unknown unit 'MiBs'; write a size such "
            "as 1KiB (units: B, KiB, MiB, GiB, KB, MB)",
        ),
        (
            {"xmit_interval": True},
            "UNICAST3.xmit_interval is True: write a duration with its unit, such as 500ms",
        ),
        (
            {"xmit_interval": [1]},
            "UNICAST3.xmit_interval is [1]: write a duration with its unit, such as 500ms",
        ),
        (
            {"window_messages": 1.5},
            "UNICAST3.window_messages is 1.5: write a whole number",
        ),
        (
            {"window_messages": True},
            "UNICAST3.window_messages is True: write a whole number",
        ),
        ({"sync": 1}, "UNICAST3.sync is 1: write a word"),
        ({"sync": "sometimes"}, "sync is 'sometimes': choose `spaced` or `deferred`"),
        ({"window_messages": 0}, "window_messages is 0: it must be positive"),
        (
            {"conn_close_timeout": -1.0},
            "conn_close_timeout is -1.0: it must not be negative (0 switches it off)",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_write(
    overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(unicast="UNICAST3", overrides=overrides)
    assert str(refused.value) == message


def test_a_setting_that_is_like_no_other_is_answered_with_all_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting zzz; known: xmit_interval, .*, sync$"):
        load_settings(unicast="UNICAST3", overrides={"zzz": 1})


@pytest.mark.parametrize("name", ["unicast-onyl", "../timings/fast", "nothing-like-it"])
def test_a_stack_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no stack named .*unicast-only"):
        load_settings(name)


def test_a_timing_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no timing named fats; did you mean fast\?"):
        load_settings(timing="fats")


def test_a_generation_that_is_not_there_is_refused_with_all_five() -> None:
    names = "UNICAST, UNICAST2, UNICAST3, UNICAST3-SYNC, UNICAST4"
    with pytest.raises(ConfigError, match=f"unicast is 'UNICAST5': choose one of {names}"):
        load_settings(unicast="UNICAST5")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("max_batch", 1, 65535), ("max_frame", 1, wire.MAX_BODY), ("outbox_bytes", 1, wire.MAX_BODY)],
)
def test_the_sizes_of_a_stack_hold_at_their_limits_and_fail_just_past_them(
    name: str, least: int, most: int
) -> None:
    def settings(value: int) -> StackSettings:
        values: dict[str, Any] = {name: value}
        layers = (("UNICAST3", Unicast3Config()), ("UDP", UdpConfig()))
        return StackSettings(layers=layers, timing=Timing(), **values)

    assert getattr(settings(least), name) == least
    with pytest.raises(ConfigError, match=f"{name} is {least - 1}: it must be"):
        settings(least - 1)
    assert getattr(settings(most), name) == most
    with pytest.raises(ConfigError, match=f"{name} is {most + 1}: it must be"):
        settings(most + 1)


def test_a_batch_of_no_messages_is_refused_not_ignored() -> None:
    with pytest.raises(ConfigError, match="max_batch is 0"):
        load_settings(max_batch=0)


def test_an_outbox_of_no_bytes_is_refused_not_ignored() -> None:
    assert load_settings(outbox_bytes=1).outbox_bytes == 1
    with pytest.raises(ConfigError, match="outbox_bytes is 0"):
        load_settings(outbox_bytes=0)


def test_unicast4_keeps_the_thresholds_that_release_a_sender() -> None:
    """An ack waits for half a window at most; without expiry a blocked sender stays blocked."""
    half = Unicast4Config(window_messages=100, ack_threshold=50)
    assert half.ack_threshold == 50
    with pytest.raises(ConfigError, match=r"ack_threshold is 51: above half of window_messages"):
        Unicast4Config(window_messages=100, ack_threshold=51)
    with pytest.raises(ConfigError, match="conn_expiry_timeout is 0: UNICAST4 would block"):
        Unicast4Config(conn_expiry_timeout=0.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        ("250us", 250e-6),
        ("9ms", 0.009),
        (" 1.5 s ", 1.5),
    ],
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert SETTING_DURATION.read(text, "x") == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 m", "1:30", "5S", "1e3s", "0x5s", "5s5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^x is .*[:;] write a duration such as 500ms"):
        SETTING_DURATION.read(text, "x")


@pytest.mark.parametrize(
    ("text", "size"), [("100B", 100), ("4KiB", 4096), ("1.5KiB", 1536), ("2MB", 2_000_000)]
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert SETTING_SIZE.read(text, "x") == size


@pytest.mark.parametrize("text", ["", "100", "4 kib", "-1B", "1.5B", "0.1KiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^x is .*[:;] write a (size such as 1KiB|whole number)"):
        SETTING_SIZE.read(text, "x")


def test_a_number_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="x is '999"):
        SETTING_DURATION.read("9" * 400 + "s", "x")
    with pytest.raises(ConfigError, match="x is '999"):
        SETTING_SIZE.read("9" * 400 + "B", "x")


# -- Files -----------------------------------------------------------------------------------------


class Shelf:
    """A folder of stack and timing files in place of those that ship."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, kind: str, name: str, text: str) -> None:
        path = self.folder / kind / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr("stormcast.node.settings.files.files", lambda _package: tmp_path)
    made = Shelf(tmp_path)
    made.write("timings", "compatible", "timing: {adaptive: false}\n")
    return made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("protocols: [UNICAST3]", "stack mine: needs exactly one transport"),
        ("", "stack mine:1:1: write `protocols:` and a list"),
        ("- UNICAST3", "stack mine:1:1: write `protocols:` and a list"),
        ("protocols: UNICAST3", "stack mine: .*list"),
        ("protocols: [{UNICAST3: 5}, UDP]", "stack mine: UNICAST3 .*its settings"),
        ("protocols: [{UNICAST3: {}, UDP: {}}]", "stack mine: .*one protocol"),
        ("protocols: [7, UDP]", "stack mine: .*one protocol"),
        ("protocols: [", "stack mine:1:13: not YAML"),
    ],
)
def test_a_stack_file_that_cannot_work_is_refused_by_name(
    shelf: Shelf, text: str, message: str
) -> None:
    shelf.write("stacks", "mine", text)
    with pytest.raises(ConfigError, match=message):
        load_settings("mine")


def test_a_timing_yields_to_the_stack_and_the_stack_to_overrides(shelf: Shelf) -> None:
    """Four settings, each set by one layer more than the one before; the last to speak wins.

    A stack says what: one that switches retransmission off must not have a timing switch it on.
    """
    shelf.write(
        "stacks",
        "mine",
        "protocols: [{UNICAST3: {sync_min_interval: 8s, xmit_interval: 8s}}, UDP]",
    )
    shelf.write(
        "timings",
        "brisk",
        "timing: {adaptive: true, min_wait: 3ms}\n"
        "protocols: {UNICAST3: {conn_close_timeout: 7s, sync_min_interval: 7s, "
        "xmit_interval: 7s}}",
    )
    settings = load_settings("mine", "brisk", overrides={"xmit_interval": "9s"})
    config = settings.unicast_config
    assert config.conn_expiry_timeout == Unicast3Config().conn_expiry_timeout
    assert config.conn_close_timeout == 7.0
    assert config.sync_min_interval == 8.0
    assert config.xmit_interval == 9.0
    assert settings.timing == Timing(name="brisk", adaptive=True, min_wait=0.003)


def test_settings_of_any_protocol_win_over_both_files(shelf: Shelf) -> None:
    shelf.write("stacks", "mine", "protocols: [{UNICAST3: {xmit_interval: 8s}}, UDP]")
    shelf.write("timings", "brisk", "protocols: {UDP: {queue_frames: 7}, UNICAST4: {}}")
    settings = load_settings("mine", "brisk")
    assert (settings.of("UDP").queue_frames, settings.of("UNICAST4")) == (7, None)
    given: dict[str, dict[str, object]] = {
        "UNICAST3": {"xmit_interval": "9s"},
        "UDP": {"queue_frames": 9},
    }
    settings = load_settings("mine", "brisk", protocols=given)
    assert settings.unicast_config.xmit_interval == 9.0
    assert settings.transport_config.queue_frames == 9


def test_settings_of_a_protocol_that_the_stack_lacks_are_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("unicast-only", protocols={"NAKACK2": {"xmit_interval": 0}})
    assert str(refused.value) == (
        "stack unicast-only has no protocol NAKACK2; known: UNICAST3, UDP"
    )
    with pytest.raises(ConfigError, match=r"no protocol NAKAK2; did you mean NAKACK2\?"):
        load_settings("udp", protocols={"NAKAK2": {}})


def test_a_timing_file_is_checked_like_everything_else(shelf: Shelf) -> None:
    shelf.write("stacks", "mine", "protocols: [UNICAST3, UDP]")
    shelf.write("timings", "brisk", "timing: {adaptve: true}")
    with pytest.raises(ConfigError, match="timing: unknown setting adaptve; did you mean adaptive"):
        load_settings("mine", "brisk")
    shelf.write("timings", "brisk", "timing: {adaptive: 1}")
    with pytest.raises(ConfigError, match=r"timing\.adaptive is 1: write true or false"):
        load_settings("mine", "brisk")


# -- The museum ------------------------------------------------------------------------------------


def test_historical_flaws_are_refused_outside_the_museum() -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("unicast-only", historical={"stamps": False})
    assert str(refused.value) == (
        "historical flaws are for museum stacks only: drop `historical`, "
        "or use stack unicast-museum, not unicast-only"
    )


def test_historical_flaws_are_brought_back_in_the_museum() -> None:
    settings = load_settings(
        "unicast-museum", historical={"conn_ids": "first", "repair_ends": False}
    )
    assert settings.unicast_config.historical == Historical(conn_ids="first", repair_ends=False)
    assert settings.unicast_config.historical != FLAWLESS
    assert load_settings("unicast-museum").unicast_config.historical == FLAWLESS


@pytest.mark.parametrize("protocol", ["UNICAST4", "MCAST", "UFC", "FRAG"])
def test_a_flaw_is_no_setting_of_a_protocol(protocol: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("mcast-museum", protocols={protocol: {"historical": "none"}})
    assert str(refused.value).startswith(f"{protocol}: unknown setting historical")


def test_a_flaw_reaches_the_protocols_that_it_is_of_and_no_other() -> None:
    settings = load_settings(
        "mcast-museum",
        historical={
            "waiting_is_use": False,
            "split_send": True,
            "asks_anew": False,
            "sender_keeps_bound": False,
        },
    )
    assert settings.unicast_config.historical == Historical(waiting_is_use=False)
    assert settings.of("MCAST").historical == HistoricalMulticast(split_send=True)
    assert settings.of("UFC").historical == HistoricalFlow(asks_anew=False)
    assert settings.of("FRAG").historical == HistoricalFrag(sender_keeps_bound=False)
    sound = load_settings("mcast")
    assert sound.unicast_config.historical == FLAWLESS
    assert sound.of("MCAST").historical == HistoricalMulticast()
    assert sound.of("UFC").historical.asks_anew
    assert sound.of("FRAG").historical.sender_keeps_bound


@pytest.mark.parametrize(
    ("flaw", "what"),
    [
        ({"split_send": True}, "multicast"),
        ({"asks_anew": False}, "flow control"),
        ({"sender_keeps_bound": False}, "FRAG"),
    ],
)
def test_a_flaw_of_a_protocol_that_is_not_there_is_refused(
    flaw: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("unicast-museum", historical=flaw)
    assert str(refused.value) == (
        f"historical.{next(iter(flaw))}: stack unicast-museum has no {what}; drop it, or use a "
        "stack that has it, such as group-museum"
    )


@pytest.mark.parametrize(
    ("historical", "message"),
    [
        ({"conn_id": "none"}, "historical: unknown setting conn_id; did you mean conn_ids?"),
        (
            {"conn_ids": "last"},
            "historical.conn_ids is 'last': choose one of every, first, none",
        ),
        ({"stamps": "no"}, "historical.stamps is 'no': write true or false"),
    ],
)
def test_a_wrong_flaw_is_refused(historical: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("unicast-museum", historical=historical)
    assert str(refused.value) == message


# -- Generations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_loads_with_both_timings(generation: str, timing: str) -> None:
    settings = load_settings(timing=timing, unicast=generation)
    assert settings.unicast == generation.removesuffix("-SYNC")
    assert type(settings.unicast_config) is RELIABLE_UNICAST[settings.unicast].config_type
    assert settings.timing.name == timing
    assert settings.timing.adaptive == (timing == "fast")
    assert (settings.transport, settings.has_group, settings.multicast) == ("UDP", False, None)


def test_the_two_faces_of_unicast3_differ_in_how_they_ask_for_the_first_seqno() -> None:
    config = load_settings(unicast="UNICAST3").unicast_config
    assert config == Unicast3Config(sync="deferred", sync_min_interval=0.001)
    assert load_settings(unicast="UNICAST3-SYNC").unicast_config == Unicast3Config(sync="spaced")


def test_the_fast_timing_paces_the_old_generations_as_the_others() -> None:
    assert load_settings(timing="compatible", unicast="UNICAST").unicast_config.xmit_interval == 2.0
    assert load_settings(timing="fast", unicast="UNICAST").unicast_config.xmit_interval == 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stack": 5}, "stack is of type int: write a str"),
        ({"timing": None}, "timing is of type NoneType: write a str"),
        ({"overrides": 5}, "overrides is of type int: write a mapping of names to values"),
        ({"protocols": ["UDP"]}, "protocols is of type list: write a mapping of names to values"),
        ({"protocols": {"UDP": 7600}}, "UDP is of type int: write a mapping of names to values"),
        ({"max_batch": "10"}, "max_batch is of type str: write a whole number"),
        ({"outbox_bytes": 2.5}, "outbox_bytes is of type float: write a whole number"),
        (
            {"protocols": {"UDP": {"bind_port": "a"}}},
            "UDP.bind_port is 'a': write a whole number, or a size such as 1KiB",
        ),
    ],
)
def test_what_is_of_another_type_is_refused_with_its_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_settings(**given)
    assert str(error.value) == said


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_may_change_at_run_time_says_so_and_does(generation: str) -> None:
    stack = a_stack(generation)
    config = stack.unicast.config
    names = {field.name for field in fields(config)}
    assert {"xmit_interval", "sync_min_interval", "conn_expiry_timeout"} <= config.settable < names
    for name in sorted(config.settable):
        value = getattr(config, name) + 1
        stack.set_attribute(name, value, 0.0)
        assert getattr(stack.unicast.config, name) == value


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_may_not_change_at_run_time_is_refused_with_what_may(generation: str) -> None:
    stack = a_stack(generation)
    before = stack.unicast.config
    for name in sorted({field.name for field in fields(before)} - before.settable):
        with pytest.raises(ConfigError) as refused:
            stack.set_attribute(name, getattr(before, name), 0.0)
        assert str(refused.value).startswith(f"{name} can not change at run time; what can: ")
        assert "xmit_interval" in str(refused.value)
    assert stack.unicast.config is before


def test_a_run_time_value_that_would_be_refused_at_the_start_is_refused_then_too() -> None:
    stack = a_stack("UNICAST3")
    with pytest.raises(ConfigError, match="xmit_interval is 0: it must be positive"):
        stack.set_attribute("xmit_interval", 0, 0.0)
    assert stack.unicast.config.xmit_interval == 0.5


@pytest.mark.parametrize("value", ["500ms", True, None, [1], 1 << 63, 10**400])
def test_a_run_time_value_of_the_wrong_type_is_refused(value: object) -> None:
    stack = a_stack("UNICAST3")
    with pytest.raises(ConfigError, match="max_xmit_req_size"):
        stack.set_attribute("max_xmit_req_size", value, 0.0)
    assert stack.unicast.config.max_xmit_req_size == 1024


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), 1e300])
def test_a_duration_beyond_all_time_is_refused(value: object) -> None:
    """An int may be larger than any float, and converting it fails."""
    with pytest.raises(ConfigError, match=r"GMS.join_timeout is .*: write a duration"):
        notation_of(GmsConfig, "join_timeout").read(PlainItem(value, "GMS.join_timeout"))


def test_settings_are_built_from_plain_values_of_each_type() -> None:
    values = {"xmit_interval": 1, "window_bytes": "1KiB", "window_messages": 7, "sync": "deferred"}
    built = shape_of(Unicast3Config).read(PlainItem(values, "x"))
    assert built == Unicast3Config(
        xmit_interval=1.0, window_bytes=1024, window_messages=7, sync="deferred"
    )


def a_stack(generation: str) -> Stack:
    tracer = Tracer(1, 0, xxh3_64_intdigest, lambda _block: None)
    settings = load_settings(unicast=generation)
    return Stack(Address(1, "a"), "test", settings, xxh3_64_intdigest, tracer, 0.0)
