"""A set that every member of a group has, whoever joins, leaves or merges. See docs/api.md."""

import asyncio
import json

from stormcast import Address, Channel, ChannelConfig, Payload, View, load_settings

SETTINGS = load_settings("udp", "fast", protocols={"UDP": {"bind_addr": "127.0.0.1"}})

Change = tuple[int, str, bool]
"""Time, who, whether the element is in."""


class ReplicatedSet:
    def __init__(self, name: str) -> None:
        self.channel = Channel(ChannelConfig(settings=SETTINGS, cluster="set", name=name))
        self.channel.on_message = self._on_message
        self.channel.on_view = self._on_view
        self._changes: dict[str, Change] = {}
        self._known: set[Address] = set()
        self._clock = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def elements(self) -> set[str]:
        return {element for element, change in self._changes.items() if change[2]}

    async def add(self, element: str) -> None:
        await self._change(element, is_in=True)

    async def remove(self, element: str) -> None:
        await self._change(element, is_in=False)

    async def _change(self, element: str, *, is_in: bool) -> None:
        self._clock += 1
        change = (self._clock, self.channel.name, is_in)
        # Own multicasts come back, and are applied with those of all others.
        await self.channel.send(None, json.dumps({element: change}).encode())

    def _on_message(self, payload: Payload, sender: Address) -> None:
        for element, (time, name, is_in) in json.loads(bytes(payload)).items():
            change = (time, name, is_in)
            self._changes[element] = max(change, self._changes.get(element, change))
            self._clock = max(self._clock, time)

    def _on_view(self, view: View) -> None:
        new = set(view.members) - self._known - {self.channel.address}
        self._known = set(view.members)
        everything = json.dumps(self._changes).encode()
        for member in new:
            # A callback must not wait; a task may.
            task = asyncio.ensure_future(self.channel.send(member, everything))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def main() -> list[set[str]]:
    a, b, c = (ReplicatedSet(name) for name in "abc")
    async with a.channel, b.channel:
        await a.add("apple")
        await b.add("pear")
        await asyncio.gather(a.remove("apple"), b.add("plum"))
        async with c.channel:
            await c.add("cherry")
            wanted = {"pear", "plum", "cherry"}
            while not a.elements == b.elements == c.elements == wanted:
                await asyncio.sleep(0.01)
            return [a.elements, b.elements, c.elements]


if __name__ == "__main__":
    print(asyncio.run(main()))
