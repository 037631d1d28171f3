"""Says in words which resource a machine has run out of: room on disks, file descriptors, memory.

Nothing is wrong then with what was asked for, and no verdict can be had: that is exit code 3.
"""

import errno
from typing import Final

_REMEDIES: Final = {
    errno.ENOSPC: "make room on that disk, and do it again",
    errno.EDQUOT: "make room there, and do it again",
    errno.EMFILE: "raise the limit (ulimit -n), and do it again",
    errno.ENFILE: "raise the limit of this machine (fs.file-max), and do it again",
    errno.ENOMEM: "give it more, and do it again",
}
_MEMORY: Final = "cannot allocate memory"


def is_exhausted(error: BaseException) -> bool:
    """Whether an error says that the machine, or this process, has no more of something."""
    return _is_of_memory(error) or (isinstance(error, OSError) and error.errno in _REMEDIES)


def in_words(error: BaseException) -> str:
    """Return such an error, or any of the system, as a sentence, and not as "[Errno 28] No space
    left on device"."""
    if _is_of_memory(error) or not isinstance(error, OSError):
        return f"{_MEMORY}; {_REMEDIES[errno.ENOMEM]}"
    said = (error.strerror or str(error)).lower()
    if error.filename is not None:
        said = f"{error.filename}: {said}"
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None and error.filename is not None:
        remedy = "name another, or mend it"
    return f"{said}; {remedy}" if remedy else said


def _is_of_memory(error: BaseException) -> bool:
    # A library for which there is no room is told of as one that cannot be imported; and of a
    # thread Python says no more than that it does not start.
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
        or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
    )
