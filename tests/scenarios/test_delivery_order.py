"""Whatever the network does to frames, messages are delivered once and in order (G1 to G4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters, Fault
from tests.scenarios.stories import every_generation, every_stack

pytestmark = pytest.mark.slow

Weather = Callable[[Chaos], Fault]

WEATHER: dict[str, Weather] = {
    "loss": lambda chaos: chaos.loss("15%"),
    "delay": lambda chaos: chaos.delay("30ms", jitter="30ms"),
    "duplication": lambda chaos: chaos.duplicate("30%"),
    "reordering": lambda chaos: chaos.reorder("25%", by="40ms"),
}
every_weather = pytest.mark.parametrize("weather", WEATHER.values(), ids=WEATHER)


@every_generation
@every_weather
def test_unicasts_arrive_in_order(
    cluster: Clusters, chaos: Chaos, unicast: str, weather: Weather
) -> None:
    group = cluster(members=3, stack="unicast-only", unicast=unicast)
    with weather(chaos) as fault:
        group.unicast(count=150, rate="150/s", size="16B..600B")
        group.wait_until_delivered()
    assert fault.bites > 10
    group.finish()


@every_stack
@every_weather
def test_multicasts_arrive_in_order_at_all_members(
    cluster: Clusters, chaos: Chaos, stack: str, weather: Weather
) -> None:
    group = cluster(members=3, stack=stack)
    with weather(chaos) as fault:
        group.multicast(count=150, rate="150/s", size="16B..600B")
        group.wait_until_delivered()
    assert fault.bites > 10
    group.finish()


@every_generation
def test_all_of_it_at_once(cluster: Clusters, chaos: Chaos, unicast: str) -> None:
    group = cluster(members=3, stack="udp", unicast=unicast)
    with chaos.loss("10%"), chaos.delay("10ms", jitter="20ms"), chaos.duplicate("10%"):
        group.unicast(count=100, rate="100/s")
        group.multicast(count=100, rate="100/s")
        group.wait_until_delivered()
    group.finish()
