"""Lines to and from a program in a container, through the API server's way to its standard streams
(`pods/attach`), which is that of `kubectl attach`.

The way leads from the API server over the kubelet: no port is opened in the pod, and no policy of
its network is asked. When this end is gone, the kubelet closes the program's input.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.pods.http_pool import MAX_REPLY
from stormcast.node.control.client import Reply
from stormcast.node.core.names import one_line

CONNECT_SECONDS: Final = 15.0
SEND_SECONDS: Final = 10.0
_SHOWN: Final = 300
_OUTPUT: Final = 1
_ERRORS: Final = 2
_STATUS: Final = 3
"""Channels of a connection: the program's two outputs, and how it ended."""
_JSON: Final = "application/json"


class RefusedWireError(BackendError):
    """The API server refused the connection."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"the connection was refused: {reply.status}")
        self.reply = reply


class AttachedWire:
    """A connection with a container."""

    def __init__(self, settings: Any, url: str) -> None:  # noqa: ANN401 the package has no types
        self._client = _within(CONNECT_SECONDS, lambda: _connected(settings, url))
        self._client.sock.settimeout(SEND_SECONDS)
        self._output = b""
        self._said = b""
        """What the program wrote last on its other output."""

    def send(self, line: bytes) -> None:
        """Send a line; BackendError if the connection has ended."""
        from websocket import WebSocketException  # noqa: PLC0415 slow to import, and optional

        try:
            self._client.write_stdin(line)
        except (OSError, WebSocketException) as error:
            raise self._ended(error) from None

    def receive(self, seconds: float) -> bytes:
        """Return the next line; BackendError if none comes in time, or the connection has ended."""
        from websocket import WebSocketException  # noqa: PLC0415 slow to import, and optional

        until = time.monotonic() + seconds
        while b"\n" not in self._output:
            left = until - time.monotonic()
            if left <= 0:
                raise BackendError(f"no answer within {seconds:g} s")
            try:
                self._client.update(timeout=left)
            except (OSError, WebSocketException) as error:
                raise self._ended(error) from None
            self._output += self._client.read_channel(_OUTPUT, timeout=0)
            self._said = (self._said + self._client.read_channel(_ERRORS, timeout=0))[-_SHOWN:]
            if len(self._output) > MAX_REPLY:
                raise BackendError(f"the answer has more than {MAX_REPLY} bytes")
            if not self._client.is_open() and b"\n" not in self._output:
                raise self._ended(None)
        line, _newline, self._output = self._output.partition(b"\n")
        return line

    def close(self) -> None:
        """End the connection, and with it the program's input. May be called twice."""
        from websocket import WebSocketException  # noqa: PLC0415 slow to import, and optional

        try:
            self._client.close(timeout=1)
        except (OSError, WebSocketException):
            # It has ended already.
            return

    def _ended(self, error: Exception | None) -> BackendError:
        status = b"" if error is not None else self._client.read_channel(_STATUS, timeout=0)
        parts = (self._said.decode(errors="replace"), status.decode(errors="replace"), error or "")
        said = one_line(" ".join(map(str, parts)), _SHOWN)
        return BackendError(f"the connection with its container has ended{said and f': {said}'}")


def _connected(settings: Any, url: str) -> Any:  # noqa: ANN401 the package has no types
    from kubernetes.stream.ws_client import WSClient, get_websocket_url  # noqa: PLC0415 slow to import, and optional
    from websocket import WebSocketBadStatusException, WebSocketException  # noqa: PLC0415 slow to import, and optional

    proof = {auth["key"]: auth["value"] for auth in settings.auth_settings().values()}
    address = get_websocket_url(url)  # type: ignore[no-untyped-call]
    try:
        # Bytes, as a character may be cut in two on its way.
        return WSClient(settings, address, proof, capture_all=False, binary=True)  # type: ignore[no-untyped-call]
    except WebSocketBadStatusException as error:
        raise RefusedWireError(Reply(error.status_code, _JSON, error.resp_body or b"")) from None
    except (OSError, WebSocketException) as error:
        raise BackendError(f"no way to the container: {one_line(error, _SHOWN)}") from None


def _within(seconds: float, connect: Callable[[], Any]) -> Any:  # noqa: ANN401 as `connect` returns
    """Return what `connect` returns; BackendError if it takes too long: the package sets no bound,
    and a thread that waits for nobody must not keep this process."""
    found: list[Any] = []
    lock, is_late = threading.Lock(), threading.Event()

    def work() -> None:
        try:
            made = connect()
        except Exception as error:  # noqa: BLE001 raised below
            found.append(error)
            return
        with lock:
            if not is_late.is_set():
                found.append(made)
                return
        made.close(timeout=1)

    thread = threading.Thread(target=work, name="attach", daemon=True)
    thread.start()
    thread.join(seconds)
    with lock:
        if not found:
            is_late.set()
            raise BackendError(f"no way to the container within {seconds:g} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]
