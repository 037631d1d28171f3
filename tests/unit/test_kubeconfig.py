"""A kubeconfig that cannot be used is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.api import Api, open_api

TOLD = """\
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: %s}}]
"""


def refused(text: str, folder: Path) -> str:
    file = folder / "config"
    file.write_text(text)
    with pytest.raises(BackendError) as caught:
        Api(*open_api(str(file))).pods("a=b")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("text", ["clusters:\n\t- a\n", "a: b: c", "- a", "hello", ""])
def test_a_file_that_is_no_kubeconfig(text: str, tmp_path: Path) -> None:
    assert "no cluster is configured" in refused(text, tmp_path)


def test_a_token_that_is_no_header_is_told_and_not_shown(tmp_path: Path) -> None:
    said = refused(TOLD % '"secret\\nword"', tmp_path)
    assert "the token has a line break" in said
    assert "secret" not in said
