"""The rule that hands packets with our mark to a queue, in a namespace where other programs may
have rules of their own.

It never changes during a run: it selects packets by their mark, and marks end with the lease. If no
process listens to the queue, packets pass (`bypass`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stormcast.chaos.drivers.base import DECIDE, QUEUED_MASK, DriverError, Run, Site, inside

QUEUE: Final = 0x5C00
"""The number of the queue: chosen so that no other program is likely to use it."""
CHAIN_LENGTH: Final = 28
"""The most characters that iptables takes in the name of a chain."""
_PRIORITY: Final = -150
"""Behind the chain that sets the marks; the priority of iptables' mangle table, too."""


def iptables_rule(chain: str, *, is_called: bool) -> str:
    """Return input for `iptables-restore --noflush`: a chain of our own, and a call of it unless
    there is one.

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
    """Return input for `iptables-restore` that removes the chain and its calls, by the output of
    `iptables-save`; None if there is no such chain."""
    if not any(line.startswith(f":{chain} ") for line in saved.splitlines()):
        return None
    calls = saved.splitlines().count(f"-A INPUT -j {chain}")
    lines = ["*mangle", *[f"-D INPUT -j {chain}"] * calls, f"-F {chain}", f"-X {chain}", "COMMIT"]
    return "\n".join(lines) + "\n"


def nft_rule(table: str) -> str:
    """Return the nft file of a table with the same rule; it replaces such a table."""
    return (
        nft_removal(table)
        + f"table inet {table} {{\n"
        + "\tchain input {\n"
        + f"\t\ttype filter hook input priority {_PRIORITY}; policy accept;\n"
        + f"\t\tmeta mark & {QUEUED_MASK:#x} == {DECIDE:#x} queue flags bypass to {QUEUE}\n"
        + "\t}\n}\n"
    )


def nft_removal(table: str) -> str:
    """Return the nft file that removes the table. To delete a missing table is an error: so the
    file adds it first."""
    return f"table inet {table}\ndelete table inet {table}\n"


@dataclass(slots=True)
class QueueRule:
    """The rule at one site."""

    site: Site
    run: str
    _do: Run
    _by: str = ""
    """The program that made the rule, `iptables` or `nft`; empty: there is none."""

    async def install(self) -> None:
        """Install the rule, by iptables or else nft. DriverError if neither works."""
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
        """Remove the rule. May be called at any time, and twice."""
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
                # A program that cannot list rules has made none.
                continue
            removal = iptables_removal(self._chain, saved)
            if removal is not None:
                await self._say(f"{program}-restore", "--noflush", "-w", stdin=removal)

    async def _say(self, *argv: str, stdin: str = "") -> str:
        return await self._do(inside(self.site, argv), stdin)
