"""TLS of endpoints: which files it takes, what it makes of bytes, and whom clients believe."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stormcast.node.control.settings import (
    OF_AGENT,
    TlsSettings,
    read_control,
    read_open,
    read_probes,
)
from stormcast.node.control.tls import (
    EMPTY_RECORDS,
    LOOK_SECONDS,
    Certificate,
    NotTlsError,
    TlsBytes,
    TlsError,
)
from stormcast.node.control.trust import trusting, why_refused
from stormcast.node.core.errors import ConfigError
from tests.helpers.certificates import NAME, Files, Issuer
from tests.helpers.tls_records import SUITE, Sealer, note_secrets

TOKEN = "0123456789abcdef"  # noqa: S105 of a test
ELSEWHERE = "198.18.0.2:9000"


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def files(issuer: Issuer, tmp_path: Path) -> Files:
    return issuer.write(tmp_path)


class Client:
    """A client in memory."""

    def __init__(self, context: ssl.SSLContext, name: str = NAME) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def do(self, verb: Any, *args: Any) -> Any:
        """What a verb returns; None while it wants more."""
        try:
            return verb(*args)
        except ssl.SSLWantReadError:
            return None

    def sent(self) -> bytes:
        return self._outgoing.read()

    def take(self, data: bytes) -> None:
        self._incoming.write(data)


def connect(files: Files, client: Client, at_a_time: int = 1 << 14) -> TlsBytes:
    """Shake hands, with so many bytes at a time for the server."""
    server = TlsBytes(Certificate(files.settings, print).context(0.0))
    for _ in range(3):
        client.do(client.tls.do_handshake)
        data = client.sent()
        for start in range(0, len(data), at_a_time):
            assert server.receive(data[start : start + at_a_time]) == b""
        client.take(server.take_outgoing())
    return server


# -- Bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("at_a_time", [1, 7, 1 << 14])
def test_what_one_end_sends_the_other_reads_however_it_is_cut(
    files: Files, at_a_time: int, version: str
) -> None:
    context = trusting(str(files.ca))
    if version == "TLSv1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = Client(context)
    server = connect(files, client, at_a_time)

    sent = bytes(range(256)) * 300
    client.tls.write(sent)
    data = client.sent()
    came = b"".join(
        server.receive(data[start : start + at_a_time]) for start in range(0, len(data), at_a_time)
    )
    assert came == sent
    server.pack(b"answer")
    sealed = server.take_outgoing()
    assert b"answer" not in sealed
    client.take(sealed)
    assert client.tls.read() == b"answer"
    assert client.tls.version() == version


@pytest.mark.parametrize("held_back", [0, 1, 26])
def test_what_comes_right_behind_the_handshake_is_read(files: Files, held_back: int) -> None:
    client = Client(trusting(str(files.ca)))
    server = TlsBytes(Certificate(files.settings, print).context(0.0))
    client.do(client.tls.do_handshake)
    assert server.receive(client.sent()) == b""
    client.take(server.take_outgoing())
    client.tls.do_handshake()

    for word in (b"one, ", b"two, ", b"three"):
        client.tls.write(word)
    data = client.sent()
    here = len(data) - held_back
    came = server.receive(data[:here])
    assert came == (b"one, two, " if held_back else b"one, two, three")
    if held_back:
        assert server.receive(data[here:]) == b"three"


def with_sealer(files: Files) -> tuple[TlsBytes, Sealer]:
    """An endpoint that has shaken hands with a client which seals by itself from then on."""
    context = trusting(str(files.ca))
    noted = files.ca.with_name("secrets")
    note_secrets(context, noted)
    client = Client(context)
    server = connect(files, client)
    assert (client.tls.cipher() or ("",))[0] == SUITE
    return server, Sealer(noted)


def test_a_client_may_change_its_keys_a_few_times(files: Files) -> None:
    server, sealer = with_sealer(files)
    for number in range(EMPTY_RECORDS):
        word = b"%d" % number
        assert server.receive(sealer.key_update() + sealer.content(word)) == word
    with pytest.raises(TlsError, match="too many records without content"):
        server.receive(sealer.key_update())


@pytest.mark.parametrize("at_a_time", [20, 1 << 14])
def test_a_client_that_does_nothing_but_change_its_keys_is_refused_soon(
    files: Files, at_a_time: int
) -> None:
    """Each change costs an endpoint what hundreds of bytes of content do."""
    server, sealer = with_sealer(files)
    data = b"".join(sealer.key_update() for _ in range(500))
    parts = [data[start : start + at_a_time] for start in range(0, len(data), at_a_time)]
    with pytest.raises(TlsError, match="too many records without content"):
        b"".join(map(server.receive, parts))
    assert len(server.take_outgoing()) <= (EMPTY_RECORDS + 1) * len(data) // 500


def test_records_of_nothing_are_refused_as_well(files: Files) -> None:
    server, sealer = with_sealer(files)
    for _ in range(EMPTY_RECORDS):
        assert server.receive(sealer.content(b"")) == b""
    with pytest.raises(TlsError):
        server.receive(sealer.content(b""))


def test_no_more_is_kept_of_a_record_than_one_can_have(files: Files) -> None:
    server = connect(files, Client(trusting(str(files.ca))))
    assert server.receive(b"\x17\x03\x03\x48\x00" + bytes(100)) == b""
    server = connect(files, Client(trusting(str(files.ca))))
    with pytest.raises(TlsError, match="a record of 18433 bytes"):
        server.receive(b"\x17\x03\x03\x48\x01")


def test_an_end_is_told_and_heard(files: Files) -> None:
    client = Client(trusting(str(files.ca)))
    server = connect(files, client)
    client.do(client.tls.unwrap)
    assert not server.has_ended
    assert server.receive(client.sent()) == b""
    assert server.has_ended
    server.end()
    client.take(server.take_outgoing())
    with pytest.raises(ssl.SSLZeroReturnError):
        client.tls.read()


def test_a_connection_that_is_cut_off_has_ended_too(files: Files) -> None:
    server = connect(files, Client(trusting(str(files.ca))))
    assert server.receive(b"") == b""
    assert server.has_ended


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x00", b"\x80\x2e\x01\x00\x02"])
def test_what_does_not_begin_as_tls_is_told_apart(files: Files, data: bytes) -> None:
    server = TlsBytes(Certificate(files.settings, print).context(0.0))
    with pytest.raises(NotTlsError):
        server.receive(data)
    assert server.take_outgoing() == b""


def test_noise_in_place_of_a_handshake_is_refused_with_an_alert(files: Files) -> None:
    server = TlsBytes(Certificate(files.settings, print).context(0.0))
    with pytest.raises(TlsError) as caught:
        server.receive(b"\x16\x03\x01\x00\x10" + bytes(16))
    assert not isinstance(caught.value, NotTlsError)
    assert server.take_outgoing()[:1] == b"\x15"


@pytest.mark.skipif(not ssl.HAS_TLSv1_1, reason="this OpenSSL has no client for it")
def test_old_versions_are_refused(files: Files) -> None:
    old = trusting(str(files.ca))
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    client = Client(old)
    client.do(client.tls.do_handshake)
    server = TlsBytes(Certificate(files.settings, print).context(0.0))
    with pytest.raises(TlsError, match="UNSUPPORTED_PROTOCOL"):
        server.receive(client.sent())


# -- Who is believed -------------------------------------------------------------------------------


def refusal(files: Files, ca: Path, name: str = NAME) -> str | None:
    """Why a client does not believe an endpoint."""
    client = Client(trusting(str(ca)), name)
    with pytest.raises(ssl.SSLError) as caught:
        connect(files, client)
    return why_refused(caught.value)


def test_an_issuer_or_the_certificate_itself_is_believed(files: Files) -> None:
    for ca in (files.ca, files.certificate):
        server = connect(files, Client(trusting(str(ca))))
        assert not server.has_ended


def test_another_issuer_is_not_believed(files: Files, tmp_path: Path) -> None:
    other = Issuer().write(tmp_path / "other")
    for ca in (other.ca, other.certificate):
        said = refusal(files, ca)
        assert said == "its certificate is refused: unable to get local issuer certificate"


def test_another_name_is_not_believed(files: Files) -> None:
    assert "not valid for 'demo-other'" in str(refusal(files, files.ca, "demo-other"))


def test_a_certificate_whose_time_is_over_is_not_believed(issuer: Issuer, tmp_path: Path) -> None:
    old = issuer.write(tmp_path, lasts=-timedelta(seconds=1))
    assert refusal(old, old.ca) == "its certificate is refused: certificate has expired"
    assert refusal(old, old.certificate) == "its certificate is refused: certificate has expired"


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_without_certificates_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"--ca-file {path}: .*name a PEM file") as caught:
        trusting(str(path))
    assert "\n" not in str(caught.value)


def test_no_client_is_made_that_does_not_verify(files: Files) -> None:
    context = trusting(str(files.ca))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1, "nobody whom the machine trusts besides"


# -- Files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_private_key_of_others_is_refused(files: Files, mode: int) -> None:
    files.key.chmod(mode)
    with pytest.raises(ConfigError, match=f"private_key_file {files.key}: .*chmod 600 {files.key}"):
        Certificate(files.settings, print)


def test_files_that_do_not_fit_are_refused_in_one_line(
    issuer: Issuer, files: Files, tmp_path: Path
) -> None:
    other = issuer.write(tmp_path / "other")
    sealed = issuer.write(tmp_path / "sealed", passphrase=b"open sesame")
    (tmp_path / "junk").write_text("no key")
    (tmp_path / "junk").chmod(0o600)
    for settings, said in (
        (files._replace(key=other.key).settings, "it is not the key of"),
        (files._replace(key=tmp_path / "junk").settings, "not in PEM form"),
        (files._replace(certificate=tmp_path / "junk").settings, "not in PEM form"),
        (files._replace(certificate=tmp_path / "none").settings, "No such file"),
        (files._replace(key=tmp_path / "none").settings, "No such file"),
        (sealed.settings, "nobody is there to be asked for its passphrase"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            Certificate(settings, print)
        assert "\n" not in str(caught.value)
        assert "PRIVATE" not in str(caught.value)


def test_files_are_read_again_when_they_change(issuer: Issuer, files: Files) -> None:
    said: list[str] = []
    certificate = Certificate(files.settings, said.append)
    first = certificate.context(10.0)
    assert certificate.context(10.0 + LOOK_SECONDS) is first

    issuer.write(files.key.parent)
    assert certificate.context(10.0 + LOOK_SECONDS * 1.5) is first, "it does not look all the time"
    assert certificate.context(10.0 + LOOK_SECONDS * 2) is not first
    assert said == [f"the certificate of {files.certificate} was read again"]


def test_half_a_change_changes_nothing_and_is_said_once(issuer: Issuer, files: Files) -> None:
    said: list[str] = []
    certificate = Certificate(files.settings, said.append)
    first = certificate.context(0.0)
    other = issuer.write(files.key.parent / "other")

    other.certificate.replace(files.certificate)
    for now in range(1, 4):
        assert certificate.context(now * LOOK_SECONDS) is first
    (line,) = said
    assert line.endswith("; the certificate stays as it was")
    other.key.replace(files.key)
    assert certificate.context(4 * LOOK_SECONDS) is not first
    files.key.unlink()
    last = certificate.context(5 * LOOK_SECONDS)
    assert certificate.context(6 * LOOK_SECONDS) is last
    assert [line.partition(": ")[2] for line in said[2:]] == [
        "No such file or directory; name a PEM file with the certificate, and one with its private "
        "key; the certificate stays as it was"
    ]


# -- Where it is needed ----------------------------------------------------------------------------

GIVEN = TlsSettings(certificate_file="c", private_key_file="k")
PLAIN = TlsSettings(mode="none")


@pytest.mark.parametrize("address", [ELSEWHERE, "0.0.0.0:9000", "[::]:9000"])
def test_where_others_reach_it_it_needs_tls_unless_that_is_said(address: str) -> None:
    for read in (
        lambda tls: read_control(address, TOKEN, tls=tls),
        lambda tls: read_open(address, "--listen", tls),
    ):
        with pytest.raises(
            ConfigError, match=r"others reach it, so it needs TLS; set control\.cert"
        ):
            read(TlsSettings())
        assert read(GIVEN).tls.is_on
        assert not read(PLAIN).tls.is_on
    with pytest.raises(ConfigError, match=r"it needs a token; set control\.token_file"):
        read_control(address, "", tls=GIVEN)


def test_on_loopback_it_may_have_tls_and_on_a_socket_it_has_none() -> None:
    assert not read_control("127.0.0.1:9000").tls.is_on
    assert read_control("127.0.0.1:9000", tls=GIVEN).tls.is_on
    assert not read_control("unix:x", tls=PLAIN).tls.is_on
    with pytest.raises(ConfigError, match=r"nothing leaves this machine there; drop control\.c"):
        read_control("unix:x", tls=GIVEN)


def test_probes_stay_plain() -> None:
    assert not read_probes(ELSEWHERE, "--probes").tls.is_on


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"certificate_file": "c"}, "certificate_file and private_key_file go together"),
        ({"private_key_file": "k"}, "certificate_file and private_key_file go together"),
        ({"mode": "off"}, "tls is 'off': choose one of required, none"),
        (
            {"certificate_file": "c", "private_key_file": "k", "mode": "none"},
            "tls is none, and certificate_file names a certificate; drop one",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TlsSettings(**given, names=OF_AGENT)
