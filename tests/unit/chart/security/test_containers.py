"""Every container that TDCS makes: what it may do on its node, and the few that may more, each with its reason."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.unit.chart.conftest import Helm

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import cache_children, cleaning, isolation_probe, stock_client
from tdcs.control.cachecluster.blueprint import Blueprint

Object = dict[str, Any]

PRIVILEGED: Mapping[str, str] = {
    "tdcs-csi/csi": "mounts that kubelet and pods see",
    "tdcs-reader-holder/holder": "mounts the reader's file system where pods see it",
    "fuse/fuse": "mounts Alluxio's file system where pods see it",
}

USERS: Mapping[str, int] = {"tdcs-csi/reader": names.READER_USER}
"""Containers that are of another user than the others: its pod sees the node's processes."""

ROOT: Mapping[str, tuple[set[str], str]] = {
    "worker/agent-prepare": (
        {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
        "kubelet makes folders of nodes for root, and a cache that becomes another user's has files of the one before",
    ),
    "master/journal-owner": (
        {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
        "a cache that becomes another user's has a journal of the one before",
    ),
    "clean/clean": (
        {"DAC_OVERRIDE", "FOWNER"},
        "views are root's, blocks are not, and Alluxio's folders are sticky",
    ),
    "worker-root/worker": ({"DAC_OVERRIDE"}, "reads files of a shared folder whoever they are for"),
    "worker-root/agent": ({"DAC_OVERRIDE"}, "reads files of a shared folder whoever they are for"),
    "master-root/master": ({"DAC_OVERRIDE"}, "reads files of a shared folder whoever they are for"),
    "worker-folders/agent-prepare": ({"CHOWN", "DAC_OVERRIDE", "FOWNER"}, "as in worker"),
    "master-folders/journal-owner": ({"CHOWN", "DAC_OVERRIDE", "FOWNER"}, "as in master"),
    "worker-root/agent-prepare": ({"CHOWN", "DAC_OVERRIDE", "FOWNER"}, "as in worker"),
    "master-root/journal-owner": ({"CHOWN", "DAC_OVERRIDE", "FOWNER"}, "as in master"),
}
"""Containers that run as root, with the capabilities that they keep, and why."""


def blueprint(**spec: Any) -> Blueprint:
    owner = {"apiVersion": "tdcs.io/v1alpha2", "kind": "CacheCluster", "metadata": {"name": "c", "uid": "u"}}
    return Blueprint(
        owner=owner,
        spec=CacheClusterSpec.model_validate(spec),
        namespace="tdcs-system",
        image="alluxio:1",
        agent_image="tdcs:1",
    )


def pods_of_caches() -> Iterator[tuple[str, Object]]:
    """The pod specs of a cache, of one with a shared folder, and of one that reads it whoever its files are for."""
    worker_set = {"metadata": {"uid": "u", "generation": 1}}
    plain, shared = blueprint(), blueprint(sourceFolders=["/nfs"])
    as_root = blueprint(sourceFolders=["/nfs"], folderAccess={"asRoot": True})
    yield "master", cache_children.master(plain)
    yield "worker", cache_children.worker(plain, node="n")
    yield "fuse", stock_client.daemon_set(plain)
    yield "clean", cleaning.job(plain, worker_set=worker_set, node="n", views_too=True)
    yield "network-probe", isolation_probe.job(plain, window=1)
    yield "master-folders", cache_children.master(shared)
    yield "worker-folders", cache_children.worker(shared, node="n")
    yield "master-root", cache_children.master(as_root)
    yield "worker-root", cache_children.worker(as_root, node="n")


@pytest.fixture(scope="module")
def pods(helm: Helm) -> dict[str, Object]:
    """Every pod spec by the workload's name: of the chart with all that it has, and of the caches."""
    everything = helm.template().pod_specs()
    return {**everything, **{name: obj["spec"]["template"]["spec"] for name, obj in pods_of_caches()}}


def containers(pods: Mapping[str, Object]) -> dict[str, Object]:
    return {
        f"{name}/{container['name']}": container
        for name, spec in pods.items()
        for container in [*spec.get("initContainers", ()), *spec["containers"]]
    }


@pytest.mark.threat("root-in-cache-pod", "shared-folders-of-cache-pod")
def test_every_container_is_restricted_but_for_those_that_are_listed_here(pods: dict[str, Object]) -> None:
    by_name = containers(pods)
    assert set(PRIVILEGED) | set(ROOT) <= set(by_name), "listed, and not there any more"
    assert len(by_name) > 15
    for name, container in by_name.items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        if name in PRIVILEGED:
            assert context["privileged"] is True, name
            continue
        assert not context.get("privileged"), name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert context["capabilities"]["drop"] == ["ALL"], name
        added = set(context["capabilities"].get("add", ()))
        if name in ROOT:
            assert (context["runAsUser"], added) == (0, ROOT[name][0]), name
        else:
            assert context["runAsNonRoot"] is True, name
            assert (context["runAsUser"], added) == (USERS.get(name, names.CACHE_USER), set()), name


@pytest.mark.threat("reader-taken")
def test_what_hears_from_other_nodes_for_a_pods_reads_can_write_to_its_own_folder_alone(
    helm: Helm, pods: dict[str, Object]
) -> None:
    reader = containers(pods)["tdcs-csi/reader"]
    written = {mount["mountPath"] for mount in reader["volumeMounts"] if not mount.get("readOnly")}
    assert written == {names.READER_ROOT}
    # The blocks are for the cache's user and its group, the certificate for the pod's.
    for name in ("tdcs-csi", "tdcs-reader-holder"):
        context = pods[name]["securityContext"]
        assert context["supplementalGroups"] == [names.CACHE_USER]
        assert context["fsGroup"] == names.READER_USER
    # What serves in its place gives up being root.
    assert f"--user={names.READER_USER}" in containers(pods)["tdcs-reader-holder/holder"]["args"]


@pytest.mark.threat("root-in-cache-pod", "holder-taken", "node-plugin-taken")
def test_no_pod_takes_more_of_its_node_than_is_listed_here(pods: dict[str, Object]) -> None:
    kubelet = {f"/var/lib/kubelet/{name}" for name in ("pods", "plugins/csi.tdcs.io", "plugins_registry")}
    folders = {
        "tdcs-csi": {*kubelet, "/var/lib/tdcs", names.READER_ROOT},
        "tdcs-reader-holder": {"/var/lib/tdcs"},
        "fuse": {"/var/lib/tdcs/fuse", "/var/lib/tdcs/cache/c"},
        "worker": {"/var/lib/tdcs/cache/c"},
        "clean": {"/var/lib/tdcs/cache/c"},
        "worker-folders": {"/var/lib/tdcs/cache/c", "/nfs"},
        "worker-root": {"/var/lib/tdcs/cache/c", "/nfs"},
    }
    for name, spec in pods.items():
        paths = {volume["hostPath"]["path"] for volume in spec.get("volumes", ()) if "hostPath" in volume}
        assert paths == folders.get(name, set()), name
        # The plugin looks at pods' mounts; the holder is named the processes that read.
        allowed = {"hostPID"} if name in {"tdcs-csi", "tdcs-reader-holder"} else set()
        assert {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() == allowed, name


@pytest.mark.threat("token-capabilities")
def test_the_operators_account_may_give_the_cache_its_capabilities_and_no_others(
    helm: Helm, pods: dict[str, Object]
) -> None:
    policy = helm.template().one("ValidatingAdmissionPolicy", "tdcs-operator")
    (rule,) = (
        validation["expression"]
        for validation in policy["spec"]["validations"]
        if "!variables.ofCache" in validation["expression"] and "capabilities" in validation["expression"]
    )
    allowed = re.search(r"add\.orValue\(\[]\)\.all\(a, a in \[([A-Z_', ]+)]\)", rule)
    assert allowed is not None
    assert set(re.findall(r"[A-Z_]+", allowed[1])) == {name for names, _ in ROOT.values() for name in names}
    # It allows no port of a node either, and no pod has one.
    assert "hostPort.orValue(0) == 0" in rule
    ports = [port for container_spec in containers(pods).values() for port in container_spec.get("ports", ())]
    assert ports
    assert not any("hostPort" in port for port in ports)


def test_what_writes_below_a_read_only_root_has_somewhere_to(pods: dict[str, Object]) -> None:
    for name in ("master", "worker", "fuse"):
        (container,) = [
            container_spec for container_spec in pods[name]["containers"] if container_spec["name"] == name
        ]
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        assert {"name": "tmp", "emptyDir": {}} in pods[name]["volumes"]
