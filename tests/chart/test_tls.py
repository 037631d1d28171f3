"""The certificate that the chart makes, who gets what of it, and tokens in files alone."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from stormcast.chaos.agent.settings import read_agent
from stormcast.node.control.settings import TlsSettings
from stormcast.node.control.tls import Certificate, TlsBytes
from stormcast.node.control.trust import trusting
from tests.helpers.chart import Rendered, render
from tests.helpers.tokens import token_file

LISTENING = ("member", "agent", "controller")
VERIFYING = ("controller", "test")


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return render()


@pytest.fixture
def folder(chart: Rendered, tmp_path: Path) -> Path:
    """The Secret as a pod has it."""
    (data,) = (one["data"] for one in chart.of("Secret") if "tls.crt" in one["data"])
    for name, text in data.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_bytes(base64.b64decode(text))
    return tmp_path


def mounted(chart: Rendered, name: str) -> dict[str, str]:
    """The files of the certificate's Secret in a container, and the Secrets that they are of."""
    ((box, pod),) = ((box, pod) for box, pod in chart.containers() if box["name"] == name)
    places = {one["name"]: one["mountPath"] for one in box.get("volumeMounts", [])}
    return {
        f"{places[volume['name']]}/{item['path']}": volume["secret"]["secretName"]
        for volume in pod["spec"].get("volumes", [])
        if volume["name"] in places
        for item in volume.get("secret", {}).get("items", [])
    }


def words(chart: Rendered, name: str) -> list[str]:
    args: list[str] = chart.container(name)["args"]
    return args


@pytest.mark.parametrize(
    "name",
    [
        "demo-stormcast",
        "demo-stormcast-0.demo-stormcast.stormcast",
        "demo-stormcast-9.demo-stormcast.stormcast.svc",
        "demo-stormcast-controller",
        "demo-stormcast-controller.stormcast.svc",
    ],
)
@pytest.mark.parametrize("strictness", [ssl.VerifyFlags(0), ssl.VERIFY_X509_STRICT])
def test_clients_believe_it_for_the_names_of_the_release(
    folder: Path, name: str, strictness: ssl.VerifyFlags
) -> None:
    """Python 3.13 is as strict as this by default."""
    context = trusting(str(folder / "ca.crt"))
    context.verify_flags |= strictness
    assert shakes_hands(folder, context, name)


def test_clients_believe_it_for_no_other_name(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'demo2-stormcast'"):
        shakes_hands(folder, trusting(str(folder / "ca.crt")), "demo2-stormcast")


def shakes_hands(folder: Path, context: ssl.SSLContext, name: str) -> bool:
    settings = TlsSettings(
        certificate_file=str(folder / "tls.crt"), private_key_file=str(folder / "tls.key")
    )
    server = TlsBytes(Certificate(settings, print).context(0.0))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    for _ in range(2):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            server.receive(outgoing.read())
            incoming.write(server.take_outgoing())
    return client.version() == "TLSv1.3"


def test_who_listens_has_the_key_and_who_verifies_has_the_issuer_alone(chart: Rendered) -> None:
    secret = "demo-stormcast-tls"  # noqa: S105 its name
    given = {"/etc/stormcast/tls/tls.crt": secret, "/etc/stormcast/tls/tls.key": secret}
    issuer = {"/etc/stormcast/ca/ca.crt": secret}
    for name in (*LISTENING, "test"):
        wanted = (given if name in LISTENING else {}) | (issuer if name in VERIFYING else {})
        assert mounted(chart, name) == wanted


def test_whoever_listens_speaks_tls_and_probes_do_not(chart: Rendered) -> None:
    for name in ("member", "controller"):
        assert "--certificate-file=/etc/stormcast/tls/tls.crt" in words(chart, name)
        assert "--private-key-file=/etc/stormcast/tls/tls.key" in words(chart, name)
        assert "--tls=none" not in words(chart, name)
    told = chart.told("agent.yaml")
    assert told["certificate_file"] == "/etc/stormcast/tls/tls.crt"
    assert told["private_key_file"] == "/etc/stormcast/tls/tls.key"
    for box, _pod in chart.containers():
        probes = [one["httpGet"] for key, one in box.items() if key.endswith("Probe")]
        assert not any(probe.get("scheme") for probe in probes)


def test_the_controller_verifies_whom_it_asks(chart: Rendered) -> None:
    assert "--ca-file=/etc/stormcast/ca/ca.crt" in words(chart, "controller")
    assert chart.container("test")["args"][-1] == "/etc/stormcast/ca/ca.crt"


def test_without_tls_everyone_is_told_so(tmp_path: Path) -> None:
    chart = render({"tls": {"enabled": False}})
    assert not [one for one in chart.of("Secret") if "tls.crt" in one["data"]]
    for name in ("member", "controller"):
        assert "--tls=none" in words(chart, name)
        assert not [word for word in words(chart, name) if "certificate" in word or "ca-f" in word]
    assert not any(mounted(chart, name) for name in (*LISTENING, "test"))
    assert chart.container("test")["args"][-1] == "/etc/stormcast/token/token"
    told: dict[str, Any] = chart.told("agent.yaml")
    told |= {"token_file": str(token_file(tmp_path, "0123456789abcdef"))}
    settings = read_agent(yaml.safe_dump(told, default_flow_style=True), "agent.yaml", {})
    assert not settings.control.tls.is_on
    rule = chart.one("Role", "controller")["rules"][1]
    assert rule["resourceNames"][0] == "demo-stormcast-0:7801"


def test_a_secret_of_yours_takes_the_place_of_the_one_that_is_made() -> None:
    chart = render({"tls": {"existingSecret": "mine"}})
    assert not [one for one in chart.of("Secret") if "tls.crt" in one["data"]]
    for name in (*LISTENING, "test"):
        assert set(mounted(chart, name).values()) == {"mine"}


def test_secrets_reach_containers_as_files_alone(chart: Rendered) -> None:
    """What stands in arguments and variables, others can read."""
    for box, _pod in chart.containers():
        assert "envFrom" not in box
        for one in box.get("env", []):
            assert "secretKeyRef" not in one.get("valueFrom", {})
            assert not any(word in one["name"].lower() for word in ("token", "secret", "password"))
        text = " ".join(map(str, box["args"]))
        for secret in chart.of("Secret"):
            for value in secret["data"].values():
                assert value not in text
                assert base64.b64decode(value).decode().strip() not in text
