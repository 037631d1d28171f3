"""Where a long command says over HTTP how it is: the flags, and the thread that answers. It can
only be read, so it needs no token."""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Callable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest

from stormcast.node.control.answers import Answer, Table, as_json
from stormcast.node.control.arguments import add_tls, tls_of
from stormcast.node.control.server import Control
from stormcast.node.control.settings import ControlSettings, read_open, read_probes
from stormcast.node.core.errors import require

_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_NOT_READY: Final = 503
_HUNG: Final = 500
_START_SECONDS: Final = 10.0

Listener = ControlSettings | None


def add_listeners(parser: argparse.ArgumentParser) -> None:
    """Add the flags `--listen` and `--probes`, and those of TLS."""
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        help="HOST:PORT where /livez, /readyz and /metrics are served (default: nowhere)",
    )
    add_tls(parser)
    parser.add_argument(
        "--probes",
        metavar="ADDR",
        help="HOST:PORT of another listener, for /livez and /readyz alone (default: none)",
    )


def listeners_of(words: argparse.Namespace) -> tuple[Listener, Listener]:
    """Return where to listen for requests, and for probes."""
    require(
        bool(words.listen) or not words.probes,
        "--probes goes with --listen; give both, or drop it",
    )
    tls = tls_of(words)
    require(
        bool(words.listen) or not tls.is_on,
        f"{tls.names.certificate_file} goes with --listen; give both, or drop it",
    )
    return (
        read_open(words.listen, "--listen", tls) if words.listen else None,
        read_probes(words.probes, "--probes") if words.probes else None,
    )


class Told(Protocol):
    """What says over HTTP how it is."""

    registry: CollectorRegistry
    """With its figures."""
    is_ready: bool

    @property
    def is_live(self) -> bool:
        """Whether it goes on, and does not hang."""
        ...


def table_of(told: Told) -> Table:
    """Return the endpoints by path, then by method."""

    def ready(_body: object) -> Answer:
        return as_json({"ready": told.is_ready}, 200 if told.is_ready else _NOT_READY)

    def live(_body: object) -> Answer:
        is_live = told.is_live
        return as_json({"live": is_live}, 200 if is_live else _HUNG)

    def metrics(_body: object) -> Answer:
        return Answer(generate_latest(told.registry), content_type=_METRICS)

    return {"/livez": {"GET": live}, "/readyz": {"GET": ready}, "/metrics": {"GET": metrics}}


def serve_status(
    told: Told,
    settings: ControlSettings,
    probes: Listener,
    tell: Callable[[str], None],
) -> list[str]:
    """Answer requests, and probes on a listener of their own, in a thread, as the work itself takes
    the main thread; returns the addresses."""
    table = table_of(told)
    opened: list[list[str] | BaseException] = []
    is_open = threading.Event()

    def tell_failure(error: Exception) -> None:
        tell(f"{error!r}")

    async def work() -> None:
        try:
            controls = [Control(settings, table, tell_failure, say=tell)]
            if probes is not None:
                controls.append(Control.for_probes(probes, table, tell_failure))
            opened.append([await control.open() for control in controls])
        except BaseException as error:  # noqa: BLE001 whoever waits is told
            opened.append(error)
            return
        finally:
            is_open.set()
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(work()), name="status", daemon=True).start()
    is_open.wait(_START_SECONDS)
    (found,) = opened or [TimeoutError("nothing listens")]
    if isinstance(found, BaseException):
        raise found
    return found
