"""What the command prints of a run: lines, and nothing that a terminal would act on."""

from __future__ import annotations

import pytest

from stormcast.chaos.commands import run
from stormcast.chaos.commands.output import in_plain_lines, say
from tests.helpers.shell import Shell

SCENARIO = """
name: two
about: Two members, and a message.
guarantees: [G1]
cluster: {members: 2, stack: unicast-only, timing: fast}
workload:
- {do: unicast, from: n0, to: n1, count: 1, size: 100B}
limits: {run: 5s}
"""


def test_lines_stay_lines_and_the_rest_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_plain_lines("a: é\n  \x1b[2Jb\r\nc\x00") == "a: é\n  \\x1b[2Jb\nc\\x00"
    say("broke off: \x1b[2J\nits log")
    assert capsys.readouterr().err == "broke off: \\x1b[2J\nits log\n"


def test_a_report_is_printed_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Witnesses are texts of traces, which pods have written."""
    monkeypatch.setattr(run, "report", lambda _outcome: "two: holds\n  witness: \x1b[2J")
    assert shell.run(SCENARIO).out == "two: holds\n  witness: \\x1b[2J\n"
