"""Connections that open or end: who is told what, and when."""

from __future__ import annotations

from math import inf, nextafter
from types import SimpleNamespace
from typing import Any

from stormcast.chaos.backends.sim.engine import Engine, Host
from stormcast.chaos.backends.sim.links import Links, LostConnections, Notices
from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.faults.paths import Path

DELAY = 0.01
A, B = 1, 2


class Listener:
    """A stack that only hears of its monitored connections."""

    def __init__(self, short: int, told: list[tuple[float, int, bool]]) -> None:
        self.address = SimpleNamespace(short=short)
        self.settings = SimpleNamespace(has_group=False)
        self.told = told

    def on_link(self, peer: int, is_up: bool, now: float) -> None:
        self.told.append((round(now, 6), peer, is_up))

    def on_connection_lost(self, peer: int, now: float) -> None:
        self.told.append((round(now, 6), peer, False))

    def end_turn(self, _now: float) -> list[Any]:
        return []

    def take_deliveries(self) -> list[Any]:
        return []

    def next_deadline(self) -> float:
        return float("inf")

    def tick(self, now: float) -> None: ...


class Lab:
    """Two hosts; A watches B."""

    def __init__(self) -> None:
        self.told: list[tuple[float, int, bool]] = []
        self.engine = Engine(lambda _host, _dest, _frame: None, lambda _host, _deliveries: None)
        self.network = Network(FATES["xxh3"], self.engine.arrive)
        self.notices = Notices(self.engine, self.network)
        self.links = Links(self.engine, self.network, self.notices)
        self.a, self.b = self.host("a", A), self.host("b", B)
        self.there, self.back = Path(DELAY, ("a", "b")), Path(DELAY, ("b", "a"))
        self.network.set_path(self.there)
        self.network.set_path(self.back)

    def host(self, name: str, short: int) -> Host:
        stack: Any = Listener(short, self.told)
        host = Host(name, stack, SimpleNamespace())  # type: ignore[arg-type]
        self.engine.hosts[short] = host
        return host

    def open(self) -> None:
        self.links.change(self.a, [(B, True)])

    def close(self) -> None:
        self.links.change(self.a, [(B, False)])

    def end_b(self) -> None:
        self.b.is_alive = False
        self.links.end_process(self.b)

    def advance(self, until: float) -> None:
        self.engine.run(nextafter(until, inf))


def test_a_connection_is_up_after_a_round_trip() -> None:
    lab = Lab()
    lab.open()
    lab.advance(1.0)
    assert lab.told == [(2 * DELAY, B, True)]


def test_a_process_that_is_gone_refuses() -> None:
    lab = Lab()
    lab.end_b()
    lab.open()
    lab.advance(1.0)
    assert lab.told == [(2 * DELAY, B, False)]


def test_nobody_answers_for_who_never_was_or_is_stopped_or_cut_off() -> None:
    lab = Lab()
    lab.links.change(lab.a, [(99, True)])
    lab.b.is_paused = True
    lab.open()
    lab.b.is_paused = False
    lab.back.blocked_by = ("cut",)
    lab.open()
    lab.advance(60.0)
    assert lab.told == []


def test_the_end_of_a_process_is_heard_after_the_delay_of_the_path() -> None:
    lab = Lab()
    lab.open()
    lab.advance(1.0)
    lab.end_b()
    lab.advance(2.0)
    assert lab.told[1:] == [(1.0 + DELAY, B, False)]


def test_the_end_of_a_process_that_is_cut_off_is_heard_when_it_is_healed() -> None:
    lab = Lab()
    lab.open()
    lab.advance(1.0)
    lab.back.blocked_by = ("cut",)
    lab.end_b()
    lab.notices.retry()
    lab.advance(20.0)
    assert len(lab.told) == 1
    lab.back.blocked_by = ()
    lab.notices.retry()
    lab.advance(30.0)
    assert lab.told[1:] == [(20.0 + DELAY, B, False)]


def test_who_closes_hears_no_more() -> None:
    lab = Lab()
    lab.open()
    lab.close()
    lab.advance(1.0)
    lab.open()
    lab.advance(2.0)
    lab.close()
    lab.end_b()
    lab.advance(3.0)
    assert lab.told == [(1.0 + 2 * DELAY, B, True)]


def test_a_process_that_ends_before_it_answers_refuses() -> None:
    lab = Lab()
    lab.open()
    lab.advance(DELAY)
    lab.end_b()
    lab.advance(1.0)
    assert lab.told == [(2 * DELAY, B, False)]


def test_a_stopped_member_keeps_its_connections_and_hears_later() -> None:
    lab = Lab()
    lab.open()
    lab.b.is_paused = True
    lab.advance(60.0)
    assert lab.told == [(2 * DELAY, B, True)]
    lab.a.is_paused = True
    lab.end_b()
    lab.advance(70.0)
    assert len(lab.told) == 1
    assert lab.engine.resume(lab.a) == 1
    assert lab.told[1:] == [(70.0, B, False)]


def test_the_dead_hear_nothing() -> None:
    lab = Lab()
    lab.open()
    lab.advance(1.0)
    lab.a.is_alive = False
    lab.links.end_process(lab.a)
    lab.end_b()
    lab.advance(2.0)
    assert len(lab.told) == 1


def test_both_ends_learn_that_their_connection_is_lost_the_peer_when_news_can_pass() -> None:
    lab = Lab()
    lost = LostConnections(lab.engine, lab.notices)
    lab.there.blocked_by = ("cut",)
    lost.give_up(A, B)
    lost.give_up(A, 99)
    lab.advance(1.0)
    assert lab.told == [(0.0, B, False)]

    lab.there.blocked_by = ()
    lab.notices.retry()
    lab.advance(2.0)
    assert lab.told[1:] == [(1.0 + DELAY, A, False)]


def test_the_living_peers_of_a_process_that_ended_learn_of_it() -> None:
    lab = Lab()
    lab.b.is_alive = False
    LostConnections(lab.engine, lab.notices).end_process(lab.b, (A, B, 99))
    lab.advance(1.0)
    assert lab.told == [(DELAY, B, False)]
