"""What `helm test` runs, against keepers that are none: whether it sees one group, and verifies."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stormcast.node.control.answers import Table, as_json
from stormcast.node.control.settings import NO_TLS
from tests.helpers.certificates import NAME, Files, Issuer
from tests.helpers.chart import CHART
from tests.helpers.endpoint import Endpoint
from tests.helpers.tokens import token_file

TOKEN = "0123456789abcdef"  # noqa: S105 of a test
VIEW = {"id": "4|n0", "members": [{"name": f"{NAME}-{number}"} for number in range(2)]}
TABLE: Table = {"/member/state": {"GET": lambda _: as_json({"view": VIEW})}}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Issuer().write(tmp_path)


def checking(port: int, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for which all names of pods are this machine."""
    spec = importlib.util.spec_from_file_location("checking", CHART / "files" / "check_members.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    connect = socket.create_connection

    def here(_address: object, **rest: Any) -> socket.socket:
        return connect(("127.0.0.1", port), **rest)

    monkeypatch.setattr(script.socket, "create_connection", here)
    monkeypatch.setattr(script, "SECONDS", 0)
    return script


@pytest.mark.parametrize("has_tls", [True, False], ids=["tls", "plain"])
def test_one_group_is_seen_by_who_verifies_and_has_the_token(
    has_tls: bool,
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    issuer = (str(files.ca),) if has_tls else ()
    with Endpoint(TABLE, token=TOKEN, tls=files.settings if has_tls else NO_TLS) as keeper:
        script = checking(keeper.port, monkeypatch)
        assert script.main(NAME, 2, str(token_file(tmp_path, TOKEN)), *issuer) == 0
        assert capsys.readouterr().out.endswith("one group of 2\n")
        assert script.main(NAME, 3, str(tmp_path / "token"), *issuer) == 1

        other = Issuer().write(tmp_path / "other").ca
        assert script.main(NAME, 2, str(tmp_path / "token"), str(other)) == 1
        assert "no answer: [SSL: " in capsys.readouterr().out
        assert script.main(NAME, 2, str(token_file(tmp_path, "x" * 16)), *issuer) == 1
        assert "no answer: 'view'" in capsys.readouterr().out
