"""The chapters of a soak that have ended, kept for a second judge: each a run directory, announced
by a manifest, all of them within a bound of bytes.

Whoever judges them removes what it is through with. What it was too slow for is dropped, the oldest
first, and a line says so: a chapter is judged, waits, or is said to be dropped.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Final
from uuid import uuid4

from stormcast.chaos.records.digest import digest_of
from stormcast.chaos.session.outcome import RunOutcome, write_run
from stormcast.chaos.soak.player import Window
from stormcast.machine import in_words
from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.quantities import SIZE
from stormcast.whole import append_lines, mend_lines, write_whole

CHAPTERS: Final = "chapters"
"""The folder in the directory of a soak."""
ABOUT: Final = "about.json"
"""The file that says which soak it is of, from which window on, and the bound."""
ANNOUNCED: Final = "announced"
"""The folder of manifests, which a follower reads as a stream."""
DROPPED: Final = "dropped.jsonl"
JUDGED: Final = "verify/verdict.json"
"""The second judge's verdict, in the directory of a chapter that stays as evidence."""
BOUND: Final = 1 << 30
"""The most bytes of chapters that wait, unless another bound is given."""

Tell = Callable[[str], None]


@dataclass(slots=True)
class _Waiting:
    """A chapter that was announced, and may still wait to be judged."""

    first: int
    number: int
    size: int


class KeptChapters:
    """Writes the chapters of one soak. Whatever fails here, the soak goes on."""

    def __init__(self, soak: Path, tell: Tell) -> None:
        self._folder = soak / CHAPTERS
        self._tell = tell
        self._soak = ""
        self._bound = BOUND
        self._waiting: deque[_Waiting] = deque()
        """The oldest first."""
        self._bytes = 0
        self._open: Window | None = None
        """The last window of the chapter that goes on."""
        self._first = 0
        """The first window of that chapter."""
        self._unsaid: list[dict[str, Any]] = []
        """Lines on dropped chapters that could not be written yet."""
        self._has_told = False

    @property
    def is_there(self) -> bool:
        """Whether chapters of this soak are kept already."""
        return (self._folder / ABOUT).is_file()

    def begin(self, bound: int | None, window: int) -> None:
        """Take the folder for the windows from this one on, or go on in it; None: with the bound
        that it has."""
        about = self._about()
        self._soak = str(about.get("soak") or uuid4().hex)
        self._bound = int(bound if bound is not None else about.get("bound", BOUND))
        first = int(about.get("first", window))
        (self._folder / ANNOUNCED).mkdir(parents=True, exist_ok=True)
        told = {"soak": self._soak, "first": first, "bound": self._bound}
        write_whole(self._folder / ABOUT, json.dumps(told) + "\n")
        mend_lines(self._folder / DROPPED)
        for left in self._folder.glob(".[0-9]*"):
            rmtree(left, ignore_errors=True)
        self._find()

    def _about(self) -> dict[str, Any]:
        if not self.is_there:
            return {}
        try:
            told = json.loads((self._folder / ABOUT).read_text())
            return {"soak": str(told["soak"]), "first": int(told["first"]), "bound": told["bound"]}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self._folder / ABOUT} cannot be read ({error}): remove {self._folder}, and "
                "chapters are kept anew"
            ) from None

    def _find(self) -> None:
        """Find what an earlier process of the soak has left to be judged."""
        for path in sorted((self._folder / ANNOUNCED).glob("[0-9]*.json")):
            number = int(path.stem) if path.stem.isdecimal() else -1
            with suppress(OSError, ValueError, KeyError, TypeError):
                told = json.loads(path.read_text())
                if self._waits(number):
                    self._add(_Waiting(int(told["first"]), number, int(told["bytes"])))

    def _add(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._bytes += waiting.size

    def take(self, window: Window) -> None:
        """Take a window that has ended; write its chapter if that has ended as well."""
        if self._open is None:
            self._first = window.number
        self._open = window
        if window.lost or not window.unrest:
            self.end()

    def end(self) -> None:
        """Write the chapter that goes on, as no window of it follows."""
        window, self._open = self._open, None
        if window is None:
            return
        size = sum(map(len, window.run.traces.values()))
        if size > self._bound:
            bound = SIZE.write(float(self._bound))
            self._drop(self._first, window.number, size, f"alone it is larger than {bound}")
            return
        try:
            self._make_room(size)
            self._write(window, size)
        except OSError as error:
            self._drop(self._first, window.number, size, f"it cannot be kept: {in_words(error)}")

    def _write(self, window: Window, size: int) -> None:
        name = f"{window.number:06}"
        directory, part = self._folder / name, self._folder / f".{name}"
        rmtree(part, ignore_errors=True)
        outcome = RunOutcome(
            window.scenario, window.seed, window.judgement, window.run, directory, min_bites=0
        )
        try:
            part.mkdir()
            write_run(outcome, part)
            part.rename(directory)
            manifest = {
                "soak": self._soak,
                "chapter": window.number,
                "first": self._first,
                "path": f"{CHAPTERS}/{name}",
                "digest": digest_of(outcome.files()),
                "verdict": str(window.judgement.verdict),
                "bytes": size,
                "ended": window.ended,
            }
            write_whole(self._folder / ANNOUNCED / f"{name}.json", json.dumps(manifest) + "\n")
        except OSError:
            rmtree(part, ignore_errors=True)
            rmtree(directory, ignore_errors=True)
            raise
        self._add(_Waiting(self._first, window.number, size))

    # -- The bound ---------------------------------------------------------------------------------

    def _waits(self, number: int) -> bool:
        """Whether a chapter still waits to be judged."""
        directory = self._folder / f"{number:06}"
        return directory.is_dir() and not (directory / JUDGED).exists()

    def _make_room(self, size: int) -> None:
        """Drop the oldest chapters that wait, until another one of this size has room."""
        if self._bytes + size <= self._bound:
            return
        self._waiting = deque(one for one in self._waiting if self._waits(one.number))
        self._bytes = sum(one.size for one in self._waiting)
        while self._waiting and self._bytes + size > self._bound:
            oldest = self._waiting.popleft()
            self._bytes -= oldest.size
            bound = SIZE.write(float(self._bound))
            why = f"{bound} of chapters waited to be judged, and it was the oldest"
            self._drop(oldest.first, oldest.number, oldest.size, why)

    def _drop(self, first: int, number: int, size: int, why: str) -> None:
        """Say that a chapter is dropped, and then remove it: whoever does not find it finds why."""
        if not self._has_told:
            self._has_told = True
            self._tell(
                f"chapter {number} is dropped before Spark judged it: {why} "
                f"(all that are: {self._folder / DROPPED})"
            )
        self._unsaid.append({"chapter": number, "first": first, "bytes": size, "why": why})
        with suppress(OSError):
            # Where there is no room even for a line, it is said with the next one.
            self._say()
        name = f"{number:06}"
        with suppress(OSError):
            (self._folder / ANNOUNCED / f"{name}.json").unlink(missing_ok=True)
            (self._folder / name).rename(self._folder / f".{name}")
        rmtree(self._folder / f".{name}", ignore_errors=True)

    def _say(self) -> None:
        append_lines(
            self._folder / DROPPED, "".join(json.dumps(one) + "\n" for one in self._unsaid)
        )
        self._unsaid.clear()
