"""Keys of a cluster: made, read from a file, named by an id that tells nothing of them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Final

from stormcast.node.core.errors import ConfigError, require
from stormcast.node.keys.private_files import check_private

KEY_SIZE: Final = 32
MOST: Final = 2
"""Keys that are accepted at a time: the one in force and, while keys are changed, another."""
_LINE: Final = re.compile(rf"[0-9a-f]{{{2 * KEY_SIZE}}}")


@dataclass(frozen=True, slots=True)
class ClusterKey:
    """A key that all members of a cluster have."""

    secret: bytes = field(repr=False)
    id: int = field(init=False)
    """Travels with each sealed frame, and stands in messages."""

    def __post_init__(self) -> None:
        require(len(self.secret) == KEY_SIZE, f"a cluster key has {KEY_SIZE} bytes")
        digest = sha256(b"stormcast-key-id" + self.secret).digest()
        object.__setattr__(self, "id", int.from_bytes(digest[:4]))

    @property
    def name(self) -> str:
        """The id as people read it."""
        return f"{self.id:08x}"


def new_key() -> ClusterKey:
    """Draw a key."""
    return ClusterKey(token_bytes(KEY_SIZE))


def write_new_key(path: Path) -> ClusterKey:
    """Draw a key into a new file that only its owner can read."""
    key = new_key()
    try:
        _write_new(path, (key,))
    except FileExistsError:
        raise ConfigError(
            f"{path} exists: a key is never overwritten; name another file, or remove it"
        ) from None
    return key


def changed(
    keys: tuple[ClusterKey, ...], step: str, make: Callable[[], ClusterKey] = new_key
) -> tuple[ClusterKey, ...]:
    """Return the keys after a step of their change: `add` a new one that opens, `turn` to seal by
    it, `drop` the old one. ConfigError for a step that is not due."""
    if step == "add":
        require(
            len(keys) < MOST,
            f"there are {len(keys)} keys, and {MOST} are accepted at a time; drop the old one "
            "first",
        )
        return (*keys, make())
    otherwise = "add one first" if step == "turn" else "the last one is never dropped"
    require(len(keys) == MOST, f"there is one key; {otherwise}")
    return keys[::-1] if step == "turn" else keys[:1]


def change_keys(path: Path, step: str) -> tuple[ClusterKey, ...]:
    """Do a step of a change of keys to a file; return the keys that are in it now."""
    try:
        keys = changed(read_keys(str(path), "key file"), step)
        write_keys(path, keys)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return keys


def write_keys(path: Path, keys: Sequence[ClusterKey]) -> None:
    """Replace the keys of a file, all at once: members may read it at any moment. Whoever may read
    it before may read it afterwards, and nobody else."""
    # A link stays one: others may read the file by its own name.
    path = path.resolve()
    before = path.stat()
    check_private(before, "key file", str(path))
    fresh = path.with_name(f".{path.name}.{token_hex(4)}")
    _write_new(fresh, keys, before)
    fresh.replace(path)


def _write_new(
    path: Path, keys: Sequence[ClusterKey], before: os.stat_result | None = None
) -> None:
    """Write keys into a file that is not there yet, for those who could read the one `before`; what
    cannot be written whole is not there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            if before is not None:
                _give(descriptor, before)
            file.writelines(f"{key.secret.hex()}\n" for key in keys)
            file.flush()
            os.fsync(descriptor)
    except (OSError, ConfigError) as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def _give(descriptor: int, like: os.stat_result) -> None:
    """Give a new file the owner, group and mode of another one."""
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        except OSError:
            raise ConfigError(
                f"it belongs to user {like.st_uid} and group {like.st_gid}, and you may not give "
                "them the new one; do this step as root"
            ) from None
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def read_keys(path: str, what: str = "key_file") -> tuple[ClusterKey, ...]:
    """Return the keys of a file: the first seals, all open. No error shows any part of them."""
    source = f"{what} {path}"
    try:
        with Path(path).open(encoding="ascii") as file:
            check_private(os.fstat(file.fileno()), what, path)
            text = file.read(4096)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not plain text"
        raise ConfigError(f"{source}: {reason}; make one by stormcast key new FILE") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    require(
        bool(lines) and all(_LINE.fullmatch(line) for line in lines),
        f"{source}: a key is a line of {2 * KEY_SIZE} hexadecimal digits; make one by "
        "stormcast key new FILE",
    )
    require(
        len(lines) <= MOST,
        f"{source}: {len(lines)} keys, and {MOST} are accepted at a time; drop the oldest",
    )
    keys = tuple(ClusterKey(bytes.fromhex(line)) for line in lines)
    require(len({key.id for key in keys}) == len(keys), f"{source}: a key stands twice; keep one")
    return keys
