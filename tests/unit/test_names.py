"""Names and texts from outside: which names are taken, and how any text is shown."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.names import MAX_NAME, NAME, as_name, check_name, one_line, printable


@given(text=st.text(), most=st.integers(1, 40))
def test_whatever_is_shown_is_one_printable_line_within_its_bound(text: str, most: int) -> None:
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    assert printable(shown, most) == shown
    assert one_line(text).isprintable()


def test_a_printable_text_is_shown_as_it_is() -> None:
    assert printable("Zoë is here…", 12) == "Zoë is here…"
    assert printable("Zoë is here…", 11) == "Zoë is her…"


@given(text=st.text(max_size=100), most=st.integers(1, MAX_NAME))
def test_any_text_gives_a_name(text: str, most: int) -> None:
    assert NAME.fullmatch(as_name(text, most))


@pytest.mark.parametrize("name", ["n0", "a.b_c-d", "N" * MAX_NAME])
def test_a_name_is_taken(name: str) -> None:
    assert check_name("name", name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\nb", "\x1b[2J", "-a", "n" * (MAX_NAME + 1)])
def test_what_is_no_name_is_refused_in_one_printable_line(name: str) -> None:
    with pytest.raises(ConfigError, match="write letters, digits, dots and dashes") as refused:
        check_name("name", name)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("named", [{"name": "a\nb"}, {"cluster": "a\nb"}, {"name": "../a"}])
def test_a_channel_refuses_what_is_no_name(named: dict[str, str]) -> None:
    """Its name would be a word of its trace, and a folder's name."""
    with pytest.raises(ConfigError, match=f"{next(iter(named))} is "):
        ChannelConfig(**named)  # type: ignore[arg-type]


def test_a_channel_without_a_name_has_one_whatever_its_host_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "-höst" * 20)
    name = Channel().name
    assert NAME.fullmatch(name)
    assert name.endswith(f"-{os.getpid()}")
