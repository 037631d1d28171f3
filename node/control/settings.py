"""Settings of control endpoints: address, token and certificate. Members, keepers and agents have
such an endpoint; the addresses of listeners for probes are read here, too."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from stormcast.node.core.errors import ConfigError, require
from stormcast.node.keys.private_files import check_private

TOKEN_VARIABLE: Final = "STORMCAST_CONTROL_TOKEN"  # noqa: S105 its name, not the token
"""Refused: a process's environment is read by more than its owner, and inherited."""
MIN_TOKEN: Final = 16
"""Characters of a token: fewer could be guessed."""
MAX_TOKEN_FILE: Final = 4096
MAX_SOCKET_PATH: Final = 107
"""Bytes that the address of a unix socket has room for."""
REQUIRED: Final = "required"
NONE: Final = "none"
TLS_MODES: Final = (REQUIRED, NONE)
"""Whether an endpoint that others reach needs a certificate, or may speak plain HTTP."""
_TOKEN: Final = re.compile(r"[!-~]+")


class Names(NamedTuple):
    """The names of an endpoint's settings, for errors: keys of a file, or flags."""

    token_file: str
    certificate_file: str
    private_key_file: str
    tls: str


OF_MEMBER: Final = Names(*(f"control.{name}" for name in Names._fields))
OF_AGENT: Final = Names(*Names._fields)
OF_FLAGS: Final = Names(*(f"--{name.replace('_', '-')}" for name in Names._fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Whether an endpoint speaks TLS, and the files that it needs for that."""

    certificate_file: str = ""
    """In PEM, with those of its issuers that clients lack; empty: plain HTTP."""
    private_key_file: str = ""
    mode: str = REQUIRED
    names: Names = OF_MEMBER

    def __post_init__(self) -> None:
        names = self.names
        require(
            self.mode in TLS_MODES,
            f"{names.tls} is {self.mode!r}: choose one of {', '.join(TLS_MODES)}",
        )
        require(
            bool(self.certificate_file) == bool(self.private_key_file),
            f"{names.certificate_file} and {names.private_key_file} go together; give both",
        )
        require(
            self.mode == REQUIRED or not self.is_on,
            f"{names.tls} is none, and {names.certificate_file} names a certificate; drop one",
        )

    @property
    def is_on(self) -> bool:
        """Whether the endpoint speaks TLS."""
        return bool(self.certificate_file)


NO_TLS: Final = TlsSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """The address of a control endpoint, its token and its TLS settings."""

    host: str = ""
    port: int = 0
    path: str = ""
    """The path of a unix socket; then there is neither host nor port."""
    token: str = field(default="", repr=False)
    setting: str = "control.address"
    """The name of the setting that gives the address, for errors."""
    tls: TlsSettings = NO_TLS

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the endpoint."""
        return bool(self.path) or ip_address(self.host).is_loopback


def read_control(
    text: str, token: str = "", setting: str = "control.address", tls: TlsSettings = NO_TLS
) -> ControlSettings:
    """Read `127.0.0.1:9000`, `[::1]:9000` or `unix:/path`. An address that other machines reach
    needs a token, and TLS unless the settings allow plain HTTP."""
    settings = replace(_read_address(text, setting), token=token, tls=tls)
    require(
        settings.is_loopback or bool(token),
        f"{setting} is {text!r}: others reach it, so it needs a token; set {tls.names.token_file}, "
        "or use 127.0.0.1",
    )
    _check_tls(settings, f"{setting} is {text!r}")
    return settings


def read_open(text: str, setting: str, tls: TlsSettings) -> ControlSettings:
    """Read the address of an endpoint that takes no commands, so it needs no token. One that other
    machines reach needs TLS, unless the settings allow plain HTTP."""
    settings = replace(_read_address(text, setting), tls=tls)
    _check_tls(settings, f"{setting} is {text!r}")
    return settings


def read_probes(text: str, setting: str) -> ControlSettings:
    """Read the address of a listener that serves only probes. It speaks plain HTTP on any address:
    it tells no secret, takes no command, and a kubelet would not check a certificate."""
    return _read_address(text, setting)


def _check_tls(settings: ControlSettings, what: str) -> None:
    tls, names = settings.tls, settings.tls.names
    require(
        not (settings.path and tls.is_on),
        f"{what}: nothing leaves this machine there; drop {names.certificate_file} and "
        f"{names.private_key_file}",
    )
    require(
        settings.is_loopback or tls.is_on or tls.mode == NONE,
        f"{what}: others reach it, so it needs TLS; set {names.certificate_file} and "
        f"{names.private_key_file}, use 127.0.0.1, or allow plain HTTP by {names.tls} none",
    )


def _read_address(text: str, setting: str) -> ControlSettings:
    what = f"{setting} is {text!r}"
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        require(bool(path), f"{what}: write unix:/path/of/socket")
        require(
            len(path.encode()) <= MAX_SOCKET_PATH,
            f"{what}: its path has more than {MAX_SOCKET_PATH} bytes; use a shorter one, or a "
            "relative one",
        )
        return ControlSettings(path=path, setting=setting)
    host, mark, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    remedy = "write HOST:PORT, such as 127.0.0.1:9000, or unix:/path/of/socket"
    require(bool(mark) and port.isascii() and port.isdigit(), f"{what}: {remedy}")
    require(int(port) < 1 << 16, f"{what}: a port is 0..65535")
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        # A name would have to be looked up, and could mean several addresses.
        raise ConfigError(f"{what}: {host!r} is no address; {remedy}") from None
    return ControlSettings(host=str(address), port=int(port), setting=setting)


def read_token(path: str, environ: Mapping[str, str], what: str = OF_MEMBER.token_file) -> str:
    """Return the token of a file, "" if none is named; no error shows it. A token in the
    environment is refused, and a file that others can read."""
    require(
        not environ.get(TOKEN_VARIABLE),
        f"{TOKEN_VARIABLE}: a token comes from a file; unset the variable, and set {what}",
    )
    if not path:
        return ""
    source = f"{what} {path}"
    try:
        with Path(path).open(encoding="ascii") as file:
            check_private(os.fstat(file.fileno()), what, path)
            token = file.read(MAX_TOKEN_FILE).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not plain text"
        raise ConfigError(f"{source}: {reason}; name a file with the token") from None
    require(
        len(token) >= MIN_TOKEN and _TOKEN.fullmatch(token) is not None,
        f"{source}: a token is {MIN_TOKEN} or more printable characters without spaces, such as "
        "`openssl rand -hex 16` makes",
    )
    return token
