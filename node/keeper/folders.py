"""The folders of a keeper's members: one for each incarnation, by its number."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

INCARNATIONS: Final = "incarnations"


class Folders:
    """Makes and deletes them. A number is never used twice, whatever was deleted and however often
    the keeper started."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def make(self) -> tuple[int, Path]:
        """Make the folder of the next incarnation; return its number, and the folder."""
        number = self._next_number()
        folder = self._place / INCARNATIONS / f"{number:06}"
        folder.mkdir(parents=True)
        return number, folder

    def delete_all_but(self, kept: Path | None) -> int:
        """Delete all other folders; return how many those were."""
        place = self._place / INCARNATIONS
        folders = sorted(place.iterdir()) if place.is_dir() else []
        gone = [folder for folder in folders if folder != kept]
        for folder in gone:
            shutil.rmtree(folder)
        return len(gone)

    def delete(self, numbers: Collection[int]) -> int:
        """Delete the folders of these incarnations; return how many there were."""
        gone = [self._place / INCARNATIONS / f"{number:06}" for number in sorted(numbers)]
        there = [folder for folder in gone if folder.is_dir()]
        for folder in there:
            shutil.rmtree(folder)
        return len(there)

    def _next_number(self) -> int:
        used = self._place / "incarnation"
        number = 1 + (int(used.read_text()) if used.exists() else 0)
        fresh = used.with_suffix(".new")
        fresh.write_text(str(number))
        fresh.rename(used)
        return number
