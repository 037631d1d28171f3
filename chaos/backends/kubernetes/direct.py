"""Keepers and agents asked at their pods' own addresses, over TLS whose certificate is verified.

This is the way of whoever is in the cluster's network, such as the chart's controller. The other
way leads through the API server, which encrypts what it passes on to pods, and verifies nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.pods.connections import CONNECTIONS, Connections
from stormcast.chaos.backends.pods.http_pool import Request, UnreachableError, send, short
from stormcast.chaos.backends.pods.pod import Port
from stormcast.node.control.client import Reply
from stormcast.node.control.trust import trusting, why_refused

if TYPE_CHECKING:
    from urllib3 import HTTPSConnectionPool


class DirectWay:
    """Connections to the ports of pods, for several threads."""

    def __init__(self, ca_file: str) -> None:
        self._trusted = trusting(ca_file)
        self._connections = Connections(self._pool)

    def send(self, port: Port, request: Request) -> Reply:
        """Send one request, and return its answer. BackendError if the pod speaks plain HTTP, or
        its certificate is refused; UnreachableError when nothing answers."""
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 slow to import, and optional

        try:
            return send(self._connections.to(port), "", request)
        except HTTPError as error:
            for cause in (error, *error.args):
                if isinstance(cause, BaseException) and (why := why_refused(cause)):
                    raise BackendError(
                        f"{port.pod} port {port.number}: {why}; --ca-file is to name its issuer"
                    ) from None
            raise UnreachableError(f"{port.pod} port {port.number}: {short(error)}") from None

    def close(self) -> None:
        """Close all connections that are not in use; new requests make new ones."""
        self._connections.close()

    def _pool(self, port: Port) -> HTTPSConnectionPool:
        from urllib3 import HTTPSConnectionPool  # noqa: PLC0415 slow to import, and optional

        if not port.is_tls:
            raise BackendError(
                f"{port.pod} speaks plain HTTP, and --ca-file is for TLS: have tls.enabled=true in "
                "the release, or drop --ca-file"
            )
        return HTTPSConnectionPool(
            port.address,
            port.number,
            maxsize=CONNECTIONS,
            block=True,
            ssl_context=self._trusted,
            # What the certificate is for: all pods of a release have the same.
            server_hostname=port.pod.rpartition("-")[0],
        )
