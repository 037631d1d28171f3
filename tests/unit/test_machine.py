"""What a machine, or a process, has run out of, told in words."""

from __future__ import annotations

import errno
import threading

import pytest

from stormcast.machine import in_words, is_exhausted

NO_MEMORY = "cannot allocate memory; give it more, and do it again"


def test_a_thread_that_does_not_start_is_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python itself says it, where there is no room for a stack."""

    def refuses(*_what: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuses)
    with pytest.raises(RuntimeError) as caught:
        threading.Thread().start()
    assert is_exhausted(caught.value)
    assert in_words(caught.value) == NO_MEMORY


@pytest.mark.parametrize(
    "error", [MemoryError(), ImportError("x.so: failed to map segment from shared object")]
)
def test_so_is_what_cannot_be_loaded(error: Exception) -> None:
    assert is_exhausted(error)
    assert in_words(error) == NO_MEMORY


def test_other_errors_are_none() -> None:
    assert not is_exhausted(RuntimeError("dictionary changed size during iteration"))
    assert not is_exhausted(OSError(errno.EACCES, "Permission denied"))
    assert is_exhausted(OSError(errno.ENOSPC, "No space left on device"))
