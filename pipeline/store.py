"""An object store (S3): URLs of what lies there, the connection, and why it fails, in one line.

Endpoint, region and credentials come from the environment, as for every client of S3. None of them
is an argument, and no text of the store is repeated: it is somebody else's, and may hold anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from stormcast.pipeline.questions import CannotError, VerifyError
from stormcast.pipeline.session import check_pyarrow

SCHEMES: Final = ("s3a://", "s3://")
ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables that say where the store is; the first that is set. None: it is that of AWS."""
REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECT_SECONDS: Final = 3
SILENT_SECONDS: Final = 5
"""A store that says nothing for so long is not there."""
ATTEMPTS: Final = 2
CHUNK: Final = 1 << 22
"""Bytes of a file that are in memory at a time."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_CODE: Final = re.compile(
    r"AWS Error (?P<code>[A-Z_]{1,60})(?: \(HTTP status (?P<status>\d{3})\))?"
    r"(?:.*?ExceptionName: (?P<name>\w{1,60}))?"
)
"""What pyarrow says of an error: the store's own name of it comes last, where Amazon's client does
not know it."""
_CURL: Final = re.compile(r"curlCode: \d+, ([\w ,]{1,60})")
_NO_RIGHT: Final = frozenset(
    {
        "ACCESS_DENIED",
        "INVALID_ACCESS_KEY_ID",
        "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN",
        "REQUEST_EXPIRED",
        "REQUEST_TIME_TOO_SKEWED",
        "SIGNATURE_DOES_NOT_MATCH",
        "UNRECOGNIZED_CLIENT",
        "ExpiredToken",
        "InvalidToken",
        "401",
        "403",
    }
)
_NO_BUCKET: Final = "NO_SUCH_BUCKET"
_NOT_REACHED: Final = "NETWORK_CONNECTION"
_KEYS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


@dataclass(frozen=True, slots=True)
class Url:
    """The URL of a run in a store."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{SCHEMES[0]}{self.path}"

    @property
    def path(self) -> str:
        """The run, as pyarrow names it."""
        return f"{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder in a folder of a store."""

    name: str
    is_folder: bool
    size: int = 0
    changed: int | None = None
    """When it was last changed, in nanoseconds."""


def read_url(text: str) -> Url | None:
    """Return the URL of a run, or None if the text is a path; VerifyError if it names no run."""
    for scheme in SCHEMES:
        if text.startswith(scheme):
            return _read_rest(text.removeprefix(scheme))
    return None


def _read_rest(rest: str) -> Url:
    bucket, _slash, key = rest.rstrip("/").partition("/")
    if not _BUCKET.fullmatch(bucket) or "?" in key or "#" in key:
        # Not repeated: it may be a secret, as in s3a://KEY:SECRET@BUCKET/PATH.
        raise VerifyError(
            "a run in a store is named s3a://BUCKET/PATH, without '@', '?' and '#': endpoint and "
            f"credentials are read from the environment ({ENDPOINTS[-1]}, {_KEYS})"
        )
    if not key:
        raise VerifyError(f"s3a://{bucket} is a bucket: name a run in it, s3a://{bucket}/PATH")
    if not all(map(is_plain, key.split("/"))):
        raise VerifyError(f"s3a://{bucket}/{key}: a part of its path is empty, '.', '..' or odd")
    return Url(bucket, key)


def is_plain(name: str) -> bool:
    """Whether a name of a store can be that of a file here, and of no other than is meant."""
    is_odd = name in {"", ".", ".."} or "/" in name or not name.isprintable()
    return not is_odd and len(name.encode(errors="replace")) <= 200  # noqa: PLR2004 of the 255 of a file system


class Store:
    """The object store of the environment. What fails is a VerifyError of one line; CannotError
    where it is the network."""

    def __init__(self, system: Any, address: str) -> None:  # noqa: ANN401 pyarrow has no types
        self._system = system
        """A file system of pyarrow."""
        self._address = address

    def list_folder(self, place: str) -> list[Entry]:
        """Return what is in a folder, but not what is in its folders; nothing if there is none."""
        files = import_module("pyarrow.fs")
        try:
            with self._told(place, "read"):
                found = self._system.get_file_info(files.FileSelector(place, recursive=False))
        except FileNotFoundError:
            return []
        entries = [
            Entry(
                # A folder without a name is listed as the one that it is in.
                one.path[len(place) + 1 :],
                one.type == files.FileType.Directory,
                one.size or 0,
                one.mtime_ns,
            )
            for one in found
        ]
        # Some stores have an object for a folder, which is listed among what is in it.
        return [one for one in entries if one.is_folder or one.name]

    def fetch(self, place: str, into: Path, size: int) -> int | None:
        """Copy a file from the store; returns how many bytes it has. None: it is not there any
        more. One that is larger than `size` is left as soon as that is known."""
        copied = 0
        try:
            with into.open("xb") as file:
                for data in self._read(place):
                    file.write(data)
                    copied += len(data)
                    if copied > size:
                        break
        except FileNotFoundError:
            return None
        return copied

    def _read(self, place: str) -> Iterator[bytes]:
        with (
            self._told(place, "read"),
            # By its name, pyarrow would unpack it.
            self._system.open_input_stream(place, compression=None) as source,
        ):
            while data := source.read(CHUNK):
                yield data

    def put(self, file: Path, place: str) -> None:
        """Copy a file to the store, where it is there as a whole or not at all."""
        with (
            file.open("rb") as source,
            self._told(place, "written"),
            self._system.open_output_stream(place) as out,
        ):
            while data := source.read(CHUNK):
                out.write(data)

    def remove(self, place: str) -> None:
        """Remove a file, if it is there."""
        with self._told(place, "written"), suppress(FileNotFoundError):
            self._system.delete_file(place)

    def remove_folder(self, place: str) -> None:
        """Remove the files of a folder. One by one: where folders are objects, pyarrow removes them
        in any order, and some stores refuse that of one that has files yet."""
        for entry in self.list_folder(place):
            if not entry.is_folder:
                self.remove(f"{place}/{entry.name}")

    @contextmanager
    def _told(self, place: str, how: str) -> Iterator[None]:
        """Tell what fails in words of ours."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            # A path that pyarrow takes for none is a ValueError.
            raise self._refusal(place, how, str(error)) from None

    def _refusal(self, place: str, how: str, said: str) -> VerifyError:
        url = f"{SCHEMES[0]}{place}"
        found = _CODE.search(said)
        if found is None:
            return VerifyError(f"{url} cannot be {how}: {ENDPOINTS[-1]} names no store of S3")
        codes = {found["code"], found["status"], found["name"]}
        if _NOT_REACHED in codes:
            why = curl[1].strip() if (curl := _CURL.search(said)) else "no connection"
            return CannotError(
                f"{url} cannot be {how}: no connection with {self._address} ({why}): "
                f"see {ENDPOINTS[-1]}"
            )
        if _NO_BUCKET in codes:
            bucket = place.partition("/")[0]
            return VerifyError(
                f"{url}: {self._address} has no bucket {bucket}: name another, or see "
                f"{ENDPOINTS[-1]}"
            )
        code = found["name"] or found["code"]
        if codes & _NO_RIGHT:
            other = ", or name a directory for results with --out" if how == "written" else ""
            return VerifyError(f"{url} must not be {how} ({code}): see {_KEYS}{other}")
        status = f", HTTP status {found['status']}" if found["status"] else ""
        return VerifyError(
            f"{url} cannot be {how} ({code}{status}): see {ENDPOINTS[-1]}, {REGIONS[0]}, {_KEYS}"
        )


def connect() -> Store:
    """Return the store of the environment. Nothing is sent yet."""
    check_pyarrow()
    try:
        files = import_module("pyarrow.fs")
        make, retries = files.S3FileSystem, files.AwsStandardS3RetryStrategy
    except (ImportError, AttributeError):
        raise CannotError("this pyarrow is built without S3: pip install pyarrow") from None
    words: dict[str, Any] = {}
    address = "AWS"
    endpoint = next(filter(None, map(os.environ.get, ENDPOINTS)), None)
    if endpoint is not None:
        words["scheme"], words["endpoint_override"] = address_of(endpoint)
        address = f"{words['scheme']}://{words['endpoint_override']}"
    region = next(filter(None, map(os.environ.get, REGIONS)), None)
    if region or endpoint is not None:
        # A server of one's own has the region of AWS that is its default; to look for another
        # takes seconds.
        words["region"] = region or "us-east-1"
    system = make(
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=retries(max_attempts=ATTEMPTS),
        **words,
    )
    return Store(system, address)


def address_of(endpoint: str) -> tuple[str, str]:
    """Return scheme and host of an endpoint; VerifyError if it is none."""
    with suppress(ValueError):
        told = urlsplit(endpoint)
        is_bare = told.path in {"", "/"} and not told.query and "@" not in told.netloc
        if told.scheme in {"http", "https"} and told.hostname and is_bare:
            return told.scheme, told.netloc
    # Not repeated: it may hold a password.
    raise VerifyError(f"{ENDPOINTS[-1]} must be a URL such as http://127.0.0.1:9000: set it anew")
