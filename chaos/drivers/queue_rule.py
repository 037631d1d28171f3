"""The one rule that hands packets with our mark to a queue, in a namespace where others may have
rules of their own.

It never changes while a run lasts: what it takes is decided by the mark, and the mark ends with the
lease. Where nobody listens to the queue, packets pass it (`bypass`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stormcast.chaos.drivers.base import DECIDE, QUEUED_MASK, DriverError, Run, Site, inside

QUEUE: Final = 0x5C00
"""The number of the queue: any, but one that nobody else has."""
CHAIN_LENGTH: Final = 28
"""Characters of the name of a chain that iptables takes."""
_PRIORITY: Final = -150
"""Behind the chain that sets the marks; iptables' mangle table has the same."""


def iptables_rule(chain: str, *, is_called: bool) -> str:
    """What `iptables-restore --noflush` reads: a chain of our own, and a call unless there is one.

    All of it is done in one transaction, and no rule but ours is touched.
    """
    match = f"-m mark --mark {DECIDE:#x}/{QUEUED_MASK:#x}"
    lines = [
        "*mangle",
        # Makes the chain, or empties the one that is there.
        f":{chain} -",
        f"-A {chain} {match} -j NFQUEUE --queue-num {QUEUE} --queue-bypass",
        *([] if is_called else [f"-I INPUT -j {chain}"]),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def iptables_removal(chain: str, saved: str) -> str | None:
    """What removes the chain and its calls, by what `iptables-save` says; None: it is not there."""
    if not any(line.startswith(f":{chain} ") for line in saved.splitlines()):
        return None
    calls = saved.splitlines().count(f"-A INPUT -j {chain}")
    lines = ["*mangle", *[f"-D INPUT -j {chain}"] * calls, f"-F {chain}", f"-X {chain}", "COMMIT"]
    return "\n".join(lines) + "\n"


def nft_rule(table: str) -> str:
    """The same as a table of nftables, in place of one that may be there."""
    return (
        nft_removal(table)
        + f"table inet {table} {{\n"
        + "\tchain input {\n"
        + f"\t\ttype filter hook input priority {_PRIORITY}; policy accept;\n"
        + f"\t\tmeta mark & {QUEUED_MASK:#x} == {DECIDE:#x} queue flags bypass to {QUEUE}\n"
        + "\t}\n}\n"
    )


def nft_removal(table: str) -> str:
    """What removes it. To delete what is not there is an error: so make sure that it is."""
    return f"table inet {table}\ndelete table inet {table}\n"


@dataclass(slots=True)
class QueueRule:
    """The rule at one site."""

    site: Site
    run: str
    _do: Run
    _by: str = ""
    """By which program it was made."""

    async def install(self) -> None:
        """Have marked packets go to the queue. DriverError if neither way is there."""
        if self._by:
            return
        try:
            for program in self._programs():
                saved = await self._say(f"{program}-save", "-t", "mangle")
                called = f"-A INPUT -j {self._chain}" in saved.splitlines()
                rule = iptables_rule(self._chain, is_called=called)
                await self._say(f"{program}-restore", "--noflush", "-w", stdin=rule)
            self._by = "iptables"
        except DriverError as error:
            await self._remove_iptables()
            try:
                await self._say("nft", "-f", "-", stdin=nft_rule(self._table))
            except DriverError as other:
                raise DriverError(
                    f"packets of {self.site.name} cannot be queued: iptables: {error}; nft: {other}"
                ) from None
            self._by = "nft"

    async def remove(self) -> None:
        """Remove it. Safe at any time, and twice."""
        by, self._by = self._by, ""
        if by == "iptables":
            await self._remove_iptables()
        elif by == "nft":
            await self._say("nft", "-f", "-", stdin=nft_removal(self._table))

    @property
    def _chain(self) -> str:
        return self.run[-CHAIN_LENGTH:]

    @property
    def _table(self) -> str:
        return f"{self.run}_queue"

    def _programs(self) -> list[str]:
        has_ipv6 = any(":" in address for address in self.site.addresses)
        return ["iptables", "ip6tables"] if has_ipv6 else ["iptables"]

    async def _remove_iptables(self) -> None:
        for program in self._programs():
            try:
                saved = await self._say(f"{program}-save", "-t", "mangle")
            except DriverError:
                # Where it cannot be asked, nothing was made with it.
                continue
            removal = iptables_removal(self._chain, saved)
            if removal is not None:
                await self._say(f"{program}-restore", "--noflush", "-w", stdin=removal)

    async def _say(self, *argv: str, stdin: str = "") -> str:
        return await self._do(inside(self.site, argv), stdin)
