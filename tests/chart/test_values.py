"""What each value of the chart does, and which ones it refuses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml
from cryptography import x509

from stormcast.chaos.soak.storm_file import parse_storm
from tests.helpers.chart import CHART, HelmError, Rendered, merged, render, template

DIGEST = "sha256:" + "0" * 64
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
LOAD = {"do": "multicast", "rate": "10/s", "size": "100B"}
TERM = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
PEER = {"ipBlock": {"cidr": "10.0.0.4/32"}}


class Knob(NamedTuple):
    """One value, and where it shows."""

    key: str
    value: Any
    seen: Callable[[Rendered], Any]
    expected: Any = None
    """Of what is seen; None: the value itself."""
    besides: Mapping[str, Any] = {}
    """Values without which it does nothing."""


def _members(chart: Rendered) -> Any:
    return chart.one("StatefulSet")["spec"]


def _pod(chart: Rendered) -> Any:
    return _members(chart)["template"]


def _volume(chart: Rendered, kind: str, component: str, name: str) -> Any:
    volumes = chart.one(kind, component)["spec"]["template"]["spec"]["volumes"]
    (found,) = (one for one in volumes if one["name"] == name)
    return found["emptyDir"]["sizeLimit"]


def _image(name: str, key: str = "image") -> Callable[[Rendered], Any]:
    return lambda chart: chart.container(name)[key]


def _told(key: str) -> Callable[[Rendered], Any]:
    return lambda chart: chart.told("member.yaml").get(key)


def _spread(key: str) -> Callable[[Rendered], Any]:
    return lambda chart: _pod(chart)["spec"]["topologySpreadConstraints"][0][key]


def _words(chart: Rendered) -> str:
    return " ".join(chart.container("controller")["args"])


def _scenarios(chart: Rendered) -> list[str]:
    return list(chart.one("ConfigMap", "controller")["data"])


def _storm(chart: Rendered) -> str:
    text: str = chart.one("ConfigMap", "controller")["data"].get("storm.yaml", "")
    return text


def _certificate_days(chart: Rendered) -> float:
    (data,) = (one["data"] for one in chart.of("Secret") if "tls.crt" in one["data"])
    made = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
    return (made.not_valid_after_utc - made.not_valid_before_utc).total_seconds() / 86400


def _keys(chart: Rendered) -> list[str]:
    (data,) = (one["data"] for one in chart.of("Secret") if "cluster.key" in one["data"])
    return base64.b64decode(data["cluster.key"]).decode().split()


def _secrets_used(chart: Rendered) -> set[str]:
    """In volumes, in variables and in what the controller may read."""
    volumes = [one for pod in chart.pods() for one in pod["spec"].get("volumes", [])]
    variables = [one for box, _pod in chart.containers() for one in box.get("env", [])]
    return {
        *(one["secret"]["secretName"] for one in volumes if "secret" in one),
        *(
            one["valueFrom"]["secretKeyRef"]["name"]
            for one in variables
            if "secretKeyRef" in one.get("valueFrom", {})
        ),
        *(chart.one("Role", "controller")["rules"][-1]["resourceNames"]),
        *(one["metadata"]["name"] for one in chart.of("Secret")),
    }


def _peers(chart: Rendered, port: int) -> list[Any]:
    """Those that the NetworkPolicy names for a port."""
    rules = chart.one("NetworkPolicy")["spec"]["ingress"]
    return [
        peer
        for rule in rules
        if port in (one["port"] for one in rule["ports"])
        for peer in rule.get("from", [])
    ]


def _listeners(chart: Rendered) -> set[str]:
    """The hosts of all six listeners: keepers, agents and the controller have two each."""
    words = [*chart.container("member")["args"], *chart.container("controller")["args"]]
    agent = chart.told("agent.yaml")
    listeners = [agent["control"], agent["probes"]]
    listeners += [
        word.partition("=")[2] for word in words if word.startswith(("--listen=", "--probes="))
    ]
    assert len(listeners) == 6
    return {one.rpartition(":")[0] for one in listeners}


def _driver(chart: Rendered) -> Any:
    """The container of Spark's driver; of nothing where there is none."""
    return next((one for one, _pod in chart.containers() if one["name"] == "driver"), {})


def _spark(word: str) -> Callable[[Rendered], Any]:
    return lambda chart: word in _driver(chart).get("args", ())


def _claims(chart: Rendered) -> list[str]:
    """Of the pods that are rendered, and of those that Spark makes."""
    texts = (text for one in chart.of("ConfigMap") for text in one["data"].values())
    kinds = [yaml.safe_load(text) for text in texts if text.startswith("apiVersion")]
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for pod in [*chart.pods(), *kinds]
        for volume in pod["spec"].get("volumes", [])
        if "persistentVolumeClaim" in volume
    ]


SOAK = {"soak": {"enabled": True}}
SPARK = {"spark": {"command": ["verify", "/runs/one"], "claim": "runs"}}
IMAGE = "--conf=spark.kubernetes.container.image"

KNOBS = (
    Knob("replicas", 5, lambda chart: _members(chart)["replicas"]),
    Knob("listenHost", "[::]", _listeners, {"[::]"}),
    Knob("images.node.repository", "r.test/n", _image("member"), "r.test/n:0.1.0"),
    Knob("images.node.tag", "7", _image("member"), "stormcast-node:7"),
    Knob("images.node.digest", DIGEST, _image("member"), f"stormcast-node@{DIGEST}"),
    Knob("images.node.pullPolicy", "Never", _image("member", "imagePullPolicy")),
    Knob("images.chaos.repository", "r.test/c", _image("agent"), "r.test/c:0.1.0"),
    Knob("images.chaos.tag", "7", _image("controller"), "stormcast-chaos:7"),
    Knob("images.chaos.digest", DIGEST, _image("agent"), f"stormcast-chaos@{DIGEST}"),
    Knob("images.chaos.pullPolicy", "Always", _image("controller", "imagePullPolicy")),
    Knob("images.spark.repository", "r.test/s", _spark(f"{IMAGE}=r.test/s:0.1.0"), True, SPARK),
    Knob(
        "images.spark.tag",
        "7",
        lambda chart: _driver(chart).get("image"),
        "stormcast-spark:7",
        SPARK,
    ),
    Knob("images.spark.digest", DIGEST, _spark(f"{IMAGE}=stormcast-spark@{DIGEST}"), True, SPARK),
    Knob("images.spark.pullPolicy", "Never", _spark(f"{IMAGE}.pullPolicy=Never"), True, SPARK),
    Knob(
        "images.pullSecrets",
        ["mine"],
        lambda chart: [one["spec"]["imagePullSecrets"] for one in chart.pods()],
        [[{"name": "mine"}]] * 3,
    ),
    Knob("member.stack", "mcast", _told("stack")),
    Knob("member.timing", "compatible", _told("timing")),
    Knob("member.unicast", "UNICAST4", _told("unicast")),
    Knob("member.discovery", "PING", _told("discovery")),
    Knob(
        "member.protocols",
        {"UDP": {"ip_mcast": "auto"}, "FD_ALL3": {"timeout": "4s"}},
        _told("protocols"),
        {
            "DNS_PING": {"dns_query": "demo-stormcast"},
            "FD_ALL3": {"timeout": "4s"},
            "UDP": {"bind_port": 7800, "port_range": 0, "ip_mcast": "auto"},
        },
    ),
    Knob("member.workload", [LOAD], _told("workload")),
    Knob("member.seed", 9, _told("seed")),
    Knob(
        "member.volumeSize",
        "3Gi",
        lambda chart: _volume(chart, "StatefulSet", "member", "journals"),
    ),
    Knob("member.resources", RESOURCES, _image("member", "resources")),
    Knob("agent.enabled", False, lambda chart: "agent" in chart.names()),
    Knob("agent.resources", RESOURCES, _image("agent", "resources")),
    Knob("controller.enabled", False, lambda chart: "controller" in chart.names()),
    Knob("controller.seed", 9, lambda chart: "--seed=9" in _words(chart), True),
    Knob("controller.every", "5min", lambda chart: "--every=5min" in _words(chart), True),
    Knob("controller.keep", 7, lambda chart: "--keep=7" in _words(chart), True),
    Knob("controller.shipped", False, _scenarios, []),
    Knob(
        "controller.scenarios",
        {"mine": "name: mine\n"},
        lambda chart: _scenarios(chart)[0],
        "mine.yaml",
    ),
    Knob("controller.claim", "mine", _claims, ["mine"]),
    Knob(
        "controller.volumeSize",
        "3Gi",
        lambda chart: _volume(chart, "Deployment", "controller", "runs"),
    ),
    Knob("controller.resources", RESOURCES, _image("controller", "resources")),
    Knob("soak.enabled", True, lambda chart: _words(chart).split()[0], "soak"),
    Knob("soak.for", "9h", lambda chart: "--for=9h" in _words(chart), True, SOAK),
    Knob("soak.seed", 5, lambda chart: "--seed=5" in _words(chart), True, SOAK),
    Knob("soak.storm", "name: mine\n", _storm, "name: mine\n", SOAK),
    Knob(
        "soak.chapters", "9MiB", lambda chart: "--keep-chapters=9MiB" in _words(chart), True, SOAK
    ),
    Knob("soak.alerts", True, lambda chart: bool(chart.of("PrometheusRule")), True, SOAK),
    Knob(
        "spark.command",
        ["search", "--seeds", "9"],
        lambda chart: _driver(chart).get("args", [])[:3],
        besides=SPARK,
    ),
    Knob("spark.claim", "mine", _claims, ["mine", "mine"], SPARK),
    Knob("spark.executors", 7, _spark("--conf=spark.executor.instances=7"), True, SPARK),
    Knob("spark.executorMemory", "3g", _spark("--conf=spark.executor.memory=3g"), True, SPARK),
    Knob(
        "spark.executorCpu",
        "250m",
        _spark("--conf=spark.kubernetes.executor.request.cores=250m"),
        True,
        SPARK,
    ),
    Knob(
        "spark.settings",
        {"spark.sql.shuffle.partitions": "8"},
        _spark("--conf=spark.sql.shuffle.partitions=8"),
        True,
        SPARK,
    ),
    Knob(
        "spark.resources", RESOURCES, lambda chart: _driver(chart).get("resources"), besides=SPARK
    ),
    Knob("token.existingSecret", "mine", lambda chart: "mine" in _secrets_used(chart), True),
    Knob(
        "tls.enabled", False, lambda chart: "--tls=none" in chart.container("member")["args"], True
    ),
    Knob("tls.days", 7, lambda chart: round(_certificate_days(chart)), 7),
    Knob("tls.existingSecret", "mine", lambda chart: "mine" in _secrets_used(chart), True),
    Knob(
        "keys.enabled", False, lambda chart: "--key-file" in str(chart.container("member")["args"])
    ),
    Knob("keys.change", "add", lambda chart: len(_keys(chart)), 2),
    Knob("keys.existingSecret", "mine", lambda chart: "mine" in _secrets_used(chart), True),
    Knob("networkPolicy.enabled", False, lambda chart: bool(chart.of("NetworkPolicy"))),
    Knob("networkPolicy.apiServer", [PEER], lambda chart: PEER in _peers(chart, 7802), True),
    Knob("networkPolicy.scrapers", [PEER], lambda chart: PEER in _peers(chart, 7801), True),
    Knob(
        "networkPolicy.memberPorts",
        [{"port": 9800, "protocol": "UDP"}],
        lambda chart: len(_peers(chart, 9800)),
        1,
    ),
    Knob("pod.annotations", {"a/b": "c"}, lambda chart: _pod(chart)["metadata"]["annotations"]),
    Knob("pod.labels", {"a/b": "c"}, lambda chart: _pod(chart)["metadata"]["labels"]),
    Knob("pod.nodeSelector", {"a": "b"}, lambda chart: _pod(chart)["spec"]["nodeSelector"]),
    Knob(
        "pod.tolerations",
        [{"operator": "Exists"}],
        lambda chart: _pod(chart)["spec"]["tolerations"],
    ),
    Knob("pod.affinity", TERM, lambda chart: _pod(chart)["spec"]["affinity"]),
    Knob("pod.priorityClassName", "low", lambda chart: _pod(chart)["spec"]["priorityClassName"]),
    Knob("pod.spread.maxSkew", 2, _spread("maxSkew")),
    Knob("pod.spread.whenUnsatisfiable", "DoNotSchedule", _spread("whenUnsatisfiable")),
    Knob(
        "pod.terminationGracePeriodSeconds",
        30,
        lambda chart: _pod(chart)["spec"]["terminationGracePeriodSeconds"],
    ),
)


def nested(key: str, value: Any) -> dict[str, Any]:
    """`a.b` as {a: {b: value}}."""
    for part in reversed(key.split(".")):
        value = {part: value}
    whole: dict[str, Any] = value
    return whole


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.key)
def test_a_value_shows_where_it_should(knob: Knob) -> None:
    seen = knob.seen(render(merged(knob.besides, nested(knob.key, knob.value))))
    expected = knob.value if knob.expected is None else knob.expected
    if isinstance(expected, dict) and isinstance(seen, dict):
        assert seen.items() >= expected.items()
    else:
        assert seen == expected


def test_a_default_does_not_look_like_what_a_knob_sets() -> None:
    """Else the test above could not fail."""
    plain = render()
    for knob in KNOBS:
        if not knob.key.startswith(("pod.", "images.pullSecrets")):
            expected = knob.value if knob.expected is None else knob.expected
            assert knob.seen(plain) != expected, knob.key


def test_every_key_of_the_values_is_told_of_and_tested() -> None:
    """Above each key stands a comment, and each has its knob."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    bare = [
        line.strip()
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r" *\w+:", line) and not before.strip().startswith("#")
    ]
    # Of resources Kubernetes tells.
    assert {line.partition(":")[0] for line in bare} == {"requests", "limits"}
    assert [knob.key for knob in KNOBS] == list(_leaves(yaml.safe_load("\n".join(lines)), ""))


def _leaves(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict) and value and not key.endswith("resources"):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else name)
    else:
        yield key


def test_a_large_number_is_written_with_all_its_digits() -> None:
    """Helm's numbers are floats: one of a million is 1e+06 unless a template knows better, and no
    program takes that for a whole number."""
    large = 12_345_678
    values = {
        "member": {"seed": large, "protocols": {"MFC": {"max_credits": large}}},
        "controller": {"seed": large, "keep": large},
        "pod": {"terminationGracePeriodSeconds": large},
        # What is made at random may look like anything.
        **{name: {"existingSecret": "mine"} for name in ("token", "tls", "keys")},
    }
    text = template(values)
    assert not re.findall(r"\d[eE][+]\d.*", text)
    assert text.count(str(large)) == 5


# -- What is refused -------------------------------------------------------------------------------


def _places() -> Iterator[str]:
    """Every mapping whose keys are the chart's."""
    yield ""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for key in (
        "images",
        "member",
        "agent",
        "controller",
        "soak",
        "spark",
        "token",
        "tls",
        "networkPolicy",
        "pod",
    ):
        yield key
        yield from (f"{key}.{inner}" for inner in values[key] if _is_ours(values[key][inner]))


def _is_ours(value: object) -> bool:
    return isinstance(value, dict) and bool(value)


@pytest.mark.parametrize("place", list(_places()))
def test_an_unknown_key_is_refused(place: str) -> None:
    with pytest.raises(HelmError, match="typo is not allowed"):
        render(nested(f"{place}.typo".lstrip("."), 1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replicas", 0),
        ("replicas", "3"),
        ("images.node.tag", "latest"),
        ("images.chaos.tag", "a b"),
        ("images.node.digest", "sha256:12"),
        ("images.node.repository", ""),
        ("images.node.pullPolicy", "Sometimes"),
        ("images.spark.tag", "latest"),
        ("member.stack", "upd"),
        ("member.timing", "slow"),
        ("member.unicast", "UNICAST5"),
        ("member.discovery", "KUBE_PING"),
        ("member.protocols", {"fd_all3": {"timeout": "3s"}}),
        ("member.protocols", {"FD_ALL3": {"Timeout": "3s"}}),
        ("member.protocols", {"FD_ALL3": {"timeout": ["3s"]}}),
        ("member.workload", [{"rate": "10/s"}]),
        ("member.seed", -1),
        ("member.volumeSize", "1GB"),
        ("member.resources.requests", {"gpu": "1"}),
        ("agent.enabled", "yes"),
        ("controller.every", "5"),
        ("controller.keep", 0),
        ("controller.scenarios", {"No Name": "x"}),
        ("controller.scenarios", {"empty": ""}),
        ("controller.claim", "No Claim"),
        ("soak.for", "8"),
        ("soak.for", ""),
        ("soak.seed", -1),
        ("soak.chapters", "1GB"),
        ("soak.alerts", "yes"),
        ("spark.command", ["run", "/runs/one"]),
        ("spark.claim", "a b"),
        ("spark.executors", 0),
        ("spark.executorMemory", "1Gi"),
        ("spark.settings", {"executor.memory": "1g"}),
        ("token.value", "0123456789abcdef"),
        ("tls.days", 0),
        ("networkPolicy.apiServer", [{"cidr": "10.0.0.4/32"}]),
        ("networkPolicy.scrapers", [{}]),
        ("networkPolicy.memberPorts", [{"port": 70000, "protocol": "TCP"}]),
        ("networkPolicy.memberPorts", [{"port": 9800}]),
        ("pod.labels", {"app.kubernetes.io/component": "web"}),
        ("pod.labels", {"apps.kubernetes.io/pod-index": "7"}),
        ("pod.annotations", {"checksum/config": "mine"}),
        ("pod.spread.whenUnsatisfiable", "Never"),
        ("pod.terminationGracePeriodSeconds", 3),
    ],
)
def test_a_value_that_cannot_work_is_refused(key: str, value: object) -> None:
    with pytest.raises(HelmError, match=re.escape(key.rpartition(".")[2])):
        render(nested(key, value))


def test_the_schema_leaves_no_mapping_open_but_those_of_kubernetes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    found = sorted(_open(schema, ""))

    # Labels take any name, loads are checked by members, and Helm itself sets `global`.
    assert found == [
        "$defs.labels",
        "$defs.peers.items.properties.ipBlock",
        "$defs.peers.items.properties.namespaceSelector",
        "$defs.peers.items.properties.podSelector",
        "$defs.podMetadata",
        "properties.global",
        "properties.member.properties.workload.items",
        "properties.pod.properties.affinity",
        "properties.pod.properties.tolerations.items",
    ]


def _open(node: Any, path: str) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    if node.get("type") == "object" and node.get("additionalProperties") is not False:
        yield path
    for key, inner in node.items():
        yield from _open(inner, f"{path}.{key}".lstrip("."))


# -- What goes together ----------------------------------------------------------------------------


def test_spark_without_a_claim_is_refused() -> None:
    with pytest.raises(HelmError, match=r"spark\.claim: name the PersistentVolumeClaim"):
        render({"spark": {"command": ["verify", "/runs/one"]}})


def test_executors_are_as_restricted_as_the_driver_and_the_driver_may_only_make_pods() -> None:
    chart = render(SPARK)
    made = yaml.safe_load(chart.one("ConfigMap", "spark")["data"]["executor.yaml"])
    driver = chart.one("Job", "spark")["spec"]["template"]
    assert made["spec"]["securityContext"] == driver["spec"]["securityContext"]
    assert made["spec"]["automountServiceAccountToken"] is False
    (one,) = made["spec"]["containers"]
    assert one["securityContext"] == _driver(chart)["securityContext"]
    assert [rule["resources"] for rule in chart.one("Role", "spark")["rules"]] == [["pods"]]
    assert made["metadata"]["labels"] == driver["metadata"]["labels"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"soak": {"enabled": True}, "controller": {"enabled": False}}, "the controller plays it"),
        ({"soak": {"alerts": True}}, "they are about a soak"),
    ],
)
def test_a_soak_needs_who_plays_it_and_alerts_need_a_soak(values: dict[str, Any], why: str) -> None:
    with pytest.raises(HelmError, match=why):
        render(values)


def test_the_storm_without_a_file_fits_the_release() -> None:
    values = {"replicas": 5, "member": {"stack": "mcast", "timing": "compatible"}}
    storm = parse_storm(_storm(render(merged(values, SOAK))))
    assert storm.cluster.members == tuple(f"n{number}" for number in range(5))
    assert (storm.cluster.stack, storm.cluster.timing) == ("mcast", "compatible")
    assert storm.widest().cluster.members == storm.cluster.members


def test_without_agents_nothing_speaks_of_them() -> None:
    chart = render({"agent": {"enabled": False}})
    assert "agent.yaml" not in chart.one("ConfigMap")["data"]
    assert "initContainers" not in _pod(chart)["spec"]
    capabilities = [one["securityContext"]["capabilities"] for one, _pod in chart.containers()]
    assert capabilities == [{"drop": ["ALL"]}] * 3


def test_without_a_controller_nobody_has_its_role_which_a_person_may_get() -> None:
    chart = render({"controller": {"enabled": False}})
    kinds = {one["kind"] for one in chart.objects}
    assert not kinds & {"Deployment", "RoleBinding"}
    assert len(chart.of("ServiceAccount")) == 1
    assert chart.one("Role", "controller") == render().one("Role", "controller")


def test_new_settings_restart_members_and_new_scenarios_the_controller() -> None:
    def sums(values: dict[str, Any]) -> list[str]:
        chart = render(values)
        owners = chart.one("StatefulSet"), chart.one("Deployment", "controller")
        notes = [one["spec"]["template"]["metadata"]["annotations"] for one in owners]
        return [note[key] for note, key in zip(notes, SUMS, strict=True)]

    plain = sums({})
    assert sums({"replicas": 5}) == plain
    members = sums({"member": {"seed": 2}})
    controller = sums({"controller": {"scenarios": {"mine": "name: mine\n"}}})
    assert [one == other for one, other in zip(members, plain, strict=True)] == [False, True]
    assert [one == other for one, other in zip(controller, plain, strict=True)] == [True, False]


SUMS = ("checksum/config", "checksum/scenarios")


def test_a_member_has_left_before_its_pod_is_killed() -> None:
    chart = render({"pod": {"terminationGracePeriodSeconds": 30}})
    assert "--grace=27s" in chart.container("member")["args"]
