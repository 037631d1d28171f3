"""What the chart makes of its default values: the copy in manifests/, and what all pods have."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stormcast.chaos.agent.settings import read_agent
from stormcast.chaos.backends.kubernetes.api import Api
from stormcast.chaos.backends.pods.http_pool import Request
from stormcast.chaos.backends.pods.pod import Port, request_of
from stormcast.chaos.language.scenario import load_scenario
from stormcast.node.control.client import Reply
from stormcast.node.keys.cluster_keys import read_keys
from stormcast.node.member.settings import load_member
from tests.helpers.chart import (
    CHART,
    ROOT,
    HelmError,
    Rendered,
    component_of,
    helm,
    render,
    template,
)
from tests.helpers.tokens import token_file

STACKS = ("udp", "mcast", "tcp", "tcp-nio2", "tcp-no-retransmit")
KINDS = {
    "ServiceAccount": 2,
    "Secret": 3,
    "ConfigMap": 2,
    "Role": 1,
    "RoleBinding": 1,
    "Service": 2,
    "Deployment": 1,
    "StatefulSet": 1,
    "NetworkPolicy": 1,
    "Pod": 1,
}


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return render()


def test_helm_finds_nothing_to_complain_of() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


def test_the_copy_in_manifests_is_the_chart() -> None:
    """`make manifests` writes it; no namespace is in it but that of the RoleBinding."""
    secrets = {
        name: {"existingSecret": f"demo-stormcast-{name}"} for name in ("token", "keys", "tls")
    }
    text = template(secrets, "--no-hooks")

    assert (ROOT / "manifests" / "stormcast.yaml").read_text() == text


def test_rendering_twice_is_the_same_but_for_secrets(chart: Rendered) -> None:
    again = render()
    for one in (chart, again):
        data = [secret["data"] for secret in one.of("Secret")]
        names = sorted(name for each in data for name in each)
        assert names == ["ca.crt", "cluster.key", "tls.crt", "tls.key", "token"]
        assert all(len(text) > 16 for each in data for text in each.values())

    for before, after in zip(chart.of("Secret"), again.of("Secret"), strict=True):
        assert before["data"] != after["data"]
    assert [one for one in chart.objects if one["kind"] != "Secret"] == [
        one for one in again.objects if one["kind"] != "Secret"
    ]


def test_the_key_is_one_that_members_read(chart: Rendered, tmp_path: Path) -> None:
    (text,) = (
        one["data"]["cluster.key"] for one in chart.of("Secret") if "cluster.key" in one["data"]
    )
    path = tmp_path / "cluster.key"
    path.write_bytes(base64.b64decode(text))
    path.chmod(0o600)
    assert len(read_keys(str(path))) == 1


def test_a_change_of_keys_begins_with_its_first_step() -> None:
    with pytest.raises(HelmError, match=r"keys\.change is turn: the step before it is add"):
        render({"keys": {"change": "turn"}})


def test_there_is_nothing_else_than_this(chart: Rendered) -> None:
    found = [one["kind"] for one in chart.objects]

    assert {kind: found.count(kind) for kind in found} == KINDS
    assert all(one["metadata"]["name"].startswith("demo-stormcast") for one in chart.objects)


def test_a_name_too_long_for_labels_is_refused() -> None:
    assert helm("template", "x" * 40, CHART)
    with pytest.raises(HelmError, match="41 characters: 40 at most"):
        helm("template", "x" * 41, CHART)


@pytest.mark.parametrize("name", ["2024", "7-members", "my.release"])
def test_a_name_that_no_service_can_have_is_refused(name: str) -> None:
    """Helm takes it, and the API server would refuse a part of the objects."""
    with pytest.raises(HelmError, match="begin with a small letter"):
        helm("template", name, CHART)


def test_names_that_look_like_something_else_are_texts() -> None:
    """To YAML `on` is true, and `77` a number; the API server takes only texts for names."""
    secrets = {name: {"existingSecret": "123"} for name in ("token", "keys", "tls")}
    values = secrets | {"images": {"pullSecrets": ["77"]}, "pod": {"priorityClassName": "10"}}
    words = ("template", "on", CHART, "--namespace", "77", "--values", "-")
    found = list(yaml.safe_load_all(helm(*words, text=yaml.safe_dump(values))))
    named = {
        value
        for key, value in _leaves(found)
        if key in ("app.kubernetes.io/instance", "namespace", "secretName", "priorityClassName")
    }
    assert named == {"on", "77", "123", "10"}
    pulled = {value for _key, value in _leaves([one.get("spec", {}) for one in found])}
    assert 77 not in pulled


def _leaves(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for name, inner in node.items():
            yield from _leaves(inner, name)
    elif isinstance(node, list):
        for inner in node:
            yield from _leaves(inner, key)
    else:
        yield key, node


# -- What no pod may have, and what each must ------------------------------------------------------


def test_only_the_agent_has_capabilities_or_is_root(chart: Rendered) -> None:
    for one, pod in chart.containers():
        context = pod["spec"]["securityContext"] | one["securityContext"]
        is_agent = one["name"] == "agent"

        assert context["capabilities"]["drop"] == ["ALL"]
        added = ["NET_ADMIN", "NET_RAW"] if is_agent else []
        assert context["capabilities"].get("add", []) == added
        assert (context["runAsUser"] == 0) == is_agent
        assert context["runAsNonRoot"] != is_agent
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "privileged" not in context


def test_no_pod_reaches_its_node(chart: Rendered) -> None:
    for pod in chart.pods():
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert not any("hostPath" in volume for volume in spec.get("volumes", []))
    assert "hostPort" not in template()


def test_only_the_controller_may_ask_the_api(chart: Rendered) -> None:
    mounted = [
        pod["metadata"]["labels"]["app.kubernetes.io/component"]
        for pod in chart.pods()
        if pod["spec"]["automountServiceAccountToken"]
    ]
    assert mounted == ["controller"]
    assert not any(one["automountServiceAccountToken"] for one in chart.of("ServiceAccount"))


def test_the_controller_may_do_this_in_its_namespace_and_nothing_else(chart: Rendered) -> None:
    rules = [
        (rule["apiGroups"], rule["resources"], sorted(rule["verbs"]), rule.get("resourceNames"))
        for rule in chart.one("Role", "controller")["rules"]
    ]
    assert rules == [
        ([""], ["pods"], ["get", "list"], None),
        ([""], ["pods/proxy"], ["create", "delete", "get"], proxied(3, 7801, 7802)),
        ([""], ["secrets"], ["get"], ["demo-stormcast-token"]),
    ]
    (subject,) = chart.one("RoleBinding", "controller")["subjects"]
    assert subject["name"] == chart.one("ServiceAccount", "controller")["metadata"]["name"]
    assert not {one["kind"] for one in chart.objects} & {"ClusterRole", "ClusterRoleBinding"}


def proxied(replicas: int, *ports: int) -> list[str]:
    """The ports of members, by the names under which the API server knows them."""
    return [f"https:demo-stormcast-{number}:{port}" for number in range(replicas) for port in ports]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"replicas": 5}, proxied(5, 7801, 7802)),
        ({"replicas": 2, "agent": {"enabled": False}}, proxied(2, 7801)),
    ],
)
def test_the_controller_reaches_the_ports_of_members_and_of_no_other_pod(
    values: dict[str, Any], expected: list[str]
) -> None:
    chart = render(values)
    (rule,) = (
        r for r in chart.one("Role", "controller")["rules"] if "pods/proxy" in r["resources"]
    )
    assert rule["resourceNames"] == expected
    # Those that the pods have: the API server compares names, and knows no others.
    pods = chart.one("StatefulSet")
    assert all(name.startswith(f"https:{pods['metadata']['name']}-") for name in expected)
    named = {"keeper", "agent"} & {
        port["name"]
        for one, _pod in chart.containers()
        for port in one.get("ports", [])
        if f"https:demo-stormcast-0:{port['containerPort']}" in expected
    }
    assert len(named) * pods["spec"]["replicas"] == len(expected)


def test_the_backend_asks_by_the_names_in_the_role(chart: Rendered) -> None:
    """With scheme and port, which is how an authorizer sees it: `pods/https:NAME:PORT/proxy`."""
    asked: list[str] = []

    class Server:
        host = "https://fake"

        def request(self, request: Request) -> Reply:
            asked.append(request.target)
            return Reply(200, "application/json", b"{}")

    rule = chart.one("Role", "controller")["rules"][1]
    for port in (7801, 7802):
        Api(Server(), "x").send(
            Port("demo-stormcast-2", port, "", is_tls=True), request_of("GET", "/state")
        )
    names = [path.partition("/pods/")[2].partition("/proxy")[0] for path in asked]
    assert set(names) <= set(rule["resourceNames"])


def test_every_container_says_what_it_needs_and_which_image(chart: Rendered) -> None:
    for one, _pod in chart.containers():
        assert one["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in one["resources"]["limits"]
        assert one["image"].endswith(":0.1.0")


def test_every_volume_that_is_written_to_has_a_bound(chart: Rendered) -> None:
    for pod in chart.pods():
        for volume in pod["spec"].get("volumes", []):
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"]


def test_an_upgrade_of_the_chart_alone_restarts_nobody(chart: Rendered) -> None:
    for pod in chart.pods():
        if "name" not in pod["metadata"]:
            assert "0.1.0" not in str(pod["metadata"])
            assert "helm.sh/chart" not in pod["metadata"]["labels"]


def test_selectors_take_the_pods_that_they_are_meant_for(chart: Rendered) -> None:
    for one in (*chart.of("Service"), *chart.of("StatefulSet"), *chart.of("Deployment")):
        selector = one["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        taken = [
            pod for pod in chart.pods() if selector.items() <= pod["metadata"]["labels"].items()
        ]
        (pod,) = taken
        assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == component_of(one)


# -- Members -------------------------------------------------------------------------------------


def test_members_find_each_other_before_they_are_ready(chart: Rendered) -> None:
    service = chart.one("Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    stateful = chart.one("StatefulSet")["spec"]
    assert stateful["serviceName"] == service["metadata"]["name"]
    assert stateful["podManagementPolicy"] == "Parallel"
    told = chart.told("member.yaml")
    assert told["protocols"]["DNS_PING"]["dns_query"] == service["metadata"]["name"]


def test_the_agent_is_there_before_the_member_and_as_long(chart: Rendered) -> None:
    (agent,) = chart.one("StatefulSet")["spec"]["template"]["spec"]["initContainers"]
    assert agent["restartPolicy"] == "Always"
    assert agent["startupProbe"]["httpGet"] == {"path": "/livez", "port": "agent-probes"}


def test_probes_ask_the_keeper_whom_no_fault_touches(chart: Rendered) -> None:
    """A member's own answer would end with a pause, and its container with it."""
    member = chart.container("member")
    assert member["args"][0] == "keep"
    assert member["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_probes_go_to_listeners_that_serve_nothing_else(chart: Rendered) -> None:
    """Connections to the port where requests are answered cannot keep them waiting."""
    asked = {"member": 7811, "agent": 7812, "controller": 7813}
    for name, port in asked.items():
        container = chart.container(name)
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert len(probes) >= 2
        assert {ports[probe["httpGet"]["port"]] for probe in probes} == {port}
    assert "--probes=0.0.0.0:7811" in chart.container("member")["args"]
    assert "--probes=0.0.0.0:7813" in chart.container("controller")["args"]


# -- Who may connect -----------------------------------------------------------------------------


def admitted(chart: Rendered, port: int, protocol: str = "TCP") -> list[Any] | None:
    """The peers that reach a port of a member's pod; None: anybody."""
    found: list[Any] = []
    for rule in chart.one("NetworkPolicy")["spec"]["ingress"]:
        for one in rule["ports"]:
            last = one.get("endPort", one["port"])
            if one["protocol"] == protocol and one["port"] <= port <= last:
                if "from" not in rule:
                    return None
                found += rule["from"]
    return found


def components(peers: list[Any] | None) -> set[str]:
    """Of pods of this release; other peers as they are written."""
    found = set()
    for peer in peers or []:
        labels = peer.get("podSelector", {}).get("matchLabels", {})
        assert labels.get("app.kubernetes.io/instance", "demo") == "demo"
        found.add(labels.get("app.kubernetes.io/component", str(peer)))
    return found


def test_only_members_reach_the_transport_of_a_member(chart: Rendered) -> None:
    policy = chart.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    labels = chart.one("StatefulSet")["spec"]["selector"]["matchLabels"]
    assert policy["podSelector"]["matchLabels"] == labels
    for port, protocol in ((7800, "UDP"), (7800, "TCP"), (7600, "UDP"), (7900, "TCP")):
        assert components(admitted(chart, port, protocol)) == {"member"}
    assert admitted(chart, 22) == []


def test_only_the_controller_and_who_is_named_reach_the_control_ports() -> None:
    """What the API server passes on has its address, so the chart must be told which that is."""
    server, scraper = {"ipBlock": {"cidr": "10.0.0.4/32"}}, {"ipBlock": {"cidr": "10.1.0.0/16"}}
    chart = render({"networkPolicy": {"apiServer": [server], "scrapers": [scraper]}})
    assert components(admitted(chart, 7802)) == {"controller", "test", str(server)}
    assert components(admitted(chart, 7801)) == {"controller", "test", str(server), str(scraper)}
    assert admitted(chart, 7811) is None
    assert admitted(chart, 7812) is None


def test_while_the_api_server_is_not_named_the_token_guards_the_control_ports(
    chart: Rendered,
) -> None:
    assert admitted(chart, 7801) is None
    assert admitted(chart, 7802) is None


@pytest.mark.parametrize("stack", STACKS)
def test_members_take_what_they_are_told(stack: str, tmp_path: Path) -> None:
    """What the ConfigMap says is what is in force, and nothing in it is unknown to a member."""
    said = render({"member": {"stack": stack, "protocols": {"FD_ALL3": {"timeout": "3s"}}}})
    file = tmp_path / "member.yaml"
    file.write_text(yaml.safe_dump(said.told("member.yaml")))

    effective = load_member({"--config": str(file)}, {"STORMCAST_BIND_ADDR": "198.18.0.2"})
    told = {".".join(path): value for path, value, _origin in effective.entries}
    transport = effective.settings.stack.layers[-1][0]

    assert told["stack"] == stack
    assert told["discovery"] == "DNS_PING"
    assert told[f"protocols.{transport}.bind_port"] == 7800
    assert told[f"protocols.{transport}.port_range"] == 0
    assert told[f"protocols.{transport}.bind_addr"] == "198.18.0.2"
    assert told["protocols.FD_ALL3.timeout"] == "3s"
    assert told.get("protocols.UDP.ip_mcast", "never") == "never"


def test_agents_take_what_they_are_told(chart: Rendered, tmp_path: Path) -> None:
    token = token_file(tmp_path, "0123456789abcdef")
    told: dict[str, Any] = chart.told("agent.yaml") | {"token_file": str(token)}

    settings = read_agent(yaml.safe_dump(told, default_flow_style=True), "agent.yaml", {})

    assert (settings.control.host, settings.control.port) == ("0.0.0.0", 7802)  # noqa: S104 in a pod
    assert settings.control.token == "0123456789abcdef"  # noqa: S105 of this test
    assert settings.probes is not None
    assert (settings.probes.port, settings.probes.token) == (7812, "")
    assert len(settings.sites) == 1
    assert settings.sites[0].device == "eth0"


# -- Scenarios -----------------------------------------------------------------------------------


def test_shipped_scenarios_fit_the_default_cluster(chart: Rendered) -> None:
    texts = chart.one("ConfigMap", "controller")["data"]
    files = {path.name: path for path in (CHART / "scenarios").iterdir()}
    assert texts == {name: path.read_text() for name, path in files.items()}
    for name, path in files.items():
        scenario = load_scenario(path)
        assert f"{scenario.name}.yaml" == name
        assert len(scenario.cluster.members) <= chart.one("StatefulSet")["spec"]["replicas"]
