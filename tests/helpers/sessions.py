"""The processes of this machine, and which of them belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seen:
    """A process that was found running."""

    pid: int
    started: int
    """In clock ticks since boot: the pid alone may be that of another process soon."""
    session: int
    state: str
    words: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.state}) {self.words[:120]}"

    def state_now(self) -> str:
        """The letter of its state; T where it is stopped, or gone."""
        now = look_at(self.pid)
        return now.state if now is not None and now.started == self.started else "T"


def look_at(pid: int) -> Seen | None:
    """A process; None if it does not run: what has ended and was not waited for does not."""
    place = Path(f"/proc/{pid}")
    try:
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return Seen(pid, int(fields[19]), int(fields[3]), fields[0], words.strip())


def running() -> Iterator[Seen]:
    """All processes that run."""
    for path in Path("/proc").glob("[0-9]*"):
        one = look_at(int(path.name))
        if one is not None:
            yield one


def session_of(pid: int) -> list[Seen]:
    """All that run in a session, its leader included."""
    return [one for one in running() if one.session == pid]
