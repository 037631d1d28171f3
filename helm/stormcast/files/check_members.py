# ruff: noqa: INP001 it is no module: Python gets its text
"""What `helm test` runs, with the node image's Python: whether all members are one group.

Its words are the headless Service and the number of members. Each keeper is asked at its pod's own
name for its member's state, until all of them tell of one view of that many members.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

SECONDS = 90
PORT = 7801


def ask(host: str, token: str) -> dict:
    """What the member in a pod says of itself."""
    request = urllib.request.Request(
        f"http://{host}:{PORT}/member/state", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 it is http
        return json.load(answer)


def view_of(host: str, token: str) -> str:
    """A member's view as one line, or why there is none."""
    try:
        view = ask(host, token)["view"]
    except (OSError, ValueError, KeyError) as error:
        return f"no answer: {error}"
    if view is None:
        return "no view"
    names = sorted(member["name"] for member in view["members"])
    return f"view {view['id']} of {len(names)}: {' '.join(names)}"


def main(service: str, count: int, token: str) -> int:
    """0 when they are one group; every change is printed."""
    end = time.monotonic() + SECONDS
    before: dict[str, str] = {}
    while True:
        seen = {f"{service}-{n}": view_of(f"{service}-{n}.{service}", token) for n in range(count)}
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
    sys.exit(main(sys.argv[1], int(sys.argv[2]), os.environ["TOKEN"]))
