"""The journals and logs of one member, which its keeper keeps, brought into the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile
from typing import IO, Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.pods.archive import BadArchive, unpack_untrusted
from stormcast.chaos.backends.pods.http_pool import TooLongError
from stormcast.chaos.backends.pods.keeper_client import KeeperClient, patiently, words_of
from stormcast.chaos.backends.pods.memory import memory_limit
from stormcast.node.control.client import Reply
from stormcast.node.reading.quantities import SETTING_SIZE
from stormcast.node.trace.files import read_traces

JOURNAL_SECONDS: Final = 120.0
"""Seconds that it may take to fetch all journals of a member."""
JOURNALS_BYTES: Final = 1 << 30
"""Bytes of all journals and logs of a member, unless a variable says more: what one incarnation's
journal may hold."""
JOURNALS_SHARE: Final = 8
"""The part of a container's memory that the journals of one member may take, unless a variable says
more: whoever judges a run holds the traces of all members."""
JOURNALS_VARIABLE: Final = "STORMCAST_MAX_JOURNALS"


def journals_bound() -> int:
    """Return the bytes of journals and logs that are fetched of a member: a pod that was taken over
    must not have the container ended that fetches them."""
    limit = memory_limit()
    return JOURNALS_BYTES if limit is None else min(JOURNALS_BYTES, limit // JOURNALS_SHARE)


def chosen_bound(environ: Mapping[str, str]) -> int:
    """Return what the environment says, or else `journals_bound`."""
    if most := environ.get(JOURNALS_VARIABLE):
        return int(SETTING_SIZE.read(most, JOURNALS_VARIABLE))
    return journals_bound()


class Journals:
    """Fetches the journals and logs of a member."""

    def __init__(self, keeper: KeeperClient, name: str, bound: int) -> None:
        self._keeper = keeper
        self._name = name
        self._bound = bound
        """The most bytes of journals and logs that are fetched."""
        self.numbers: dict[str, int] = {}
        """By the label of a trace, the keeper's number of its incarnation."""

    def fetch(self, folder: Path, incarnations: Mapping[int, int]) -> dict[str, bytes]:
        """Fetch the journals and logs into the folder of the run; returns the traces of these
        incarnations, which the keeper knows by their numbers: how many of the run each is."""
        place = folder / self._name / "journal"
        place.parent.mkdir(parents=True, exist_ok=True)
        # Named at no time: whatever ends this process, it leaves nothing behind.
        with TemporaryFile(dir=place.parent) as tar:
            self._fetch_tar(tar)
            # What was fetched before may have segments that the member has dropped since.
            rmtree(place, ignore_errors=True)
            try:
                found = unpack_untrusted(tar, place)
            except BadArchive as error:
                raise BackendError(f"the journals of {self._name} are refused: {error}") from None
        traces: dict[str, bytes] = {}
        for number, life in incarnations.items():
            came = place / f"{number:06}"
            if came.name not in found:
                raise BackendError(
                    f"a journal of {self._name} is gone: another run has the pod, or it was "
                    "replaced"
                )
            if (log := came / "member.log").exists():
                log.replace(folder / self._name / f"{self._name}-{life}.log")
            if (journal := came / "journal").is_dir():
                read = read_traces(journal)
                self.numbers.update(dict.fromkeys(read, number))
                traces.update(read)
        return traces

    def _fetch_tar(self, tar: IO[bytes]) -> None:
        """Write the tar of the journals and logs into a file as it comes."""
        try:
            reply = patiently(lambda: self._ask(tar))
        except TooLongError:
            raise BackendError(
                f"the journals of {self._name} have more than {self._bound} bytes: make the run "
                f"shorter, or set {JOURNALS_VARIABLE} to more, such as 4GiB"
            ) from None
        if not reply.is_ok:
            raise BackendError(f"the journals of {self._name} do not come: {words_of(reply)}")

    def _ask(self, tar: IO[bytes]) -> Reply:
        tar.seek(0)
        tar.truncate()
        return self._keeper.reply("GET", "/journals", None, JOURNAL_SECONDS, self._bound, tar)
