"""What the chart installs, and what it refuses."""

import json
from importlib.metadata import entry_points

import click
import pytest
from tests.support.documents import document, documents
from tests.unit.chart.conftest import CHART, LOCAL_VALUES, PLAIN_VALUES, Helm, Object, RefusedError, Rendered
from tests.unit.chart.network import selects

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster
from tdcs.cli import crd_documents
from tdcs.control.cachecluster.blueprint import labels_of

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.mark.parametrize(
    "values",
    [[], ["--values", str(LOCAL_VALUES)], ["--values", str(PLAIN_VALUES)]],
    ids=["default", "local", "plain"],
)
def test_helm_finds_nothing_to_complain_about(helm: Helm, values: list[str]) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART, *values)


def test_it_installs_the_three_programs_and_a_first_cache_cluster(rendered: Rendered) -> None:
    assert {o["metadata"]["name"] for o in rendered.all("Deployment")} == {"tdcs-operator", "tdcs-scheduler"}
    assert {o["metadata"]["name"] for o in rendered.all("DaemonSet")} <= {"tdcs-csi", "tdcs-reader-holder"}
    assert rendered.one("CSIDriver", names.CSI_DRIVER)["spec"]["fsGroupPolicy"] == "None"
    cluster = rendered.one("CacheCluster", names.DEFAULT_CACHE_CLUSTER)
    assert CacheCluster.model_validate(cluster).spec.storage.tiers


def test_each_object_says_where_it_lives_and_what_it_belongs_to(rendered: Rendered) -> None:
    for obj in rendered.objects:
        metadata = obj["metadata"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == "tdcs", metadata["name"]
        assert ("namespace" in metadata) == (obj["kind"] not in CLUSTER_SCOPED), metadata["name"]


def test_pods_are_selected_by_the_labels_they_carry(rendered: Rendered) -> None:
    for obj in rendered.all("Deployment") + rendered.all("DaemonSet"):
        selector = obj["spec"]["selector"]["matchLabels"]
        assert selector.items() <= obj["spec"]["template"]["metadata"]["labels"].items()
        assert selector["app.kubernetes.io/component"] in obj["metadata"]["name"]


def test_priority_class_and_tolerations_of_the_cache_are_values_of_the_chart(helm: Helm) -> None:
    taints = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = {"priorityClassName": "system-node-critical", "tolerations": taints}
    rendered = helm.template({"cacheCluster.spec": json.dumps(spec)})
    cache_spec = CacheCluster.model_validate(rendered.one("CacheCluster", names.DEFAULT_CACHE_CLUSTER)).spec
    assert cache_spec.priority_class_name == "system-node-critical"
    assert [toleration.key for toleration in cache_spec.tolerations] == ["nvidia.com/gpu"]


@pytest.mark.parametrize("part", ["operator", "scheduler"])
@pytest.mark.failure_mode("control-plane-node-lost")
def test_from_a_lost_node_operator_and_scheduler_move_within_half_a_minute(helm: Helm, part: str) -> None:
    toleration = {"key": "dedicated", "operator": "Exists"}
    rendered = helm.template({f"{part}.tolerations": f"[{json.dumps(toleration)}]"})

    first, *tolerations = rendered.pod_specs()[f"tdcs-{part}"]["tolerations"]
    assert first == toleration
    assert {
        (toleration["key"], toleration["effect"], toleration["tolerationSeconds"])
        for toleration in tolerations
    } == {
        ("node.kubernetes.io/not-ready", "NoExecute", 30),
        ("node.kubernetes.io/unreachable", "NoExecute", 30),
    }


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        ("networkPolicy.enabled", "tdcs-default-deny"),
        ("networkPolicy.enabled", "tdcs-cache-"),
        ("admissionPolicies.enabled", "tdcs-operator-specs"),
        ("admissionPolicies.enabled", "tdcs-sources"),
        ("scheduler.enabled", "tdcs-scheduler"),
        ("csi.enabled", "tdcs-csi"),
        ("crds.upgrade", "tdcs-crd-upgrade"),
    ],
)
def test_a_part_that_is_off_leaves_nothing_behind(helm: Helm, value: str, prefix: str) -> None:
    rendered = helm.template({value: "false"})

    assert not [o["metadata"]["name"] for o in rendered.objects if o["metadata"]["name"].startswith(prefix)]


def test_shares_and_their_weights_are_values_of_the_chart(helm: Helm) -> None:
    shares = '{"label": "example.com/team", "weights": {"vision": 2, "speech": 0.5, "namespace/guests": 0}}'
    arguments = helm.template({"operator.fairShare": shares}).containers()["tdcs-operator/operator"]["args"]
    assert [argument for argument in arguments if argument.startswith("--fair-share")] == [
        "--fair-share-label=example.com/team",
        "--fair-share-weight=namespace/guests=0",
        "--fair-share-weight=speech=0.5",
        "--fair-share-weight=vision=2",
    ]
    with pytest.raises(RefusedError):
        helm.template({"operator.fairShare": '{"weights": {"vision": -1}}'})


def test_each_container_is_started_with_options_that_the_command_has(rendered: Rendered) -> None:
    (script,) = entry_points(group="console_scripts", name="tdcs")
    main = script.load()
    # Those of the remote-read client have subcommands, see test_node_plugin.
    ours = {
        name: container
        for name, container in rendered.containers().items()
        if container["image"].startswith("tdcs/tdcs:") and container["args"][0] != "reader"
    }

    assert set(ours) == {
        "tdcs-operator/operator",
        "tdcs-scheduler/extender",
        "tdcs-scheduler/await-extender",
        "tdcs-csi/csi",
        "tdcs-crd-upgrade/crds",
        "tdcs-network-test/network-test",
        "tdcs-smoke-test/smoke-test",
        "tdcs-uninstall/delete-caches",
    }
    for name, container in ours.items():
        subcommand, *options = container["args"]
        command = main.get_command(click.Context(main), subcommand)
        node_option = ["--node=n"] if name == "tdcs-csi/csi" else []  # from the environment, NODE_NAME
        assert command.make_context(subcommand, [*options, *node_option]).params, name


def test_an_operator_that_waits_is_alive_and_not_ready(default: Rendered) -> None:
    operator = default.containers()["tdcs-operator/operator"]

    alive, ready, started = (operator[f"{kind}Probe"] for kind in ("liveness", "readiness", "startup"))
    assert (alive["httpGet"]["path"], started["httpGet"]["path"]) == ("/livez", "/livez")
    assert ready["httpGet"]["path"] == "/healthz"
    # One that begins again in its container has no startup probe any more.
    allowed, first = (probe["periodSeconds"] * probe["failureThreshold"] for probe in (alive, started))
    assert allowed >= first


def test_the_operator_tells_users_names_that_exist(helm: Helm) -> None:
    rendered = helm.template(release="team")
    value_by_option = dict(
        argument.removeprefix("--").split("=", 1)
        for argument in rendered.containers()["team-tdcs-operator/operator"]["args"]
        if argument.startswith("--") and "=" in argument
    )
    assert rendered.one("ClusterRole", value_by_option["secrets-role"])
    assert rendered.one("ServiceAccount", value_by_option["service-account"])


def test_the_local_cluster_pulls_nothing_and_finds_the_schedulers_image(local: Rendered) -> None:
    assert {c["imagePullPolicy"] for c in local.containers().values()} == {"Never"}
    spec = local.pod_specs()["tdcs-scheduler"]
    assert "node-role.kubernetes.io/control-plane" in spec["nodeSelector"]
    assert spec["tolerations"][0]["key"] == "node-role.kubernetes.io/control-plane"


def test_a_release_of_another_name_is_named_after_it(helm: Helm) -> None:
    rendered = helm.template(release="team")

    assert {o["metadata"]["name"] for o in rendered.all("Deployment")} == {
        "team-tdcs-operator",
        "team-tdcs-scheduler",
    }


def test_the_charts_definitions_are_the_generated_ones(helm: Helm, default: Rendered) -> None:
    objects = documents(helm.run("template", "--include-crds", "tdcs", CHART))
    printed_crds = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    generated = [document(text) for text in crd_documents.manifests().values()]

    def name(obj: Object) -> str:
        return str(obj["metadata"]["name"])

    assert sorted(printed_crds, key=name) == sorted(generated, key=name)
    # On install they come from there, on upgrade by the hook: never as objects of the release, which uninstall would
    # delete.
    assert not default.all("CustomResourceDefinition")
    hook = default.one("ClusterRole", "tdcs-crd-upgrade")
    assert sorted(hook["rules"][0]["resourceNames"]) == sorted(map(name, generated))


def test_prometheus_finds_the_metrics_of_every_part_that_has_some(helm: Helm, default: Rendered) -> None:
    assert not default.all("PodMonitor")

    monitored = helm.template({"podMonitor.enabled": "true", "podMonitor.labels": '{"team": "ml"}'})

    serving = set()
    for kind, name in (("Deployment", "operator"), ("Deployment", "scheduler"), ("DaemonSet", "csi")):
        monitor = monitored.one("PodMonitor", f"tdcs-{name}")
        assert monitor["metadata"]["labels"]["team"] == "ml"
        pods = monitored.one(kind, f"tdcs-{name}")["spec"]["template"]["metadata"]["labels"]
        assert selects(monitor["spec"]["selector"], pods)
        endpoints = monitor["spec"]["podMetricsEndpoints"]
        scraped = {endpoint["port"] for endpoint in endpoints}
        serving |= {
            container
            for container, container_spec in monitored.containers().items()
            if container.startswith(f"tdcs-{name}/")
            and scraped & {port["name"] for port in container_spec.get("ports", [])}
        }
        # A Dataset's own namespace, which dashboard and alerts name, is not the operator's.
        assert all(endpoint["honorLabels"] is True for endpoint in endpoints)
    assert serving == {"tdcs-operator/operator", "tdcs-scheduler/extender", "tdcs-csi/csi", "tdcs-csi/reader"}
    agents = monitored.one("PodMonitor", "tdcs-agents")["spec"]
    assert selects(agents["selector"], labels_of(cluster="any", component=names.COMPONENT_WORKER))
    assert [endpoint["port"] for endpoint in agents["podMetricsEndpoints"]] == ["agent"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("imagee", "{}"),
        ("podMonitor.interval", '"often"'),
        ("image.tag", '"a b"'),
        ("image.tag", "1"),
        ("image.repository", '"tdcs/tdcs:dev"'),
        ("image.pullPolicy", '"Sometimes"'),
        ("operator.replicas", "0"),
        ("scheduler.name", '"default-scheduler"'),
        ("scheduler.enabled", '"yes"'),
        ("extender.weight", "0"),
        ("extender.weight", "2.5"),
        ("csi.kubeletDir", '"var/lib/kubelet"'),
        ("csi.waitSeconds", "1000"),
        ("csi.tierFolders", '["/mnt/../etc"]'),
        ("networkPolicy.enabled", '"yes"'),
        ("trust.enabled", '"yes"'),
        ("trust.provider", '"letsencrypt"'),
        ("scope", '"Namespace"'),
        ("admissionPolicies.nodeFolders", '["/mnt/../etc"]'),
        ("admissionPolicies.nodeAccessNamespaces", '["Upper"]'),
        ("admissionPolicies.fuseImages", '["a b"]'),
        ("cacheCluster.name", '"Upper"'),
        ("cacheCluster.name", '"a-name-of-more-than-twenty"'),
        ("cacheCluster.spec", "[]"),
        ("datasetNamespaces", '"team"'),
        ("datasetNamespaces", '["team", "team"]'),
        ("imagePullSecrets", '["name"]'),
    ],
)
def test_a_bad_value_is_refused_by_its_name(helm: Helm, name: str, value: str) -> None:
    with pytest.raises(RefusedError) as refused:
        helm.template({name: value})

    assert name.split(".")[-1] in str(refused.value)


@pytest.mark.threat("agent-endless-manifests")
def test_listings_on_the_operators_node_have_a_limit(helm: Helm) -> None:
    for values, size in (({}, "8Gi"), ({"operator.manifestsSize": '"20Gi"'}, "20Gi")):
        spec = helm.template(values).one("Deployment", "tdcs-operator")["spec"]["template"]["spec"]
        (volume,) = (volume_spec for volume_spec in spec["volumes"] if volume_spec["name"] == "manifests")
        assert volume["emptyDir"] == {"sizeLimit": size}
