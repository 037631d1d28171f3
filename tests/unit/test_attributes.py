"""Settings that change while the stack runs: whose they are, and what is refused."""

from __future__ import annotations

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.stack.attributes import Attributes
from tests.helpers.parts import Parts, bare_settings


@pytest.mark.parametrize("name", ["xmit_interval", "UNICAST3.xmit_interval"])
def test_a_setting_may_be_written_with_its_unit_and_without_its_protocol(name: str) -> None:
    parts, settings = Parts(), bare_settings()
    Attributes(settings, parts.unicast, None).set(name, "250ms", settings.layers, 0.0)
    assert parts.unicast.config.xmit_interval == 0.25


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NAKACK2.xmit_interval", "1s", "there is UNICAST3"),
        ("xmit_interval", True, "write a duration"),
        ("window_bytes", 1, "can not change at run time; what can: .*xmit_interval"),
    ],
)
def test_what_can_not_change_is_refused_with_the_remedy(
    name: str, value: object, message: str
) -> None:
    parts, settings = Parts(), bare_settings()
    before = parts.unicast.config
    with pytest.raises(ConfigError, match=message):
        Attributes(settings, parts.unicast, None).set(name, value, settings.layers, 0.0)
    assert parts.unicast.config is before
