"""Values to read from: a file's, a flag's and a program's are read by the same notations."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.node.core.errors import ConfigError, Place
from stormcast.node.protocols.unicast import Unicast3Config
from stormcast.node.reading.config_shapes import shape_of
from stormcast.node.reading.documents import read_document
from stormcast.node.reading.items import Item, PlainItem, TextItem
from stormcast.node.reading.notations import (
    BYTES,
    COUNT,
    NAMES,
    SETTING_SHARE,
    SETTING_TIME,
    TRUTH,
    WORD,
    Notation,
    whole_range,
)
from stormcast.node.reading.yaml_nodes import compose

SEQNOS = whole_range(0)


def strict(text: str) -> Item:
    return compose(f"x: {text}", "f", "file").peek("x")


def plain(text: str) -> Item:
    return read_document(f"x: {text}", "f").item().peek("x")


def flag(text: str) -> Item:
    return TextItem(text, "x")


@pytest.mark.parametrize("make", [strict, plain, flag])
@pytest.mark.parametrize(
    ("notation", "text", "value"),
    [
        (SETTING_TIME, "1.5s", 1.5),
        (SETTING_SHARE, "40%", 0.4),
        (COUNT, "7", 7),
        (COUNT, "1KiB", 1024),
        (BYTES, "4KiB", 4096),
        (TRUTH, "false", False),
        (WORD, "spaced", "spaced"),
        (NAMES, "[n0, n1]", ("n0", "n1")),
        (NAMES, '["n0"]', ("n0",)),
        (NAMES, "n0", ("n0",)),
        (SEQNOS, "5..9", (5, 9)),
        (SEQNOS, "5", (5, 5)),
    ],
)
def test_a_value_means_the_same_wherever_it_is_said(
    make: Any, notation: Notation, text: str, value: object
) -> None:
    assert notation.read(make(text)) == value
    assert notation.read(PlainItem(notation.write(value), "x")) == value


@pytest.mark.parametrize("make", [strict, plain, flag])
@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (SETTING_TIME, "1.5 parsecs"),
        (SETTING_TIME, "[1s]"),
        (SETTING_SHARE, "140%"),
        (COUNT, "many"),
        (COUNT, "1.5"),
        (TRUTH, "sure"),
        (SEQNOS, "9..5"),
        (SEQNOS, "1..2..3"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name_wherever_it_is_said(
    make: Any, notation: Notation, text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        notation.read(make(text))
    assert refused.value.message.startswith("x is ")


def test_a_program_may_give_numbers_where_a_file_writes_a_unit() -> None:
    assert SETTING_TIME.read(PlainItem(2, "x")) == 2.0
    assert SETTING_SHARE.read(PlainItem(0.4, "x")) == 0.4
    assert SEQNOS.read(PlainItem((5, 9), "x")) == (5, 9)
    for item in (strict("2"), flag("2")):
        with pytest.raises(ConfigError, match="unit"):
            SETTING_TIME.read(item)


def test_values_put_together_know_their_own_places() -> None:
    file = read_document("a: {b: 1}\n", "one.yaml").item()
    ((_key, inner),) = file.pairs()
    ((_key, b),) = inner.pairs()
    c = TextItem("2", "a.c", lambda *_keys: Place("flag --set"))
    mixed = PlainItem({"b": b, "c": c, "d": 3}, "a")
    places = {key.name: (value.key, value.place) for key, value in mixed.pairs()}
    assert places == {
        "b": ("a.b", Place("one.yaml", 1, 5)),
        "c": ("a.c", Place("flag --set")),
        "d": ("a.d", None),
    }
    with pytest.raises(ConfigError, match=r"^one.yaml:1:5: a: unknown setting b"):
        mixed.entries((), ("c", "d"), "setting")


def test_what_a_record_refuses_of_itself_is_blamed_on_the_value_that_causes_it() -> None:
    file = read_document("xmit_interval: 1s\nsync: often\nack_threshold: 5\n", "one.yaml")
    with pytest.raises(ConfigError, match=r"^one.yaml:2:1: sync is 'often'"):
        shape_of(Unicast3Config).read(file.item("UNICAST3"))
