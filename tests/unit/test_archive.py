"""The tar of a pod's folder, and answers through the API server: nothing in them is believed."""

from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.api import Api
from stormcast.chaos.backends.kubernetes.release_access import ReleaseAccess
from stormcast.chaos.backends.pods import archive, memory
from stormcast.chaos.backends.pods.archive import BadArchive, unpack_untrusted
from stormcast.chaos.backends.pods.http_pool import (
    MAX_REPLY,
    Request,
    TooLongError,
    read_bounded,
)
from stormcast.chaos.backends.pods.journals import journals_bound
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.backends.pods.pod import Pod
from stormcast.node.control.client import Reply
from stormcast.node.keeper.tar_stream import tar_of
from tests.helpers.pods import ShutDoor

MIB, GIB = 1 << 20, 1 << 30


def tar(*entries: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    made = b"".join(entry.tobuf(form) for entry in entries)
    return made + bytes(2 * tarfile.BLOCKSIZE)


def entry(name: str, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


def sparse() -> bytes:
    """A file of 20 GiB, all of it holes, in an old GNU header of 512 bytes."""
    header = bytearray(entry("000001/member.log", type=b"S").tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0%011o\0" % (20 * GIB, 0)
    header[483:495] = b"\x80" + (20 * GIB).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(2 * tarfile.BLOCKSIZE)


def test_what_a_keeper_sends_is_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "000001" / "journal" / "n0-0000000a"
    folder.mkdir(parents=True)
    (folder / "000000.trace").write_bytes(b"trace")
    (tmp_path / "000001" / "member.log").write_bytes(b"")
    place = tmp_path / "out"
    tar = BytesIO(b"".join(tar_of(tmp_path)))
    assert unpack_untrusted(tar, place) == {"000001"}
    found = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*.*")}
    assert found == {
        "000001/journal/n0-0000000a/000000.trace": b"trace",
        "000001/member.log": b"",
    }


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (sparse(), "'000001/member.log' is no plain file"),
        (tar(entry("a", size=20 * GIB)), "'a' claims 21474836480 bytes, and the whole tar has"),
        (tar(entry("a\nb")), r"'a\\nb' is no path of a journal or log"),
        (tar(entry("\x1b[2J")), r"'\\x1b\[2J' is no path"),
        (tar(entry("/a")), "'/a' is no path"),
        (tar(entry("a/../../b")), "is no path"),
        (tar(entry("a/" * 8 + "b")), "is no path"),
        (tar(entry("ä" * 300)), "is no path"),
        (tar(entry("a" * 300)), "damaged: .*too long"),
        (tar(entry("a", type=tarfile.SYMTYPE, linkname="/etc")), "is no plain file"),
        (tar(entry("a"), entry("a/b")), "damaged"),
        (b"no tar", "damaged"),
        (gzip.compress(bytes(1 << 20)), "damaged"),
    ],
)
def test_a_tar_that_no_keeper_sends_is_refused_in_one_line(
    data: bytes, says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadArchive, match=says) as refused:
        unpack_untrusted(BytesIO(data), tmp_path / "in")
    assert str(refused.value).isprintable()
    assert [path for path in tmp_path.rglob("*") if path.is_relative_to(tmp_path / "in")] == list(
        tmp_path.rglob("*")
    )


def test_a_nul_in_a_long_name_is_refused(tmp_path: Path) -> None:
    """Only an extended header can carry one; the file system's error would end the controller."""
    data = tar(entry("x", pax_headers={"path": "a\0b"}))
    with pytest.raises(BadArchive, match=r"'a\\x00b' is no path"):
        unpack_untrusted(BytesIO(data), tmp_path)


def test_names_that_lead_to_names_without_end_are_refused(tmp_path: Path) -> None:
    """tarfile follows them by recursion."""
    longname = entry("x", type=tarfile.GNUTYPE_LONGNAME, size=2)
    block = longname.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(tarfile.BLOCKSIZE, b"\0")
    with pytest.raises(BadArchive, match="damaged"):
        unpack_untrusted(BytesIO(block * 2000), tmp_path)


def test_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    files = [entry(f"f{number}") for number in range(4)]
    unpack_untrusted(BytesIO(tar(*files[:3])), tmp_path / "a")
    with pytest.raises(BadArchive, match="there are more than 3 files"):
        unpack_untrusted(BytesIO(tar(*files)), tmp_path / "b")


@contextmanager
def memory_of(most: int) -> Iterator[None]:
    """No more is held at any time."""
    tracemalloc.start()
    try:
        yield
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= most


def large(size: int, *front: bytes) -> BinaryIO:
    """A tar that ends in so many zeros, which no disk has to keep."""
    file = TemporaryFile()  # noqa: SIM115 the caller closes it
    file.write(b"".join(front))
    file.truncate(file.tell() + size + 2 * tarfile.BLOCKSIZE)
    return file


def test_a_large_tar_takes_little_memory(tmp_path: Path) -> None:
    head = entry("000001/member.log", size=64 * MIB).tobuf()
    with large(64 * MIB, head) as file, memory_of(MIB):
        unpack_untrusted(file, tmp_path)
    assert (tmp_path / "000001" / "member.log").stat().st_size == 64 * MIB


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_large_header_takes_little_memory(kind: bytes, tmp_path: Path) -> None:
    """tarfile reads the whole of it."""
    head = entry("x", type=kind, size=64 * MIB).tobuf(tarfile.GNU_FORMAT)
    says = "damaged: a header has 67108864 bytes"
    with (
        large(64 * MIB, head) as file,
        memory_of(MIB),
        pytest.raises(BadArchive, match=says),
    ):
        unpack_untrusted(file, tmp_path)


def test_many_headers_take_little_memory(tmp_path: Path) -> None:
    """tarfile keeps those of each file, and those for all files."""
    one = entry("x", pax_headers={"comment": "c" * 50_000}).tobuf(tarfile.PAX_FORMAT)
    with large(0, one * 200) as file, memory_of(MIB):
        unpack_untrusted(file, tmp_path)
    of_all = tarfile.TarInfo.create_pax_global_header({"comment": "c"})
    with pytest.raises(BadArchive, match="headers for all files"):
        unpack_untrusted(BytesIO(of_all + tar(entry("x"))), tmp_path)


# -- Answers ---------------------------------------------------------------------------------------


class Poured:
    """An answer of the pool that does not end."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.read_bytes = 0
        self.is_closed = False

    def read1(self, size: int, *, decode_content: bool) -> bytes:
        assert not decode_content, "a few compressed bytes could become any number"
        self.read_bytes += size
        return bytes(size)

    def close(self) -> None:
        self.is_closed = True

    def release_conn(self) -> None:
        assert self.is_closed, "nobody is to read the rest of it"


def test_no_more_of_an_answer_is_read_than_is_taken() -> None:
    poured = Poured()
    assert read_bounded(poured, 1 << 20, 60.0) is None
    assert poured.is_closed
    assert poured.read_bytes <= (1 << 20) + (1 << 16)


def test_what_goes_into_a_file_is_not_held() -> None:
    poured = Poured()
    with TemporaryFile() as file, memory_of(MIB):
        assert read_bounded(poured, 32 * MIB, 60.0, file) is None
        assert poured.is_closed
        assert file.tell() == 32 * MIB


def test_an_answer_that_is_an_error_goes_into_no_file() -> None:
    poured = Poured(500)
    with TemporaryFile() as file:
        assert read_bounded(poured, GIB, 60.0, file) is None
        assert poured.read_bytes <= MAX_REPLY + (1 << 16)
        assert file.tell() == 0


class Keeper:
    """An API server behind which a keeper answers; keeps the bound that it was given."""

    host = "https://fake"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.asked: list[int] = []

    def request(self, request: Request) -> Reply:
        self.asked.append(request.most)
        if len(self.reply.body) > request.most:
            raise TooLongError(f"{request.target}: the answer has more than {request.most} bytes")
        if request.into is None:
            return self.reply
        request.into.write(self.reply.body)
        return Reply(self.reply.status, self.reply.kind, b"")


def pod(reply: Reply, journals: int) -> tuple[MemberPod, Keeper]:
    keeper = Keeper(reply)
    seen = Pod(
        name="demo-0", ordinal=0, addresses=(), ports={"keeper": 7801}, has_agent=False,
        is_tls=False,
    )  # fmt: skip  # one pod
    return MemberPod(Api(keeper, "x"), seen, "n0", "", journals), keeper


def test_journals_have_a_bound_of_their_own_and_the_refusal_says_how_to_raise_it(
    tmp_path: Path,
) -> None:
    whole = Reply(200, "application/x-tar", tar(entry("f0")))
    member, keeper = pod(whole, len(whole.body))
    member.collect(tmp_path)
    assert keeper.asked == [len(whole.body)]
    member, _keeper = pod(whole, len(whole.body) - 1)
    with pytest.raises(BackendError, match="set STORMCAST_MAX_JOURNALS to more, such as 4GiB"):
        member.collect(tmp_path)


def test_journals_that_are_refused_name_the_member(tmp_path: Path) -> None:
    member, _keeper = pod(Reply(200, "application/x-tar", sparse()), GIB)
    with pytest.raises(BackendError, match=r"the journals of n0 are refused: '000001/member\.log'"):
        member.collect(tmp_path)


def test_what_a_keeper_says_is_shown_as_one_line() -> None:
    body = b'{"error": "no\\n\\u001b[2J"}'
    member, _keeper = pod(Reply(400, "application/json", body), 0)
    with pytest.raises(BackendError) as refused:
        member.keeper.ask("GET", "/state")
    assert str(refused.value) == "demo-0: GET /state: no \\x1b[2J"


def test_the_journals_of_a_member_do_not_fill_the_memory_of_who_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that was taken over sent a GiB, and the controller may have that much in all."""
    first, second = tmp_path / "memory.max", tmp_path / "limit_in_bytes"
    monkeypatch.setattr(memory, "LIMITS", (first, second))
    assert journals_bound() == GIB
    first.write_text("max\n")
    assert journals_bound() == GIB
    second.write_text(f"{4 * GIB}\n")
    assert journals_bound() == GIB // 2
    first.write_text(f"{GIB}\n")
    assert journals_bound() == GIB // 8 == ReleaseAccess(server=ShutDoor()).journals
    first.write_text(f"{100 * GIB}\n")
    assert journals_bound() == GIB


def test_nothing_is_left_of_the_tar(tmp_path: Path) -> None:
    whole = Reply(200, "application/x-tar", tar(entry("f0")))
    member, _keeper = pod(whole, len(whole.body))
    assert member.collect(tmp_path) == {}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["f0"]
