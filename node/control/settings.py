"""Where a control endpoint listens, and with which token: of members, keepers and agents; and where
probes are answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from stormcast.node.core.errors import ConfigError, require

TOKEN_VARIABLE: Final = "STORMCAST_CONTROL_TOKEN"  # noqa: S105 its name, not the token
MIN_TOKEN: Final = 16
"""Characters of a token: fewer could be guessed."""
MAX_SOCKET_PATH: Final = 107
"""Bytes that the address of a unix socket has room for."""
_TOKEN: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Where the control endpoint listens, and who may use it."""

    host: str = ""
    port: int = 0
    path: str = ""
    """The path of a unix socket; then there is neither host nor port."""
    token: str = field(default="", repr=False)
    setting: str = "control.address"
    """The setting that says so, for errors."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the endpoint."""
        return bool(self.path) or ip_address(self.host).is_loopback


def read_control(text: str, token: str = "", setting: str = "control.address") -> ControlSettings:
    """Read `127.0.0.1:9000`, `[::1]:9000` or `unix:/path`. An address that other machines reach
    needs a token."""
    what = f"{setting} is {text!r}"
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        require(bool(path), f"{what}: write unix:/path/of/socket")
        require(
            len(path.encode()) <= MAX_SOCKET_PATH,
            f"{what}: its path has more than {MAX_SOCKET_PATH} bytes; use a shorter one, or a "
            "relative one",
        )
        return ControlSettings(path=path, token=token, setting=setting)
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
    settings = ControlSettings(host=str(address), port=int(port), token=token, setting=setting)
    require(
        settings.is_loopback or bool(token),
        f"{what}: others reach it, so it needs a token; set {TOKEN_VARIABLE} or "
        "control.token_file, or use 127.0.0.1",
    )
    return settings


def read_open(text: str, setting: str) -> ControlSettings:
    """Read the same for endpoints that tell no secret: no token is asked for, whoever reaches
    them."""
    return replace(read_control(text, "no token is asked for", setting), token="")


def read_token(path: str, environ: Mapping[str, str], what: str = "control.token_file") -> str:
    """Return the token of a file or of the environment, "" if there is none; no error shows it."""
    from_environment = environ.get(TOKEN_VARIABLE, "")
    require(
        not (path and from_environment),
        f"{TOKEN_VARIABLE} and {what} are both set; keep one",
    )
    token, source = from_environment, TOKEN_VARIABLE
    if path:
        source = f"{what} {path}"
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not plain text"
            raise ConfigError(f"{source}: {reason}; name a file with the token") from None
    require(
        (not token and not path)
        or (len(token) >= MIN_TOKEN and _TOKEN.fullmatch(token) is not None),
        f"{source}: a token is {MIN_TOKEN} or more printable characters without spaces, such as "
        "`openssl rand -hex 16` makes",
    )
    return token
