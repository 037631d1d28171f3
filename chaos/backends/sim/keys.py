"""The keys of a simulated cluster: all that real members draw follows from the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from xxhash import xxh3_64_intdigest

from stormcast.node.keys.cluster_keys import KEY_SIZE, ClusterKey, changed
from stormcast.node.keys.key_file import LOOK_SECONDS
from stormcast.node.keys.seals import Seals


class SimKeys:
    """The content of the key file of all members, and the times at which each of them rereads
    it."""

    def __init__(self, seed: int, given: tuple[ClusterKey, ...] = ()) -> None:
        self._random = Random(f"{seed}/keys")
        self._keys: tuple[ClusterKey, ...] = given or (self._draw(),)
        self._given: list[tuple[int, Seals]] = []
        """Short id and seals of each incarnation."""
        self._cluster = xxh3_64_intdigest(b"sim") & 0xFFFFFFFF

    def _draw(self) -> ClusterKey:
        return ClusterKey(self._random.randbytes(KEY_SIZE))

    def seals(self, label: str, short: int) -> Seals:
        """Return the seals of a new incarnation."""
        given = Seals(self._keys, self._cluster, short, Random(f"{label}/seals/{short}").randbytes)
        self._given.append((short, given))
        return given

    def change(self, step: str) -> Iterator[tuple[int, float, Callable[[], None]]]:
        """Do a step; yield for each incarnation its short id, the seconds until it rereads the
        file, and the function that does so."""
        self._keys = changed(self._keys, step, self._draw)
        for short, seals in self._given:
            yield short, self._random.uniform(0.0, LOOK_SECONDS), partial(self._look, seals)

    def _look(self, seals: Seals) -> None:
        """Have a member take the keys that stand in the file now."""
        seals.set_keys(self._keys)
