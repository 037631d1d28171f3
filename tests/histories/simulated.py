"""Correct objects used by concurrent clients, and the lines that the clients write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

Line = dict[str, Any]
Apply = Callable[["Request"], tuple[bool, Any]]
"""Does a request to the object; returns whether it was done, and the value of its ok."""


class Request(NamedTuple):
    process: int
    f: str
    key: str | None
    value: Any = None


@dataclass(slots=True)
class Running:
    """A request under way."""

    request: Request
    end: str = ""
    """The type of its end, once that is decided."""
    value: Any = None


@dataclass
class Simulation:
    """Plays requests against an object: each takes effect in one moment, or not at all."""

    random: Random
    apply: Apply
    processes: int = 4
    fail: float = 0.1
    info: float = 0.1
    lines: list[Line] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    """Requests of which nobody knows the end, and which may still take effect."""

    def play(self, requests: Iterable[tuple[str, str | None, Any]]) -> list[Line]:
        free = list(range(self.processes))
        running: list[Running] = []
        left = list(requests)[::-1]
        while left or running:
            if left and free and (not running or self.random.random() < 0.5):
                process = free.pop(self.random.randrange(len(free)))
                request = Request(process, *left.pop())
                running.append(Running(request))
                self._write(request, "invoke", request.value)
            elif self.late and self.random.random() < 0.1:
                self.apply(self.late.pop(self.random.randrange(len(self.late))))
            elif running:
                one = self.random.choice(running)
                if not one.end:
                    self._decide(one)
                else:
                    running.remove(one)
                    free.append(one.request.process)
                    self._write(one.request, one.end, one.value)
        return self.lines

    def alone(self, f: str, key: str | None, value: Any = None) -> Any:
        """One more request, after all others; it succeeds, and its value is returned."""
        request = Request(self.processes, f, key, value)
        self._write(request, "invoke", value)
        _done, found = self.apply(request)
        self._write(request, "ok", found)
        return found

    def _decide(self, one: Running) -> None:
        if self.random.random() < self.fail:
            one.end = "fail"
        elif self.random.random() < self.info:
            one.end = "info"
            self.random.choice([self.apply, self.late.append, lambda _one: None])(one.request)
        else:
            done, one.value = self.apply(one.request)
            one.end = "ok" if done else "fail"

    def _write(self, request: Request, kind: str, value: Any) -> None:
        line: Line = {"process": request.process, "type": kind, "f": request.f}
        line |= {"time": float(len(self.lines)), "value": value}
        if request.key is not None:
            line["key"] = request.key
        self.lines.append(line)


def ends(lines: list[Line], f: str, kind: str = "ok") -> list[Line]:
    """The lines that end operations of one name in one way."""
    return [line for line in lines if line["f"] == f and line["type"] == kind]
