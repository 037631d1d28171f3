"""Flags for the certificate of a listener, for commands other than `stormcast node`."""

from __future__ import annotations

import argparse

from stormcast.node.control.settings import OF_FLAGS, REQUIRED, TLS_MODES, TlsSettings


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add the flags of TLS."""
    parser.add_argument(
        OF_FLAGS.certificate_file,
        metavar="FILE",
        default="",
        help="PEM file with the certificate of --listen (default: plain HTTP)",
    )
    parser.add_argument(
        OF_FLAGS.private_key_file,
        metavar="FILE",
        default="",
        help="PEM file with its private key, for its owner only",
    )
    parser.add_argument(
        OF_FLAGS.tls,
        choices=TLS_MODES,
        default=REQUIRED,
        help="where others reach --listen: required, or none for plain HTTP (default required)",
    )


def tls_of(words: argparse.Namespace) -> TlsSettings:
    """Return what the flags say; ConfigError for those that do not go together."""
    return TlsSettings(
        certificate_file=words.certificate_file,
        private_key_file=words.private_key_file,
        mode=words.tls,
        names=OF_FLAGS,
    )
