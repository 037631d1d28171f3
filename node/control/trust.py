"""TLS contexts for clients of an endpoint: they trust a file with its certificate, or its
issuer's."""

from __future__ import annotations

import ssl
from typing import Final

from stormcast.node.core.errors import ConfigError

_REMEDY: Final = "name a PEM file with the certificate of the endpoint, or of its issuer"


def trusting(ca_file: str, what: str = "--ca-file") -> ssl.SSLContext:
    """Return a context that trusts what is signed by the certificates of a file, and these
    themselves, and nothing else. It verifies dates and names, too, and nothing turns that off."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A certificate in the file is trusted as it is, whoever signed it: so it can be pinned.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError:
        raise ConfigError(f"{what} {ca_file}: no certificate in PEM form; {_REMEDY}") from None
    except OSError as error:
        raise ConfigError(f"{what} {ca_file}: {error.strerror}; {_REMEDY}") from None
    return context


def why_refused(error: BaseException) -> str | None:
    """Return why a certificate was not believed, in one line; None for any other error."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    return f"its certificate is refused: {error.verify_message.rstrip('.')}"
