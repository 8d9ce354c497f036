"""The pods that mount on nodes: the node plugin, the remote-read client and its holder."""

import json
from importlib.metadata import entry_points

import click
import pytest
from tests.unit.chart.conftest import PLAIN_VALUES, Helm, Rendered, rules

from tdcs.api import names


@pytest.mark.threat("token-fuse-client")
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


@pytest.mark.threat("fuse-client", "token-fuse-client")
def test_alluxios_fuse_client_runs_nowhere_by_default(helm: Helm, default: Rendered) -> None:
    stock = helm.template({"cacheCluster.spec.profile": '"Stock"'})
    for rendered in (default, stock):
        policy = json.dumps(rendered.one("ValidatingAdmissionPolicy", "tdcs-operator"))
        assert ("tdcs/alluxio:" in policy) is (rendered is stock)


def test_what_the_chart_runs_has_certificates_by_default(default: Rendered, plain: Rendered) -> None:
    runs = {"tdcs-csi/csi", "tdcs-csi/reader", "tdcs-reader-holder/holder"}
    for rendered in (default, plain):
        containers = rendered.containers()
        assert {name for name in containers if name.startswith(("tdcs-csi/", "tdcs-reader"))} == runs
        secure = [
            name
            for name, container in containers.items()
            if any(a.startswith("--trust") for a in container["args"])
        ]
        assert set(secure) == (
            {"tdcs-operator/operator", "tdcs-scheduler/extender", *runs} if rendered is default else set()
        )


def test_the_reader_runs_next_to_the_plugin_and_its_holder_outlives_upgrades(
    helm: Helm, default: Rendered
) -> None:
    rendered = default
    containers = rendered.containers()
    assert rendered.one("DaemonSet", "tdcs-reader-holder")["spec"]["updateStrategy"] == {"type": "OnDelete"}
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
        more_options = ["--node=n"] if subcommand == "run" else []
        assert reader.commands[subcommand].make_context(subcommand, [*options, *more_options]).params
    (holder,) = rendered.pod_specs()["tdcs-reader-holder"]["containers"]
    propagated = {mount["name"]: mount.get("mountPropagation") for mount in holder["volumeMounts"]}
    assert propagated == {"tdcs": "Bidirectional", "trust": None}

    assert ("apps", "daemonsets", "delete") in rules(rendered.one("Role", "tdcs-operator"))
    assert rendered.one("DaemonSet", "tdcs-csi")

    off = helm.template({"csi.enabled": "false"})
    assert not {"tdcs-csi", "tdcs-reader-holder"} & set(off.pod_specs())


@pytest.mark.failure_mode("reader-starts-without-holder")
def test_a_reader_that_waits_for_its_holder_is_not_killed_for_an_hour(default: Rendered) -> None:
    probe = default.containers()["tdcs-csi/reader"]["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600


def test_the_csi_plugin_sees_the_nodes_processes(default: Rendered) -> None:
    spec = default.pod_specs()["tdcs-csi"]
    assert spec["hostPID"] is True
    assert "--proc=/proc" in spec["containers"][0]["args"]


def test_the_csi_plugin_sees_the_tiers_that_are_not_at_the_default_place(helm: Helm) -> None:
    tiers = '[{"path": "/mnt/nvme"}, {"path": "/var/lib/tdcs/cache/other"}, {}]'
    values = {"cacheCluster.spec.storage.tiers": tiers, "csi.tierFolders": '["/mnt/hdd", "/mnt/nvme"]'}
    spec = helm.template(values, files=[PLAIN_VALUES]).pod_specs()["tdcs-csi"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    kubelet = [f"/var/lib/kubelet/{name}" for name in ("plugins/csi.tdcs.io", "plugins_registry", "pods")]
    state = ["/var/lib/tdcs", names.READER_ROOT]
    assert sorted(paths.values()) == ["/mnt/hdd", "/mnt/nvme", *kubelet, *state]
    container = next(
        container_spec for container_spec in spec["containers"] if container_spec["name"] == "csi"
    )
    del paths["reader"]  # of its container
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == paths
    propagated = {mount["name"]: mount.get("mountPropagation") for mount in container["volumeMounts"]}
    assert propagated.pop("plugin") is propagated.pop("registry") is None
    assert set(propagated.values()) == {"Bidirectional"}
    # The remote-read client reads blocks there.
    reader = helm.template(values).containers()["tdcs-csi/reader"]["volumeMounts"]
    assert {"/mnt/hdd", "/mnt/nvme", "/var/lib/tdcs"} <= {mount["mountPath"] for mount in reader}


def test_the_csi_plugin_cannot_talk_to_the_api_server(default: Rendered) -> None:
    assert default.pod_specs()["tdcs-csi"]["automountServiceAccountToken"] is False
