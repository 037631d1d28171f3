"""A soak that is followed, as its directory has it: chapters that wait or were dropped, windows,
and whether it is over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from stormcast.locks import is_held
from stormcast.pipeline.chapters import Manifest, name_of, read_manifest
from stormcast.pipeline.questions import VerifyError
from stormcast.whole import write_whole

FOLLOW: Final = "follow"
"""The folder of a follower in the directory of a soak."""
CHECKPOINT: Final = "checkpoint"
OF: Final = "of"
"""The file beside it that says of which soak it is."""


class FollowedSoak:
    """The directory of a soak that keeps chapters; VerifyError if it does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / FOLLOW
        self.chapters = path / "chapters"
        self.announced = self.chapters / "announced"
        self._dropped_at = 0
        """Bytes of the lines on dropped chapters that were read."""
        if not (path / "soak.json").is_file():
            raise VerifyError(f"{path} is no soak: name what stormcast soak has left")
        about = self.chapters / "about.json"
        if not about.is_file():
            raise VerifyError(
                f"{path} keeps no chapters: stormcast soak --keep-chapters does, with --resume "
                f"{path} those that follow"
            )
        told = _read(about)
        self.identity = str(told.get("soak"))
        self._first = int(told.get("first", 0))

    @property
    def checkpoint(self) -> Path:
        return self.folder / CHECKPOINT

    def begin(self) -> None:
        """Make the follower's folder; VerifyError if it is there, and of another soak."""
        of = self.folder / OF
        if self.checkpoint.exists() or of.exists():
            here = of.read_text().strip() if of.is_file() else ""
            if here != self.identity:
                raise VerifyError(
                    f"{self.folder} is of another soak: remove it, or follow that one"
                )
        self.folder.mkdir(exist_ok=True)
        write_whole(of, f"{self.identity}\n")
        self.announced.mkdir(exist_ok=True)

    def is_over(self, *, until_over: bool) -> bool:
        """Whether no chapter will come any more. One that nobody plays and that is not over, as it
        was killed, may be resumed: `until_over` waits for that."""
        held = is_held(self.path)
        if held:
            return False
        status = self.path / "status.json"
        is_said = status.is_file() and _read(status).get("is_over") is True
        return is_said or (held is False and not until_over)

    def directory(self, chapter: int) -> Path:
        """Return where a chapter is, or was."""
        return self.chapters / name_of(chapter)

    def waiting(self, is_done: Callable[[int], bool]) -> list[Path]:
        """Return the manifests of chapters that are not done."""
        return sorted(path for path in self._manifests() if not is_done(int(path.stem)))

    def tidy(self, is_done: Callable[[int], bool]) -> None:
        """Remove the manifests of chapters that are done: a kill has left them."""
        for path in self._manifests():
            if is_done(int(path.stem)):
                path.unlink(missing_ok=True)

    def _manifests(self) -> Iterator[Path]:
        paths = self.announced.glob("[0-9]*.json")
        return (path for path in paths if path.stem.isascii() and path.stem.isdecimal())

    def read(self, path: Path) -> Manifest | None:
        """Read a manifest that the stream has passed over."""
        return read_manifest(path, self.identity)

    def end(self, chapter: int) -> None:
        """Remove the manifest of a chapter that is done."""
        (self.announced / f"{name_of(chapter)}.json").unlink(missing_ok=True)

    def new_drops(self) -> Iterator[tuple[Manifest, str]]:
        """Yield the chapters that the soak has dropped since this was last asked, and why."""
        path = self.chapters / "dropped.jsonl"
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._dropped_at)
            # A line without its end is still being written.
            whole, newline, _rest = file.read().rpartition(b"\n")
        self._dropped_at += len(whole) + len(newline)
        for line in whole.splitlines():
            try:
                told = json.loads(line)
                manifest = Manifest(chapter=int(told["chapter"]), first=int(told["first"]))
                yield manifest, f"it was dropped: {told['why']}"
            except (ValueError, KeyError, TypeError) as error:
                raise VerifyError(f"{path} cannot be read ({error}): mend it") from None

    def windows(self) -> Iterator[int]:
        """Yield the windows since chapters are kept that left traces."""
        path = self.path / "windows.jsonl"
        if not path.is_file():
            return
        with path.open() as file:
            for line in file:
                if not line.endswith("\n"):
                    return
                try:
                    told = json.loads(line)
                    window, has_traces = int(told["window"]), bool(told["trace_bytes"])
                except (ValueError, KeyError, TypeError) as error:
                    raise VerifyError(f"{path} cannot be read ({error}): mend it") from None
                if has_traces and window >= self._first:
                    yield window


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
    except ValueError as error:
        raise VerifyError(f"{path} is no JSON ({error}): mend it") from None
    return told if isinstance(told, dict) else {}
