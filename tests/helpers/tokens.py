"""Tokens in files, as endpoints want them."""

from __future__ import annotations

from pathlib import Path


def token_file(folder: Path, token: str) -> Path:
    """A file with a token, for its owner only."""
    path = folder / "token"
    path.touch(0o600)
    path.write_text(f"{token}\n")
    return path
