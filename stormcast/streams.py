"""The standard streams of the command, where they are closed, full, or read by nobody.

A result that cannot be written to stdout ends the command. A line that cannot be written to stderr
is lost: nobody reads it, and it must not change what comes of a run.
"""

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Final

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2

_FLAGS: Final = ((_STDIN, os.O_RDONLY), (_STDOUT, os.O_RDONLY), (_STDERR, os.O_WRONLY))
"""The flags with which closed streams are opened on /dev/null. stdout is opened so that no write
succeeds: the caller must hear that the results are lost."""


_PLAIN: Final = "stormcast-plain"
"""The error handler of stdout: no result may be lost because a locale (C, for instance) cannot show
one of its characters. What stands for bytes of a file's name becomes those bytes."""
_BYTES: Final = range(0xDC80, 0xDD00)
"""The characters by which Python says bytes that are none in its encoding."""


def _as_can_be_shown(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return b"".join(
        bytes([ord(one) - 0xDC00])
        if ord(one) in _BYTES
        else one.encode("ascii", "backslashreplace")
        for one in letters
    ), error.end


codecs.register_error(_PLAIN, _as_can_be_shown)


class OutputLost(BaseException):
    """stdout cannot take the results. Not an OSError: a command's own handlers of those would take
    it for an error of a file that it reads or writes."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno)
        self.is_pipe = error.errno == errno.EPIPE
        """Whether a reader went away, which is its right."""
        self.why = "it is closed" if error.errno == errno.EBADF else str(error.strerror).lower()


class _Stdout(io.BufferedWriter):
    """Reports errors above the buffer, not below it. An interrupt may arrive wherever Python code
    runs: between the kernel's taking of some bytes and the buffer's counting of them, the buffer
    would write them again."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            raise OutputLost(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputLost(error) from None


class _Stderr(io.FileIO):
    """Writes without a buffer above, so nothing is written again that was written or lost."""

    def write(self, data: object, /) -> int:
        rest = memoryview(data)  # type: ignore[arg-type]
        size = len(rest)
        with suppress(OSError):
            # Fewer bytes than asked for are written to a pipe when a signal arrives; none, where
            # the caller gave a stderr that does not block.
            while rest and (written := super().write(rest)):
                rest = rest[written:]
        return size


def guard() -> None:
    """Have stdout raise `OutputLost`, and stderr nothing, where it cannot be written to. Streams
    that something else has put there, such as a test, stay."""
    for number, flags in _FLAGS:
        _reserve(number, flags)
    if sys.stdout is sys.__stdout__:
        raw = io.FileIO(_STDOUT, "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            _Stdout(raw),
            encoding=_encoding_of(sys.stdout),
            errors=_PLAIN,
            line_buffering=raw.isatty(),
        )
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(
            _Stderr(_STDERR, "w", closefd=False),  # no buffer, as `python -u` has it
            encoding=_encoding_of(sys.stderr),
            errors=getattr(sys.stderr, "errors", None) or "backslashreplace",
            # One write per line, so that lines of several processes do not mix.
            line_buffering=True,
        )


def drop_stdout() -> None:
    """Discard all that is still to be written to stdout: the interpreter would try again at its
    end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reserve(number: int, flags: int) -> None:
    """Keep the number of a stream that is closed from becoming that of a file: what is printed by a
    child process would be written into it."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)


def _encoding_of(stream: object) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
