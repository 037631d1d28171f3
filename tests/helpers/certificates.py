"""Certificates for tests: an issuer of its own, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from stormcast.node.control.settings import TlsSettings

NAME = "demo-stormcast"
"""What the certificates are for, besides loopback."""
DAY = timedelta(days=1)


class Files(NamedTuple):
    """The files of an endpoint and of its clients."""

    ca: Path
    certificate: Path
    key: Path

    @property
    def settings(self) -> TlsSettings:
        return TlsSettings(certificate_file=str(self.certificate), private_key_file=str(self.key))


class Issuer:
    """Signs certificates; each issuer has a key of its own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        called = f"issuer {token_hex(4)}"
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
        self.certificate = self._builder(self._name, self._key, 2 * DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).sign(self._key, hashes.SHA256())  # fmt: skip  # one certificate

    def _builder(self, name: x509.Name, key: Any, lasts: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + lasts)
        )

    def write(
        self, folder: Path, *, name: str = NAME, lasts: timedelta = DAY, passphrase: bytes = b""
    ) -> Files:
        """A certificate for a name and for loopback, its key, and this issuer, in files."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.DNSName("localhost")]
        names += [x509.IPAddress(ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signed = (
            self._builder(subject, key, lasts)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        files = Files(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
        files.ca.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        files.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        sealed = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        # Removed first: a file that is there keeps its rights.
        files.key.unlink(missing_ok=True)
        files.key.touch(0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
        return files
