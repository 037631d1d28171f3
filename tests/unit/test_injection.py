"""Raw sockets for copies: which of them a site needs, and what is said where one cannot be had."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from stormcast.chaos.drivers.base import DriverError, Site
from stormcast.chaos.drivers.injection import RawSockets


class Kernel:
    """Makes sockets of some families, and lists those that were made and not closed."""

    def __init__(self, *lacks: int, number: int = errno.EAFNOSUPPORT) -> None:
        self.open: list[int] = []
        self._lacks = lacks
        self._number = number

    def __call__(self, family: int, *_kind: int) -> Any:
        if family in self._lacks:
            raise OSError(self._number, "Address family not supported by protocol")
        self.open.append(family)
        return Raw(self, family)


class Raw:
    def __init__(self, kernel: Kernel, family: int) -> None:
        self._kernel = kernel
        self._family = family

    def setsockopt(self, *_words: int) -> None: ...

    def setblocking(self, _value: bool) -> None: ...

    def close(self) -> None:
        self._kernel.open.remove(self._family)


def opened(monkeypatch: pytest.MonkeyPatch, kernel: Kernel, *addresses: str) -> RawSockets:
    monkeypatch.setattr(socket, "socket", kernel)
    return RawSockets(Site(name="n0", addresses=addresses))


def test_a_site_without_ipv6_needs_none_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(socket.AF_INET6)
    sockets = opened(monkeypatch, kernel, "198.18.0.2")
    assert kernel.open == [socket.AF_INET]
    sockets.send(b"\x60" + bytes(39))  # Of IPv6: the site has no address for it.
    sockets.close()
    assert kernel.open == []


def test_a_site_has_a_socket_for_each_version_of_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel()
    opened(monkeypatch, kernel, "198.18.0.2", "fd00:5c::2", "198.18.0.3").close()
    assert kernel.open == []


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EAFNOSUPPORT, "n0 has no raw socket: Address family"), (errno.EPERM, "need root")],
)
def test_what_the_kernel_refuses_is_the_drivers_error_and_leaves_no_socket(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(socket.AF_INET6, number=number)
    with pytest.raises(DriverError, match=said):
        opened(monkeypatch, kernel, "198.18.0.2", "fd00:5c::2")
    assert kernel.open == []
