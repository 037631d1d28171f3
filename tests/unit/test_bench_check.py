"""A figure counts only if the journals of its run say that nothing was lost on the way."""

from __future__ import annotations

from pathlib import Path

from xxhash import xxh3_64_intdigest

from bench.check import check_journals
from stormcast.node.core.model import Address
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

MESSAGES = 2000


class Run:
    """Two stacks that hand each other their frames, and write down what they did."""

    def __init__(self) -> None:
        settings = load_settings("unicast-only", "fast")
        self.blocks: dict[str, list[bytes]] = {"a-1": [], "b-1": []}
        self.a, self.b = (
            Stack(
                Address(number << 64 | number, name),
                "bench",
                settings,
                xxh3_64_intdigest,
                Tracer(number, 0, xxh3_64_intdigest, self.blocks[f"{name}-1"].append),
                0.0,
            )
            for number, name in ((1, "a"), (2, "b"))
        )
        self.now = 0.0
        self.turn()

    def play(self) -> None:
        """`a` sends, `b` receives, until all is there and acked."""
        dest, sent, arrived = self.b.address.short, 0, 0
        while arrived < MESSAGES:
            while sent < MESSAGES and self.a.try_send(dest, b"%06d" % sent):
                sent += 1
            arrived += self.turn()
        for _ in range(10):
            self.turn()
        for stack in (self.a, self.b):
            stack.record.flush(self.now)
            stack.end_turn(self.now)

    def turn(self) -> int:
        self.now += 1e-3
        for stack, other in ((self.a, self.b), (self.b, self.a)):
            stack.tick(self.now)
            for _dest, head, body in stack.end_turn(self.now):
                other.receive(head + body, self.now)
        return sum(map(len, self.b.take_deliveries()))

    def write(self, folder: Path) -> None:
        """As journals lie on a disk: a folder per member, segments in it."""
        for label, blocks in self.blocks.items():
            (folder / label).mkdir()
            (folder / label / "000000.trace").write_bytes(b"".join(blocks))


def played() -> Run:
    run = Run()
    run.play()
    return run


def test_a_run_in_which_all_arrived_holds(tmp_path: Path) -> None:
    played().write(tmp_path)
    checked = check_journals(tmp_path, MESSAGES)
    assert checked.holds
    assert checked.findings == dict.fromkeys(("G1", "G2", "G3", "G4"), "holds")
    assert checked.messages == MESSAGES


def test_a_delivery_that_is_not_in_the_journal_is_a_loss(tmp_path: Path) -> None:
    """The receiver's journal ends early; members are ended while they owe each other everything."""
    run = played()
    run.blocks["b-1"] = run.blocks["b-1"][:1]
    run.write(tmp_path)
    checked = check_journals(tmp_path, MESSAGES)
    assert not checked.holds
    assert checked.findings["G1"].startswith("violated")


def test_journals_that_hold_less_than_was_sent_prove_nothing(tmp_path: Path) -> None:
    played().write(tmp_path)
    checked = check_journals(tmp_path, MESSAGES + 1)
    assert not checked.holds
    assert checked.findings["journals"] == "unknown: 2000 messages in them, and 2001 were sent"


def test_what_an_application_never_saw_is_a_failure_whatever_the_journals_say(
    tmp_path: Path,
) -> None:
    played().write(tmp_path)
    checked = check_journals(tmp_path, MESSAGES, undelivered=3)
    assert not checked.holds
    assert checked.findings["applications"] == "violated: 3 deliveries never came"


def test_no_journals_prove_nothing(tmp_path: Path) -> None:
    checked = check_journals(tmp_path, 0)
    assert not checked.holds
    assert set(checked.findings.values()) == {"unknown: no member left a trace"}
