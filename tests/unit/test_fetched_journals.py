"""Journals of a member in a pod: all that the run's incarnations wrote, or an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.pods.http_pool import Request
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.node.control.client import Reply
from stormcast.node.keeper.tar_stream import tar_of
from stormcast.node.trace.segments import SUFFIX
from tests.helpers.pods import A_POD


class Sends:
    """A keeper that sends what is in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, _port: object, request: Request) -> Reply:
        if request.target == "/journals/forget":
            for number in json.loads(request.body or b"")["incarnations"]:
                shutil.rmtree(self._folder / f"{number:06}")
            return Reply(200, "application/json", b"{}")
        assert request.into is not None
        request.into.writelines(tar_of(self._folder))
        return Reply(200, "application/x-tar", b"")


def test_journals_that_another_run_has_deleted_are_not_those_that_came_before(
    tmp_path: Path,
) -> None:
    """Those of the beginning are there still, and would be judged as the whole run."""
    kept, api = tmp_path / "kept", Sends(tmp_path / "kept")
    pod = MemberPod(api, A_POD, "n0", "token")  # type: ignore[arg-type]  # all that it asks of it
    for number in (1, 2):
        (kept / f"{number:06}").mkdir(parents=True)
        (kept / f"{number:06}" / "config.json").write_bytes(b"{}")
        pod.incarnations.append(number)
    assert pod.collect(tmp_path / "run") == {}
    shutil.rmtree(kept / "000001")
    with pytest.raises(BackendError, match="a journal of n0 is gone"):
        pod.collect(tmp_path / "run")


def test_what_was_forgotten_is_not_missed_and_what_was_dropped_is_not_believed(
    tmp_path: Path,
) -> None:
    """A soak has members drop what is judged: segments that were fetched before are no evidence."""
    kept, api = tmp_path / "kept", Sends(tmp_path / "kept")
    pod = MemberPod(api, A_POD, "n0", "token")  # type: ignore[arg-type]  # all that it asks of it
    for number in (1, 2):
        journal = kept / f"{number:06}" / "journal" / f"n0-{number}"
        journal.mkdir(parents=True)
        for segment in (0, 1):
            (journal / f"{segment:06}{SUFFIX}").write_bytes(b"%d" % segment)
        pod.incarnations.append(number)
    assert set(pod.collect(tmp_path / "run")) == {"n0-1", "n0-2"}
    pod.forget(["n0-1", "of another member"])
    (kept / "000002" / "journal" / "n0-2" / f"000000{SUFFIX}").unlink()
    assert set(pod.collect(tmp_path / "run")) == {"n0-2"}
    came = [path.name for path in (tmp_path / "run").rglob(f"*{SUFFIX}")]
    assert came == [f"000001{SUFFIX}"]
