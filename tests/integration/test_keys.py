"""Groups with a key, over real sockets: holders of it are a group, and nobody else is heard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.keys.cli import key
from stormcast.node.stack.receiving import NOT_TAKEN
from stormcast.node.transports.handshake import LENGTH
from tests.helpers.station import on_a_loop, until
from tests.integration.test_channel import KINDS, gather, group, kinds, size, tcp, udp

STACKS = pytest.mark.parametrize("kind", ["udp", "tcp", "tcp-nio2"])


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stormcast.node.keys.key_file.LOOK_SECONDS", 0.1)


@pytest.fixture(name="keys")
def _keys(tmp_path: Path) -> list[str]:
    """Two files with a key each."""
    paths = [str(tmp_path / name) for name in ("one", "another")]
    for path in paths:
        key(["new", path])
    return paths


def refusals(channel: Channel, reason: str) -> float:
    figures = channel.stats()
    return sum(figures.get(f"{of}{reason}", 0) for of in ("stack.refused.", "transport.refused_"))


@kinds
@on_a_loop
async def test_members_with_a_key_are_a_group(kind: str, keys: list[str]) -> None:
    async with group(KINDS[kind](), "a", "b", "c", key_file=keys[0]) as members:
        got = [gather(one) for one in members]
        for one in members:
            await one.send(None, one.name.encode())
            await one.send(members[0].address, b"to a")
        large = bytes(200_000)
        await members[2].send(None, large)
        expected = sorted([("a", b"a"), ("b", b"b"), ("c", b"c"), ("c", large)])
        for heard in got[1:]:
            await until(lambda heard=heard: sorted(heard) == expected, "all of it")
        await until(lambda: len(got[0]) == 7, "and what was for it alone")
        assert all(not refusals(one, "forged") for one in members)


@STACKS
@on_a_loop
async def test_others_are_not_heard_and_both_sides_say_so(kind: str, keys: list[str]) -> None:
    """Of two that come later one has another key, and one has none."""
    settings = KINDS[kind]()
    said: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    async with group(settings, "a", key_file=keys[0], on_notice=said["a"].append) as (a,):
        cluster = a.config.cluster
        b, c = (
            Channel(
                ChannelConfig(
                    settings=settings,
                    cluster=cluster,
                    name=name,
                    key_file=path,
                    on_notice=said[name].append,
                )
            )
            for name, path in (("b", keys[1]), ("c", ""))
        )
        try:
            await asyncio.gather(b.connect(), c.connect())
            await until(lambda: refusals(a, "key-unknown") and refusals(a, "not-sealed"))
            await until(lambda: refusals(b, "key-unknown"), "b hears that a has another key")
            await until(lambda: refusals(c, "sealed"), "c hears that a has a key")
            await until(lambda: len(said["a"]) >= 2 and said["b"], "lines for people")
            assert [size(one) for one in (a, b, c)] == [1, 1, 1]
            for reason in ("without the key", "a key that this member has not"):
                assert sum(reason in line for line in said["a"]) == 1
            assert any("a key that this member has not" in line for line in said["b"])
            await until(lambda: any("has no key" in line for line in said["c"]), "and c is told")
        finally:
            await b.close()
            await c.close()


@STACKS
@on_a_loop
async def test_members_of_two_clusters_are_both_told_of_it(kind: str) -> None:
    settings = KINDS[kind]()
    said: dict[str, list[str]] = {"a": [], "b": []}
    async with group(settings, "a", on_notice=said["a"].append) as (a,):
        other = ChannelConfig(
            settings=settings, cluster="another", name="b", on_notice=said["b"].append
        )
        async with Channel(other) as b:
            for lines in said.values():
                await until(lambda lines=lines: any("of another cluster" in one for one in lines))
            assert [size(one) for one in (a, b)] == [1, 1]


@STACKS
@on_a_loop
async def test_keys_change_under_load_and_nothing_is_lost(kind: str, keys: list[str]) -> None:
    said: list[str] = []
    path = Path(keys[0])
    names = ("a", "b", "c")
    async with group(KINDS[kind](), *names, key_file=keys[0], on_notice=said.append) as members:
        got = [gather(one) for one in members]
        sent = 0
        is_changing = True

        async def load() -> None:
            nonlocal sent
            while is_changing:
                for one in members:
                    await one.send(None, b"%d" % sent)
                sent += 1
                await asyncio.sleep(0.002)

        sending = asyncio.create_task(load())
        for step, line in (("add", ", and opens"), ("turn", ", and opens"), ("drop", "")):
            before = len(said)
            key([step, str(path)])
            await until(lambda before=before: len(said) == before + 3, f"{step} at all three")
            assert all(line in one for one in said[before:])
        is_changing = False
        await sending
        expected = [b"%d" % number for number in range(sent)]
        for heard in got:
            await until(lambda heard=heard: len(heard) == 3 * sent, "all of it")
            for name in names:
                assert [text for sender, text in heard if sender == name] == expected
        for one in members:
            assert size(one) == 3
            assert not refusals(one, "key-unknown")
            assert not refusals(one, "forged")


@on_a_loop
async def test_what_was_recorded_changes_nothing_when_it_comes_again(keys: list[str]) -> None:
    """All that a member ever took comes again, in order, and then backwards."""
    async with group(udp(), "a", "b", key_file=keys[0]) as (a, b):
        recorded: list[bytes] = []
        receive = b.runtime.receive

        def record(datagram: memoryview, now: float) -> int:
            recorded.append(bytes(datagram))
            return receive(datagram, now)

        b.runtime.receive = record
        got = gather(b)
        for number in range(200):
            await a.send(b.address, b"%d" % number)
            await a.send(None, b"all %d" % number)
        await until(lambda: len(got) == 400)
        before = refusals(b, "replayed")
        view, places = b.view, dict(b.runtime.transport._places.places.at)  # type: ignore[attr-defined]
        replayed = list(recorded)
        b.runtime.receive = receive
        for datagram in (*replayed, *reversed(replayed)):
            assert receive(memoryview(datagram), b.runtime.now()) == NOT_TAKEN
        b.runtime.wake()
        await asyncio.sleep(0.2)
        assert len(got) == 400
        assert b.view is view
        assert b.runtime.transport._places.places.at == places  # type: ignore[attr-defined]
        assert refusals(b, "replayed") >= before + 2 * len(replayed)
        await a.send(b.address, b"goes on")
        await until(lambda: got[-1:] == [("a", b"goes on")])


@pytest.mark.parametrize("kind", ["tcp", "tcp-nio2"])
@on_a_loop
async def test_a_frame_that_comes_twice_on_a_connection_does_not_end_it(
    kind: str, keys: list[str]
) -> None:
    """A member says the same on a connection that stands, and on one that it is making to another
    address of the same peer; what waits in that is then sent on the first."""
    async with group(KINDS[kind](), "a", "b", key_file=keys[0]) as (a, b):
        got = gather(b)
        send = a.runtime.transport.send
        a.runtime.transport.send = lambda frames: send([*frames, *frames])
        for number in range(1, 6):
            await a.send(None, b"%d" % number)
            await until(lambda number=number: len(got) == number)
        assert got == [("a", b"%d" % number) for number in range(1, 6)]
        await until(lambda: refusals(b, "replayed") >= 5, "each comes again")
        assert "transport.closed_bad-frame" not in b.stats()
        assert b.stats()["transport.opened"] == 1


@on_a_loop
async def test_a_hello_that_was_recorded_takes_no_connection_over(keys: list[str]) -> None:
    """Without a key the second connection of a peer replaces the first."""
    async with group(tcp(), "a", key_file=keys[0]) as (a,):
        table = a.runtime.transport._table  # type: ignore[attr-defined]
        read, hellos = table.hellos.read_untrusted, []
        table.hellos.read_untrusted = lambda body: hellos.append(body) or read(body)
        config = ChannelConfig(
            settings=a.config.settings, cluster=a.config.cluster, name="b", key_file=keys[0]
        )
        async with Channel(config) as b:
            await until(lambda: size(a) == 2)
            got = gather(a)
            connection = table.open[b.address.short]
            recorded = hellos.copy()
            for hello in recorded:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", a.runtime.transport.port
                )
                writer.write(LENGTH.pack(len(hello)) + hello)
                assert await reader.read() == b""
                writer.close()
            assert refusals(a, "replayed") == len(recorded) > 0
            assert table.open[b.address.short] is connection
            await b.send(None, b"goes on")
            await until(lambda: got == [("b", b"goes on")])


@on_a_loop
async def test_a_key_file_that_is_missing_is_said_before_anything_is_bound(tmp_path: Path) -> None:
    channel = Channel(
        ChannelConfig(settings=udp(), cluster="c", name="a", key_file=str(tmp_path / "none"))
    )
    with pytest.raises(Exception, match=r"key_file .*No such file.*stormcast key new"):
        await channel.connect()
    await channel.close()
