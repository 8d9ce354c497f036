"""What the chart installs, and what it refuses."""

import json
import re
from collections.abc import Mapping
from importlib.metadata import entry_points

import click
import pytest
import yaml
from tests.unit.chart.conftest import (
    CHART,
    LOCAL_VALUES,
    NAMESPACE,
    PLAIN_VALUES,
    Helm,
    Object,
    RefusedError,
    Rendered,
)
from tests.unit.chart.test_network import selects

from tdcs.api import names
from tdcs.api.cachecluster import CacheCluster
from tdcs.api.generate import crd
from tdcs.cli import metrics
from tdcs.controllers.cachecluster.blueprint import labels_of
from tdcs_scheduler.configuration import scheduler_configuration

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


def rules(role: Object) -> list[tuple[str, str, str]]:
    """(group, resource, verb) of everything a role allows."""
    return [
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


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


def test_only_what_mounts_on_nodes_has_privileges(rendered: Rendered) -> None:
    for name, container in rendered.containers().items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        if name in {"tdcs-csi/csi", "tdcs-csi/reader", "tdcs-reader-holder/holder"}:
            assert context["privileged"] is True
            continue
        assert context["runAsNonRoot"] is True, name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert "privileged" not in context, name
    for name, spec in rendered.pod_specs().items():
        # The plugin looks which pods see what it mounts.
        allowed = {"hostPID"} if name in {"tdcs-csi", "tdcs-reader-holder"} else set()
        assert {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() == allowed, name
        paths = (
            [volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume]
            if "volumes" in spec
            else []
        )
        assert not paths or name in {"tdcs-csi", "tdcs-reader-holder"}


def test_pods_read_through_the_remote_read_client_and_alluxios_fuse_client_runs_nowhere_by_default(
    default: Rendered, plain: Rendered
) -> None:
    runs = {"tdcs-csi/csi", "tdcs-csi/reader", "tdcs-reader-holder/holder"}
    for made, there in ((default, runs), (plain, {"tdcs-csi/csi"})):
        found = made.containers()
        assert {name for name in found if name.startswith(("tdcs-csi/", "tdcs-reader"))} == there
        # Without it the operator makes FUSE clients, and its policy lets it.
        options = found["tdcs-operator/operator"]["args"]
        assert ("--reader-plugin=tdcs-csi" in options) is (made is default)
        policy = json.dumps(made.one("ValidatingAdmissionPolicy", "tdcs-operator"))
        assert ("tdcs/alluxio:" in policy) is (made is plain)
        secure = [name for name, one in found.items() if any(a.startswith("--trust") for a in one["args"])]
        assert set(secure) == ({"tdcs-operator/operator", *runs} if made is default else set())


def test_the_reader_runs_beside_the_plugin_and_its_holder_outlives_upgrades(
    helm: Helm, default: Rendered, plain: Rendered
) -> None:
    made = default
    containers = made.containers()
    assert made.one("DaemonSet", "tdcs-reader-holder")["spec"]["updateStrategy"] == {"type": "OnDelete"}
    folder = "--reader-root=/var/lib/tdcs/reader"
    assert folder in containers["tdcs-csi/csi"]["args"]
    (script,) = entry_points(group="console_scripts", name="tdcs")
    reader = script.load().get_command(click.Context(script.load()), "reader")
    for name in ("tdcs-csi/reader", "tdcs-reader-holder/holder"):
        container = containers[name]
        assert container["securityContext"]["privileged"] is True
        first, subcommand, *options = container["args"]
        assert first == "reader"
        assert f"--folder={names.READER_ROOT}" in options
        given = ["--node=n"] if subcommand == "run" else []
        assert reader.commands[subcommand].make_context(subcommand, [*options, *given]).params
    (holder,) = made.pod_specs()["tdcs-reader-holder"]["containers"]
    propagated = {mount["name"]: mount.get("mountPropagation") for mount in holder["volumeMounts"]}
    assert propagated == {"tdcs": "Bidirectional", "trust": None}

    assert "--reader-plugin=tdcs-csi" in containers["tdcs-operator/operator"]["args"]

    delete_clients = ("apps", "daemonsets", "delete")
    assert delete_clients in rules(made.one("Role", "tdcs-operator"))
    assert delete_clients not in rules(plain.one("Role", "tdcs-operator"))
    assert made.one("DaemonSet", "tdcs-csi")

    # It needs native views, and without them is not there, whatever its own value says.
    off = helm.template({"csi.nativeViews": "false"})
    assert not [each for each in off.containers()["tdcs-operator/operator"]["args"] if "reader-p" in each]
    assert set(off.pod_specs()) == set(plain.pod_specs())
    assert folder not in off.containers()["tdcs-csi/csi"]["args"]


@pytest.mark.parametrize("views", [True, False])
def test_the_csi_plugin_sees_the_nodes_processes_only_to_tend_views(helm: Helm, views: bool) -> None:
    spec = helm.template({"csi.nativeViews": str(views).lower()}).pod_specs()["tdcs-csi"]
    container = spec["containers"][0]
    assert spec.get("hostPID", False) is views
    assert ("--proc=/proc" in container["args"]) is views
    assert f"--{'' if views else 'no-'}views" in container["args"]


def test_the_csi_plugin_sees_the_tiers_that_are_not_at_the_default_place(helm: Helm) -> None:
    tiers = '[{"path": "/mnt/nvme"}, {"path": "/var/lib/tdcs/cache/other"}, {}]'
    given = {"cacheCluster.spec.storage.tiers": tiers, "csi.tierFolders": '["/mnt/hdd", "/mnt/nvme"]'}
    spec = helm.template(given, files=[PLAIN_VALUES]).pod_specs()["tdcs-csi"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    kubelet = [f"/var/lib/kubelet/{name}" for name in ("plugins/csi.tdcs.io", "plugins_registry", "pods")]
    assert sorted(paths.values()) == ["/mnt/hdd", "/mnt/nvme", *kubelet, "/var/lib/tdcs"]
    (container,) = spec["containers"]
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == paths
    propagated = {mount["name"]: mount.get("mountPropagation") for mount in container["volumeMounts"]}
    assert propagated.pop("plugin") is propagated.pop("registry") is None
    assert set(propagated.values()) == {"Bidirectional"}
    # The remote-read client reads blocks there.
    reader = helm.template(given).containers()["tdcs-csi/reader"]["volumeMounts"]
    assert {"/mnt/hdd", "/mnt/nvme", "/var/lib/tdcs"} <= {mount["mountPath"] for mount in reader}


def test_no_right_is_a_wildcard_or_reaches_into_pods(rendered: Rendered) -> None:
    for role in rendered.all("ClusterRole") + rendered.all("Role"):
        for group, resource, verb in rules(role):
            assert "*" not in (group, resource, verb), role["metadata"]["name"]
            assert resource.partition("/")[2] not in {
                "exec",
                "attach",
                "portforward",
                "proxy",
                "ephemeralcontainers",
            }
            assert verb not in {"escalate", "bind", "impersonate", "deletecollection"}


def test_secrets_are_read_in_single_namespaces_only(helm: Helm) -> None:
    # For its own certificates the operator has a Role in its own namespace: see test_trust.
    rendered = helm.template({"datasetNamespaces": '["team-a", "team-b"]', "trust.enabled": "false"})
    with_secrets = {
        role["metadata"]["name"]: {verb for _, resource, verb in rules(role) if resource == "secrets"}
        for role in rendered.all("ClusterRole") + rendered.all("Role")
        if any(resource == "secrets" for _, resource, _ in rules(role))
    }

    assert with_secrets == {"tdcs-dataset-secrets": {"get"}}
    assert not [b for b in rendered.all("ClusterRoleBinding") if b["roleRef"]["name"] in with_secrets]
    bound = [b for b in rendered.all("RoleBinding") if b["roleRef"]["name"] in with_secrets]
    assert {binding["metadata"]["namespace"] for binding in bound} == {"team-a", "team-b"}
    for binding in bound:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "tdcs-operator", "namespace": NAMESPACE}
        ]


def test_without_being_asked_no_secret_can_be_read(default: Rendered) -> None:
    assert not [b for b in default.all("RoleBinding") if b["roleRef"]["name"] == "tdcs-dataset-secrets"]


def test_cluster_wide_rights_go_to_known_accounts_only(default: Rendered) -> None:
    bound = {(b["roleRef"]["name"], b["subjects"][0]["name"]) for b in default.all("ClusterRoleBinding")}

    assert bound == {
        ("tdcs-operator", "tdcs-operator"),
        ("tdcs-extender", "tdcs-scheduler"),
        ("system:kube-scheduler", "tdcs-scheduler"),
        ("system:volume-scheduler", "tdcs-scheduler"),
        ("tdcs-crd-upgrade", "tdcs-crd-upgrade"),
        ("tdcs-uninstall", "tdcs-uninstall"),
    }


NAMESPACED = {"scope": '"Namespaces"', "datasetNamespaces": '["data", "both"]', "jobNamespaces": '["both"]'}


def test_an_operator_of_single_namespaces_has_its_rights_by_roles_there(helm: Helm) -> None:
    made = helm.template(NAMESPACED)
    account = [{"kind": "ServiceAccount", "name": "tdcs-operator", "namespace": NAMESPACE}]
    bound = {
        binding["metadata"]["namespace"]
        for binding in made.all("RoleBinding")
        if binding["roleRef"] == {**binding["roleRef"], "kind": "Role", "name": "tdcs-operator-work"}
        and binding["subjects"] == account
    }
    roles = {
        role["metadata"]["namespace"]: set(rules(role))
        for role in made.all("Role")
        if role["metadata"]["name"] == "tdcs-operator-work"
    }
    assert bound == set(roles) == {"data", "both", NAMESPACE}
    make_jobs, make_claims = ("batch", "jobs", "create"), ("", "persistentvolumeclaims", "create")
    assert {name for name, rights in roles.items() if make_jobs in rights} == {"both", NAMESPACE}
    assert {name for name, rights in roles.items() if make_claims in rights} == {"data", "both", NAMESPACE}
    wide = set(rules(made.one("ClusterRole", "tdcs-operator")))
    assert {resource for _, resource, _ in wide} == {
        "namespaces", "nodes", "pods", "persistentvolumes", "priorityclasses", "runtimeclasses", "servicecidrs",
    }  # fmt: skip
    assert {(resource, verb) for _, resource, verb in wide if verb not in {"get", "list", "watch"}} == {
        ("persistentvolumes", verb) for verb in ("create", "patch", "delete")
    }
    # Together no right more or less than of the operator of all namespaces.
    own = set(rules(made.one("Role", "tdcs-operator")))
    everywhere = helm.template({})
    of_all = {
        *rules(everywhere.one("ClusterRole", "tdcs-operator")),
        *rules(everywhere.one("Role", "tdcs-operator")),
    }
    assert wide | own | set().union(*roles.values()) == of_all
    options = made.containers()["tdcs-operator/operator"]["args"]
    assert [option for option in options if option.startswith(("--scope", "--dataset-n", "--job-n"))] == [
        "--scope=namespaces", "--dataset-namespace=data", "--dataset-namespace=both", "--job-namespace=both",
    ]  # fmt: skip


def test_an_operator_of_no_namespace_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match="name at least one namespace"):
        helm.template({"scope": '"Namespaces"'})


def test_the_operator_knows_its_own_image_for_the_agents(rendered: Rendered) -> None:
    (operator,) = rendered.pod_specs()["tdcs-operator"]["containers"]
    assert f"--agent-image={operator['image']}" in operator["args"]


def test_the_csi_plugin_cannot_talk_to_the_api_server(default: Rendered) -> None:
    assert default.pod_specs()["tdcs-csi"]["automountServiceAccountToken"] is False


def test_the_schedulers_configuration_is_the_programs_own(default: Rendered) -> None:
    written = default.one("ConfigMap", "tdcs-scheduler")["data"]["scheduler.yaml"]

    assert yaml.safe_load(written) == scheduler_configuration()


def test_the_extender_listens_where_its_scheduler_asks(default: Rendered) -> None:
    containers = default.containers()

    assert f"--port={names.EXTENDER_PORT}" in containers["tdcs-scheduler/extender"]["args"]
    # kubelet's probes come from outside of the pod and do not reach loopback.
    port, _webhook = containers["tdcs-scheduler/extender"]["ports"]
    assert f"--monitoring-port={port['containerPort']}" in containers["tdcs-scheduler/extender"]["args"]


def test_the_extender_looks_at_the_pods_of_its_own_scheduler(helm: Helm) -> None:
    rendered = helm.template({"scheduler.name": '"mine"'})

    assert "--scheduler-name=mine" in rendered.containers()["tdcs-scheduler/extender"]["args"]


def test_the_scheduler_begins_after_its_extender_and_after_a_bounded_time_without_it(
    default: Rendered,
) -> None:
    spec = default.pod_specs()["tdcs-scheduler"]

    extender, waiting = spec["initContainers"]
    assert (extender["name"], extender["restartPolicy"]) == ("extender", "Always")
    # A probe that must succeed first would have no bound.
    assert "startupProbe" not in extender
    assert waiting["args"][0] == "await-extender"
    port, _webhook = extender["ports"]
    assert f"--url=http://127.0.0.1:{port['containerPort']}/healthz" in waiting["args"]
    assert "--at-most=30" in waiting["args"]
    assert "restartPolicy" not in waiting


@pytest.mark.parametrize("part", ["operator", "scheduler"])
def test_from_a_lost_node_operator_and_scheduler_move_within_half_a_minute(helm: Helm, part: str) -> None:
    own = {"key": "dedicated", "operator": "Exists"}
    rendered = helm.template({f"{part}.tolerations": f"[{json.dumps(own)}]"})

    first, *others = rendered.pod_specs()[f"tdcs-{part}"]["tolerations"]
    assert first == own
    assert {(each["key"], each["effect"], each["tolerationSeconds"]) for each in others} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 30),
        ("node.kubernetes.io/unreachable", "NoExecute", 30),
    }


def test_no_hook_leaves_anything_behind_that_an_uninstall_would_miss(default: Rendered) -> None:
    hooked = [o for o in default.objects if "helm.sh/hook" in o["metadata"].get("annotations", {})]
    assert len(hooked) > 10
    for obj in hooked:
        policy = obj["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
        assert "hook-succeeded" in policy, obj["metadata"]["name"]
    test = default.one("Pod", "tdcs-smoke-test")["metadata"]["annotations"]
    assert test["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed"


def test_with_the_extender_off_the_scheduler_runs_alone_and_anew(helm: Helm, default: Rendered) -> None:
    rendered = helm.template({"extender.enabled": "false"})

    assert "initContainers" not in rendered.pod_specs()["tdcs-scheduler"]
    assert [c["name"] for c in rendered.pod_specs()["tdcs-scheduler"]["containers"]] == ["kube-scheduler"]
    written = yaml.safe_load(rendered.one("ConfigMap", "tdcs-scheduler")["data"]["scheduler.yaml"])
    assert "extenders" not in written

    def digest(of: Rendered) -> str:
        annotations = of.one("Deployment", "tdcs-scheduler")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["tdcs.io/config-hash"])

    assert digest(rendered) != digest(default)


@pytest.mark.parametrize(
    ("value", "gone"),
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
def test_a_part_that_is_off_leaves_nothing_behind(helm: Helm, value: str, gone: str) -> None:
    rendered = helm.template({value: "false"})

    assert not [o["metadata"]["name"] for o in rendered.objects if o["metadata"]["name"].startswith(gone)]


def test_each_container_is_started_with_options_that_the_command_has(rendered: Rendered) -> None:
    (script,) = entry_points(group="console_scripts", name="tdcs")
    main = script.load()
    # Those of the remote-read client have subcommands, see above.
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
        given = ["--node=n"] if name == "tdcs-csi/csi" else []  # from the environment, NODE_NAME
        assert command.make_context(subcommand, [*options, *given]).params, name


def test_images_have_the_charts_version_unless_another_is_named(helm: Helm, default: Rendered) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert default.containers()["tdcs-operator/operator"]["image"] == f"tdcs/tdcs:{version}"
    assert f"--image=tdcs/alluxio:{version}" in default.containers()["tdcs-operator/operator"]["args"]

    other = helm.template({"image.tag": '"t1"', "alluxio.image.tag": '"t2"'}).containers()
    assert other["tdcs-csi/csi"]["image"] == "tdcs/tdcs:t1"
    assert "--image=tdcs/alluxio:t2" in other["tdcs-operator/operator"]["args"]


def test_a_digest_wins_over_a_tag_for_every_image(helm: Helm) -> None:
    images = ("image", "alluxio.image", "scheduler.image")
    digest = {name: f"sha256:{number:064x}" for number, name in enumerate(images)}
    given = {f"{name}.digest": json.dumps(value) for name, value in digest.items()}
    made = helm.template({**given, "image.tag": '"t1"'})
    scheduler = f"registry.k8s.io/kube-scheduler@{digest['scheduler.image']}"
    used = {container["image"] for container in made.containers().values()}
    assert used == {f"tdcs/tdcs@{digest['image']}", scheduler}
    operator = made.containers()["tdcs-operator/operator"]["args"]
    assert f"--image=tdcs/alluxio@{digest['alluxio.image']}" in operator
    assert f"--agent-image=tdcs/tdcs@{digest['image']}" in operator
    policy = helm.template(given, files=[PLAIN_VALUES]).one("ValidatingAdmissionPolicy", "tdcs-operator")
    assert f"tdcs/alluxio@{digest['alluxio.image']}" in json.dumps(policy), "the FUSE client's image"


@pytest.mark.parametrize("digest", ["sha256:1", "4f53", f"sha512:{'a' * 64}", f"sha256:{'A' * 64}"])
def test_what_is_no_digest_is_refused(helm: Helm, digest: str) -> None:
    with pytest.raises(RefusedError, match="digest"):
        helm.template({"image.digest": json.dumps(digest)})


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, names.SCHEDULER_NAME),
        ({"scheduler.name": '"other"'}, "other"),
        ({"scheduler.enabled": "false"}, ""),
    ],
)
def test_jobs_ask_for_the_scheduler_that_is_there(helm: Helm, values: dict[str, str], name: str) -> None:
    operator = helm.template(values).containers()["tdcs-operator/operator"]
    assert f"--scheduler-name={name}" in operator["args"]


def test_the_caches_pods_pull_with_the_charts_secrets(helm: Helm) -> None:
    rendered = helm.template({"imagePullSecrets": '[{"name": "a"}, {"name": "b"}]'})
    arguments = rendered.containers()["tdcs-operator/operator"]["args"]
    assert [a for a in arguments if "pull" in a] == ["--image-pull-secret=a", "--image-pull-secret=b"]


def test_the_operator_tells_users_names_that_exist(helm: Helm) -> None:
    rendered = helm.template(release="team")
    told = dict(
        argument.removeprefix("--").split("=", 1)
        for argument in rendered.containers()["team-tdcs-operator/operator"]["args"]
        if argument.startswith("--") and "=" in argument
    )
    assert rendered.one("ClusterRole", told["secrets-role"])
    assert rendered.one("ServiceAccount", told["service-account"])


@pytest.mark.parametrize("version", ["v1.33.2", "v1.33.2+k3s1", "v1.33.2-eks-1a2b3c"])
def test_the_scheduler_has_the_version_of_the_cluster(helm: Helm, version: str) -> None:
    told = helm.run("template", "tdcs", CHART, "--kube-version", version)

    assert "image: registry.k8s.io/kube-scheduler:v1.33.2\n" in told


def test_the_scheduler_may_have_another_version(helm: Helm) -> None:
    rendered = helm.template({"scheduler.image.tag": '"v1.34.1"'})

    assert rendered.containers()["tdcs-scheduler/kube-scheduler"]["image"].endswith("kube-scheduler:v1.34.1")


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
    objects = [
        obj for obj in yaml.safe_load_all(helm.run("template", "--include-crds", "tdcs", CHART)) if obj
    ]
    shown = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    generated = [yaml.safe_load(text) for text in crd.manifests().values()]

    def name(obj: Object) -> str:
        return str(obj["metadata"]["name"])

    assert sorted(shown, key=name) == sorted(generated, key=name)
    # On install they come from there, on upgrade by the hook: never as objects of the release, which uninstall would
    # delete.
    assert not default.all("CustomResourceDefinition")
    hook = default.one("ClusterRole", "tdcs-crd-upgrade")
    assert sorted(hook["rules"][0]["resourceNames"]) == sorted(map(name, generated))


@pytest.mark.parametrize(
    ("name", "when"),
    [("tdcs-crd-upgrade", "pre-upgrade"), ("tdcs-uninstall", "pre-delete"), ("tdcs-smoke-test", "test")],
)
def test_hooks_run_when_they_should(default: Rendered, name: str, when: str) -> None:
    hooked = [
        o for o in default.objects if o["metadata"].get("annotations", {}).get("helm.sh/hook", "") == when
    ]

    others = {"tdcs-network-test"} if when == "test" else set()  # it has no account
    assert {o["metadata"]["name"] for o in hooked} == {name} | others
    # The account and its rights before the job that needs them.
    weights = {o["kind"]: int(o["metadata"]["annotations"]["helm.sh/hook-weight"]) for o in hooked}
    assert weights.pop("Job" if "Job" in weights else "Pod") > max(weights.values())


def test_an_uninstall_asks_what_is_left_even_where_the_chart_makes_no_cache(
    helm: Helm, default: Rendered
) -> None:
    without = helm.template({"cacheCluster.create": "false"})
    base = ["delete-caches", "--namespace", "tdcs-system"]
    for made, expected in ((default, [*base, "default"]), (without, base)):
        assert made.containers()["tdcs-uninstall/delete-caches"]["args"] == expected
        verbs = {
            (resource, tuple(rule.get("resourceNames", ()))): set(rule["verbs"])
            for kind in ("ClusterRole", "Role")
            for rule in made.one(kind, "tdcs-uninstall")["rules"]
            for resource in rule["resources"]
        }
        assert verbs[("datasets", ())] == verbs[("cacheclusters", ())] == {"list"}
        assert verbs.get(("cacheclusters", ("default",)), set()) == (
            {"get", "delete"} if made is default else set()
        )
    # Helm prints what it says.
    annotations = default.one("Job", "tdcs-uninstall")["metadata"]["annotations"]
    assert annotations["helm.sh/hook-output-log-policy"] == "hook-failed"


def test_prometheus_finds_the_metrics_of_every_part_that_has_some(helm: Helm, default: Rendered) -> None:
    assert not default.all("PodMonitor")

    made = helm.template({"podMonitor.enabled": "true", "podMonitor.labels": '{"team": "ml"}'})

    monitor = made.one("PodMonitor", "tdcs")
    assert monitor["metadata"]["labels"]["team"] == "ml"
    endpoints = monitor["spec"]["podMetricsEndpoints"]
    scraped = {endpoint["port"] for endpoint in endpoints}
    serving = {
        name
        for name, container in made.containers().items()
        if scraped & {port["name"] for port in container.get("ports", [])}
    }
    assert serving == {"tdcs-operator/operator", "tdcs-scheduler/extender", "tdcs-csi/csi", "tdcs-csi/reader"}
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    for name in ("tdcs-operator", "tdcs-scheduler"):
        assert selected <= made.one("Deployment", name)["spec"]["template"]["metadata"]["labels"].items()
    # A Dataset's own namespace, which dashboard and alerts name, is not the operator's.
    assert all(endpoint["honorLabels"] is True for endpoint in endpoints)
    agents = made.one("PodMonitor", "tdcs-agents")["spec"]
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


def test_an_autoscaler_comes_with_its_rule_when_it_is_asked_for(helm: Helm, rendered: Rendered) -> None:
    assert not rendered.all("HorizontalPodAutoscaler")
    made = helm.template({"autoscaling": '{"enabled": true, "targetPercent": 70, "maxReplicas": 4}'})
    spec = made.one("HorizontalPodAutoscaler", "default")["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": names.API_VERSION,
        "kind": "CacheCluster",
        "name": "default",
    }
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)
    external = spec["metrics"][0]["external"]
    assert external["target"] == {"type": "AverageValue", "averageValue": "700m"}
    rules = yaml.safe_load(made.one("ConfigMap", "tdcs-prometheus-adapter")["data"]["config.yaml"])
    (rule,) = rules["externalRules"]
    assert rule["name"]["as"] == external["metric"]["name"]
    for name in re.findall(r"tdcs_[a-z_]+", rule["metricsQuery"]):
        assert f"| `{name}` | gauge |" in metrics.markdown()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cacheCluster.spec.scaling.followJobs": "true"}, "choose one of them"),
        ({"cacheCluster.spec.replicas": "3"}, "remove cacheCluster.spec.replicas"),
        ({"autoscaling.minReplicas": "11"}, "must not be above"),
        ({"cacheCluster.create": "false"}, "set cacheCluster.create"),
    ],
)
def test_an_autoscaler_beside_another_owner_of_the_number_is_refused(
    helm: Helm, values: Mapping[str, str], words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        helm.template({"autoscaling.enabled": "true", **values})
