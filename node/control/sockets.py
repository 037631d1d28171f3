"""The sockets on which the control endpoint listens, and errors that name the remedy."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from stormcast.node.core.errors import ConfigError, require

BACKLOG: Final = 128
"""Connections that the kernel queues. More than the endpoint has places: while strangers come in
crowds, a client that finds the queue full tries again only after a second."""
_IPV6: Final = 6


def listen_tcp(host: str, port: int, setting: str) -> socket.socket:
    """Return a socket that listens at an address; an error names the setting."""
    family = socket.AF_INET6 if ip_address(host).version == _IPV6 else socket.AF_INET
    # With its protocol named: asyncio switches Nagle's delay off for such sockets only, and without
    # that an answer in two writes takes 40 ms longer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{setting} {host}:{port}: {_reason(error)}; choose another address or port"
        ) from None
    return listening


def listen_unix(path: str, setting: str = "control.address") -> socket.socket:
    """Return a socket that listens at a path, which only its owner may use. A socket that a dead
    process left there is replaced."""
    _make_room(path, setting)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Under another name until it listens: until then another process would take it for a socket
    # of a dead process, and remove it.
    made = Path(path).with_name(f".{os.getpid()}")
    before = os.umask(0o177)
    try:
        listening.bind(str(made))
        listening.listen(BACKLOG)
        listening.setblocking(False)
        made.rename(path)
    except OSError as error:
        listening.close()
        with suppress(OSError):
            # Nothing was made where nothing can be written.
            made.unlink(missing_ok=True)
        raise ConfigError(f"{setting} unix:{path}: {_reason(error)}; choose another path") from None
    finally:
        os.umask(before)
    return listening


def _make_room(path: str, setting: str) -> None:
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{setting} unix:{path}: {_reason(error)}; choose another path") from None
    what = f"{setting} unix:{path}"
    require(stat.S_ISSOCK(mode), f"{what}: there is a file that is no socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            # Nobody listens: the process that did is dead.
            with suppress(FileNotFoundError):
                Path(path).unlink()
            return
        except OSError:
            # Somebody listens, and is busy; or we may not connect.
            pass
    raise ConfigError(f"{what}: another process listens there; stop it or choose another path")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def inode_of(path: str) -> int:
    """Return the inode of a path; 0 if there is no file."""
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def remove_socket(path: str, inode: int) -> None:
    """Remove our socket, unless another process has put its own there since."""
    if inode and inode_of(path) == inode:
        with suppress(OSError):
            Path(path).unlink()
