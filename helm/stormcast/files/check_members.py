# ruff: noqa: INP001 it is no module: Python gets its text
"""What `helm test` runs, with the node image's Python: whether all members are one group.

Its words are the headless Service, the number of members, the file with the token and, where
keepers speak TLS, the file with the issuer of their certificate, which is for the Service's name.
Each keeper is asked at its pod's own name for its member's state, until all of them tell of one
view of that many members.
"""

import http.client
import json
import socket
import ssl
import sys
import time
from contextlib import closing
from pathlib import Path

SECONDS = 90
PORT = 7801


class Keepers:
    """All keepers of a release."""

    def __init__(self, service: str, token: str, issuer: str) -> None:
        self.service = service
        self.token = token
        self.trusted = ssl.create_default_context(cafile=issuer) if issuer else None

    def ask(self, number: int) -> dict:
        """What the member in a pod says of itself."""
        host = f"{self.service}-{number}.{self.service}"
        with closing(http.client.HTTPConnection(host, PORT, timeout=5)) as connection:
            connection.sock = socket.create_connection((host, PORT), timeout=5)
            if self.trusted is not None:
                connection.sock = self.trusted.wrap_socket(
                    connection.sock, server_hostname=self.service
                )
            proof = {"Authorization": f"Bearer {self.token}"}
            connection.request("GET", "/member/state", headers=proof)
            return json.load(connection.getresponse())


def view_of(keepers: Keepers, number: int) -> str:
    """A member's view as one line, or why there is none."""
    try:
        view = keepers.ask(number)["view"]
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        return f"no answer: {error}"
    if view is None:
        return "no view"
    names = sorted(member["name"] for member in view["members"])
    return f"view {view['id']} of {len(names)}: {' '.join(names)}"


def main(service: str, count: int, token_file: str, issuer: str = "") -> int:
    """0 when they are one group; every change is printed."""
    keepers = Keepers(service, Path(token_file).read_text().strip(), issuer)
    end = time.monotonic() + SECONDS
    before: dict[str, str] = {}
    while True:
        seen = {f"{service}-{number}": view_of(keepers, number) for number in range(count)}
        for name, view in seen.items():
            if before.get(name) != view:
                print(f"{name}: {view}", flush=True)
        before = seen
        if len(set(seen.values())) == 1 and f" of {count}: " in seen[f"{service}-0"]:
            print(f"one group of {count}")
            return 0
        if time.monotonic() > end:
            print(f"not one group of {count} after {SECONDS} s", file=sys.stderr)
            return 1
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
