"""HTTP over a unix socket, for those who ask members and agents of this machine."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, however long its path is."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # An address has room for 107 bytes: the folder goes by the number of its open handle.
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.close(folder)
