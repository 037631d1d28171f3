"""Two people chat: members of one group, in one process."""

import asyncio

from stormcast import Channel, ChannelConfig, load_settings

SETTINGS = load_settings("udp", "fast", protocols={"UDP": {"bind_addr": "127.0.0.1"}})


async def main() -> list[str]:
    shown: list[str] = []

    def person(name: str) -> Channel:
        channel = Channel(ChannelConfig(settings=SETTINGS, cluster="chat", name=name))
        channel.on_message = lambda text, sender: shown.append(
            f"{name} sees {sender}: {bytes(text).decode()}"
        )
        channel.on_view = lambda view: shown.append(
            f"{name} is with {', '.join(map(str, view.members))}"
        )
        return channel

    async with person("ann") as ann:
        async with person("bob") as bob:
            await ann.send(None, b"hello, all")
            await bob.send(bob.member("ann"), b"hello, you")
            while sum("hello" in line for line in shown) < 3:
                await asyncio.sleep(0.01)
    return shown


if __name__ == "__main__":
    print("\n".join(asyncio.run(main())))
