"""pytest and clusters: the fixtures `cluster` and `chaos`, on the backend that the command names.

They are `stormcast_cluster` and `stormcast_chaos`, too, for projects with fixtures of those names.

A test says what happens; when its body is through, the run is judged, and a guarantee that does not
hold fails the test with the witness and the command that repeats the run. Every pytest loads this
module where Stormcast is installed, so costly imports are made when they are used
(live_cluster.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from stormcast.chaos.plugin.guests import GuestMaker
    from stormcast.chaos.plugin.live_cluster import Chaos, Clusters

BACKENDS: Final = ("sim", "netns", "docker", "kubernetes")
SECTION: Final = "stormcast"
_CLUSTERS: Final = pytest.StashKey["Clusters"]()
"""The clusters of a test, whichever way it has got the fixture: pytest lists among a test's
`funcargs` only fixtures that it names, and not those that it asks for while it runs."""
_GUESTS: Final = pytest.StashKey["GuestMaker"]()
_IS_OVER: Final = pytest.StashKey[bool]()
"""Whether a test has failed or was skipped: what it did not come to is then not judged."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: where clusters live, with which seed, and which runs are kept."""
    group = parser.getgroup("stormcast", "Stormcast: clusters under chaos")
    group.addoption(
        "--stormcast-backend",
        choices=BACKENDS,
        default="sim",
        help="where members of `cluster` live: in the simulator, in network namespaces (as root), "
        "in docker, or in Kubernetes (KUBECONFIG). Default: sim",
    )
    group.addoption(
        "--stormcast-seed",
        type=int,
        default=1,
        metavar="N",
        help="decides identities, payloads and the fate of frames. Default: 1",
    )
    group.addoption(
        "--stormcast-keep",
        metavar="DIR",
        help="keep every run directory in DIR; without it, those of failures in pytest's own",
    )


@pytest.fixture
def stormcast_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Clusters]:
    """Makes a cluster: `cluster(members=3, stack="udp")` starts members and waits for them."""
    from stormcast.chaos.plugin.live_cluster import Clusters  # noqa: PLC0415 see above

    option = request.config.getoption
    backend, seed = option("--stormcast-backend"), option("--stormcast-seed")
    keep = option("--stormcast-keep")
    node = request.node.nodeid
    clusters = Clusters(
        backend=backend,
        seed=seed,
        name=_slug(node.rpartition("::")[2]),
        folder=Path(keep) / _slug(node) if keep else tmp_path,
        is_kept=keep is not None,
        replay=f"pytest {shlex.quote(node)} --stormcast-backend {backend} --stormcast-seed {seed}",
    )
    request.node.stash[_CLUSTERS] = clusters
    request.node.stash[_IS_OVER] = False
    yield clusters
    try:
        if not request.node.stash[_IS_OVER]:
            # Another fixture may have made a cluster after the body of the test.
            _judge(clusters)
    finally:
        clusters.close()


def _judge(clusters: Clusters | None, guests: GuestMaker | None = None) -> None:
    """Judge what was not judged yet; the test fails unless all of it holds."""
    try:
        if clusters is not None:
            clusters.finish_all()
        if guests is not None:
            guests.finish()
    except AssertionError as error:
        # Hide our frames from pytest's traceback: the text says everything.
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@pytest.fixture
def stormcast_chaos(stormcast_cluster: Clusters) -> Chaos:
    """Faults for the cluster: `with chaos.partition(["n0"], ["n1", "n2"]): …`."""
    return stormcast_cluster.chaos


@pytest.fixture
def stormcast_guest(
    request: pytest.FixtureRequest, stormcast_cluster: Clusters, tmp_path: Path
) -> Iterator[GuestMaker]:
    """Starts programs of others, as root: `guest(command="…", ready={"tcp": 6379})`."""
    from stormcast.chaos.plugin.guests import GuestMaker  # noqa: PLC0415 see above

    seed = request.config.getoption("--stormcast-seed")
    guests = GuestMaker(tmp_path / "guests", request.path.parent, seed)
    stormcast_cluster.guests = guests
    request.node.stash[_GUESTS] = guests
    yield guests
    guests.close()


@pytest.fixture
def guest(stormcast_guest: GuestMaker) -> GuestMaker:
    """`stormcast_guest`: starts programs of others, as root."""
    return stormcast_guest


@pytest.fixture
def cluster(stormcast_cluster: Clusters) -> Clusters:
    """`stormcast_cluster`: `cluster(members=3, stack="udp")` starts members and waits for them."""
    return stormcast_cluster


@pytest.fixture
def chaos(stormcast_chaos: Chaos) -> Chaos:
    """`stormcast_chaos`: `with chaos.partition(["n0"], ["n1", "n2"]): …`."""
    return stormcast_chaos


def _clusters(item: pytest.Item) -> Clusters | None:
    """Return the clusters of a test; None if it does not use the fixture."""
    return item.stash.get(_CLUSTERS, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Judge the clusters of a test that did not do so itself: each cluster gets a verdict."""
    yield
    _judge(_clusters(item), item.stash.get(_GUESTS, None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure where its run is kept, and how to repeat it."""
    report = yield
    if not report.passed:
        item.stash[_IS_OVER] = True
    clusters = _clusters(item)
    if clusters is not None and report.failed and call.when == "call":
        words = clusters.last_words()
        if words:
            report.sections.append((SECTION, words))
    return report
