"""The rule that queues marked packets: what is read by iptables and nft, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from stormcast.chaos.drivers.base import (
    ALIVE,
    CHANCES,
    CLASS,
    DECIDE,
    DONE,
    QUEUED_MASK,
    DriverError,
    Site,
)
from stormcast.chaos.drivers.queue_rule import (
    CHAIN_LENGTH,
    QueueRule,
    iptables_removal,
    iptables_rule,
    nft_rule,
)

RUN = "sc1234567_1234567890_12"
OTHERS = """\
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:theirs - [0:0]
-A INPUT -j theirs
-A theirs -p tcp -j ACCEPT
COMMIT
"""


class Machine:
    """Answers as the programs would, and notes what they were told to do."""

    def __init__(self, saved: str = OTHERS, *, lacks: Sequence[str] = ()) -> None:
        self.saved = saved
        self.lacks = tuple(lacks)
        self.told: list[tuple[str, str]] = []

    async def __call__(self, argv: Sequence[str], stdin: str) -> str:
        if argv[0] in self.lacks:
            raise DriverError(f"there is no program {argv[0]}")
        if argv[0].endswith("-save"):
            return self.saved
        self.told.append((argv[0], stdin))
        return ""


def rule(machine: Machine, *addresses: str) -> QueueRule:
    return QueueRule(Site(name="n0", addresses=addresses or ("198.18.0.2",)), RUN, machine)


def test_only_the_two_marks_that_ask_for_it_are_queued() -> None:
    asked = [
        mark
        for mark in (0, ALIVE, DECIDE, CHANCES, DONE, CLASS, CLASS + 2)
        if mark & QUEUED_MASK == DECIDE
    ]
    assert asked == [DECIDE, CHANCES]
    assert f"--mark {DECIDE:#x}/{QUEUED_MASK:#x} -j NFQUEUE" in iptables_rule("c", is_called=True)


def test_nobody_listening_is_always_passed_by() -> None:
    assert "--queue-bypass" in iptables_rule("c", is_called=False)
    assert "flags bypass" in nft_rule("t")


def test_a_chain_of_our_own_is_called_once() -> None:
    assert "-I INPUT -j c\n" in iptables_rule("c", is_called=False)
    assert "INPUT" not in iptables_rule("c", is_called=True)


def test_all_is_one_transaction_of_one_table() -> None:
    lines = iptables_rule("c", is_called=False).splitlines()
    assert (lines[0], lines[-1]) == ("*mangle", "COMMIT")
    assert lines.count("COMMIT") == 1


def test_removal_names_nothing_but_our_chain() -> None:
    assert iptables_removal("c", OTHERS) is None
    saved = OTHERS.replace("-A INPUT -j theirs", ":c - [0:0]\n-A INPUT -j theirs\n-A INPUT -j c")
    assert iptables_removal("c", saved) == "*mangle\n-D INPUT -j c\n-F c\n-X c\nCOMMIT\n"


def test_every_call_of_our_chain_is_removed() -> None:
    saved = ":c - [0:0]\n-A INPUT -j c\n-A INPUT -j c\n"
    assert (iptables_removal("c", saved) or "").count("-D INPUT -j c\n") == 2


def test_the_chain_has_a_name_that_iptables_takes() -> None:
    machine = Machine()
    asyncio.run(rule(machine).install())
    [(_program, text)] = machine.told
    [chain] = [line[1:].split()[0] for line in text.splitlines() if line.startswith(":")]
    assert len(chain) <= CHAIN_LENGTH
    assert RUN.endswith(chain)


def test_ipv6_is_queued_where_the_member_has_it() -> None:
    machine = Machine()
    asyncio.run(rule(machine, "198.18.0.2", "fd00:5c::2").install())
    assert [program for program, _text in machine.told] == ["iptables-restore", "ip6tables-restore"]


def test_installing_twice_is_once() -> None:
    async def twice() -> None:
        one = rule(machine)
        await one.install()
        await one.install()

    machine = Machine()
    asyncio.run(twice())
    assert len(machine.told) == 1


def test_nft_does_it_where_there_is_no_iptables_and_takes_it_back() -> None:
    async def both() -> None:
        one = rule(machine)
        await one.install()
        await one.remove()
        await one.remove()

    machine = Machine(lacks=("iptables-save", "iptables-restore"))
    asyncio.run(both())
    made, removed = (text for _program, text in machine.told)
    assert f"table inet {RUN}_queue {{" in made
    assert removed == f"table inet {RUN}_queue\ndelete table inet {RUN}_queue\n"


def test_where_neither_is_there_both_reasons_are_told() -> None:
    machine = Machine(lacks=("iptables-save", "iptables-restore", "nft"))
    with pytest.raises(DriverError, match=r"n0 cannot be queued: .*iptables-save; nft: .* nft$"):
        asyncio.run(rule(machine).install())


def test_what_one_program_did_is_taken_back_when_the_other_one_cannot() -> None:
    """IPv4 is queued already when it turns out that IPv6 cannot be."""
    chain = RUN[-CHAIN_LENGTH:]
    machine = Machine(f":{chain} - [0:0]\n", lacks=("ip6tables-restore", "ip6tables-save"))
    asyncio.run(rule(machine, "198.18.0.2", "fd00:5c::2").install())
    assert [program for program, _text in machine.told] == [
        "iptables-restore",
        "iptables-restore",
        "nft",
    ]
    assert f"-X {chain}" in machine.told[1][1]
