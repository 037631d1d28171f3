"""The settings of an agent: one small file, in YAML or JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stormcast.chaos.drivers.base import Site
from stormcast.node.control.settings import (
    OF_AGENT,
    REQUIRED,
    ControlSettings,
    TlsSettings,
    read_control,
    read_probes,
    read_token,
)
from stormcast.node.core.errors import ConfigError, require
from stormcast.node.core.names import NAME, check_name
from stormcast.node.reading.error_places import placed
from stormcast.node.reading.items import Item
from stormcast.node.reading.yaml_nodes import compose

_TABLE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DEVICE: Final = re.compile(r"[^\s/]{1,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of an agent: its endpoints, and the sites that it works on."""

    table: str
    """The word of this run: what its nft tables, and all else it makes, are called."""
    control: ControlSettings
    probes: ControlSettings | None
    """A further listener for /livez, with connections of its own; None: there is none."""
    sites: tuple[Site, ...]


def load_agent(path: str, environ: Mapping[str, str] = os.environ, name: str = "") -> AgentSettings:
    """Read the settings of a file; `name`, if given, becomes the name of its only site, for a file
    that cannot know it."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"--config {path}: {reason}; name a file with the agent's sites"
        ) from None
    settings = read_agent(text, path, environ)
    if name:
        check_name("--name", name)
        require(len(settings.sites) == 1, f"--name {name}: there are {len(settings.sites)} sites")
        settings = replace(settings, sites=(replace(settings.sites[0], name=name),))
    return settings


def site_of_lines(table: str, name: str) -> tuple[Site, str]:
    """Return the site of an agent that has no file, and the name of its tables."""
    require(
        _TABLE.fullmatch(table) is not None,
        f"--lines {table}: write small letters, digits and underscores",
    )
    return Site(name=check_name("--name", name), addresses=()), table


def read_agent(text: str, path: str, environ: Mapping[str, str]) -> AgentSettings:
    """Read settings from a text; ConfigError, or an error with its place in the text."""
    root = compose(text, path, "configuration")
    tls_keys = ("certificate_file", "private_key_file", "tls")
    found = root.entries(("table", "control", "sites"), ("token_file", "probes", *tls_keys))
    sites = tuple(_site(item) for item in found["sites"].items())
    if not sites:
        raise found["sites"].refuse("write at least one site")
    names = [site.name for site in sites]
    if len(set(names)) < len(names):
        raise found["sites"].error(f"two sites have one name: {' '.join(names)}")
    token = _token(found.get("token_file"), environ)
    given = {key: found[key].text() for key in tls_keys if key in found}
    with placed(found["control"].place):
        tls = TlsSettings(
            certificate_file=given.get("certificate_file", ""),
            private_key_file=given.get("private_key_file", ""),
            mode=given.get("tls", REQUIRED),
            names=OF_AGENT,
        )
        control = read_control(found["control"].text(), token, "control", tls)
    probes = None
    if "probes" in found:
        with placed(found["probes"].place):
            probes = read_probes(found["probes"].text(), "probes")
    table = found["table"].word(_TABLE, "write small letters, digits and underscores")
    return AgentSettings(table=table, control=control, probes=probes, sites=sites)


def _site(item: Item) -> Site:
    found = item.entries(("name",), ("addresses", "device", "netns"))
    site = Site(
        name=found["name"].word(NAME, "write letters, digits, dots and dashes, 63 at most"),
        addresses=tuple(each.text() for each in found["addresses"].items())
        if "addresses" in found
        else (),
    )
    if "device" in found:
        device = found["device"].word(_DEVICE, "write the name of a network device")
        site = replace(site, device=device)
    if "netns" in found:
        site = replace(site, netns=found["netns"].text())
        if not Path(site.netns or "").exists():
            raise found["netns"].error(
                f"there is no network namespace {site.netns}; write a path such as /run/netns/x"
            )
    return site


def _token(item: Item | None, environ: Mapping[str, str]) -> str:
    if item is None:
        return read_token("", environ, OF_AGENT.token_file)
    path = item.text()
    if not path:
        raise item.refuse("name a file with the token")
    with placed(item.place):
        return read_token(path, environ, OF_AGENT.token_file)
