"""The pods that mount on nodes: the node plugin, the remote-read client and its holder."""

import json
from importlib.metadata import entry_points

import click
import pytest
from tests.unit.chart.conftest import PLAIN_VALUES, Helm, Rendered, rules

from tdcs.api import names


def test_only_what_mounts_on_nodes_has_privileges(rendered: Rendered) -> None:
    for name, container in rendered.containers().items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        if name in {"tdcs-csi/csi", "tdcs-reader-holder/holder"}:
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
        assert set(secure) == (
            {"tdcs-operator/operator", "tdcs-scheduler/extender", *runs} if made is default else set()
        )


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
        assert container["securityContext"].get("privileged", False) is (name != "tdcs-csi/reader")
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


def test_a_reader_that_waits_for_its_holder_is_not_killed_for_an_hour(default: Rendered) -> None:
    probe = default.containers()["tdcs-csi/reader"]["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600


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


def test_the_csi_plugin_cannot_talk_to_the_api_server(default: Rendered) -> None:
    assert default.pod_specs()["tdcs-csi"]["automountServiceAccountToken"] is False
