"""An object store in memory, in place of pyarrow's S3: it has objects and no folders, and does as
it is told when something is asked of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

Deed = Callable[[], object]


class Bucket:
    """What `pipeline.store.Store` uses of a file system of pyarrow."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.changed: dict[str, int] = {}
        self.log: list[str] = []
        """What was written and removed, in order."""
        self.sizes: dict[str, int] = {}
        """Sizes that a listing tells, where they are not the real ones."""
        self._deeds: dict[tuple[str, str], Deed] = {}
        self._clock = 1

    def on(self, what: str, path: str, deed: Deed) -> None:
        """Do something once when `path` is listed, read, written or removed."""
        self._deeds[what, path] = deed

    def store(self, path: str, data: bytes) -> None:
        self._clock += 1
        self.objects[path] = data
        self.changed[path] = self._clock

    def take_in(self, directory: Path, at: str) -> None:
        """Put a run directory there."""
        for file in directory.rglob("*"):
            if file.is_file():
                self.store(f"{at}/{file.relative_to(directory).as_posix()}", file.read_bytes())

    def below(self, at: str) -> set[str]:
        return {path.removeprefix(f"{at}/") for path in self.objects if path.startswith(f"{at}/")}

    # -- As pyarrow has it ------------------------------------------------------------------------

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = selector.base_dir.rstrip("/") + "/"
        self._do("list", selector.base_dir)
        found: dict[str, fs.FileInfo] = {}
        for path in self.objects:
            if not path.startswith(folder):
                continue
            name, slash, _rest = path.removeprefix(folder).partition("/")
            found[name + slash] = (
                fs.FileInfo((folder + name).rstrip("/"), fs.FileType.Directory)
                if slash
                else fs.FileInfo(
                    path,
                    fs.FileType.File,
                    size=self.sizes.get(path, len(self.objects[path])),
                    mtime_ns=self.changed[path],
                )
            )
        if not found:
            raise FileNotFoundError(folder)
        return list(found.values())

    def open_input_stream(self, path: str, compression: str | None = "detect") -> io.BytesIO:
        assert compression is None
        self._do("read", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return io.BytesIO(self.objects[path])

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[io.BytesIO]:
        self._do("write", path)
        out = io.BytesIO()
        yield out
        self.store(path, out.getvalue())
        self.log.append(f"put {path}")

    def delete_file(self, path: str) -> None:
        self._do("remove", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        del self.objects[path]
        self.log.append(f"remove {path}")

    def _do(self, what: str, path: str) -> Any:
        deed = self._deeds.pop((what, path), None)
        return deed() if deed is not None else None


def refuses(text: str, kind: type[Exception] = OSError) -> Deed:
    """Fail as pyarrow does."""

    def deed() -> None:
        raise kind(text)

    return deed
