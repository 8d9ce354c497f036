"""What a chaos run on a cluster does things to is in the chart and in a cache under the names that it uses."""

import json
from collections.abc import Iterator

from e2e.chaos.faults import HARMLESS, PLACES
from e2e.chaos.plan import Part
from tests.unit.chart.conftest import NAMESPACE, Helm, Object, Rendered

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import cache_children, stock_client
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs_local.kind.kubectl import load
from tdcs_local.paths import LOCAL

ELSEWHERE = {Part.API_SERVER}
"""kubeadm makes it."""


def workloads(chart: Rendered) -> Iterator[Object]:
    for thing in chart.objects:
        if "template" in (thing.get("spec") or {}):
            yield thing
    metadata = {"name": "default", "uid": "u"}
    owner = {"apiVersion": names.API_VERSION, "kind": "CacheCluster", "metadata": metadata}
    plan = Blueprint(
        owner=owner, spec=CacheClusterSpec(), namespace=NAMESPACE, image="alluxio:1", agent_image="tdcs:1"
    )
    yield from (
        cache_children.master(plan),
        cache_children.worker(plan, node="n"),
        stock_client.daemon_set(plan),
    )
    yield from (thing for thing in load(LOCAL / "store" / "store.yaml") if thing["kind"] == "Deployment")


def test_every_part_has_pods_with_its_labels_and_its_container(default: Rendered) -> None:
    pod_owners = list(workloads(default))
    for part in PLACES.keys() - ELSEWHERE:
        place = PLACES[part]
        key, _, value = place.selector.partition("=")
        pods = [
            pod_owner["spec"]["template"]["spec"]
            for pod_owner in pod_owners
            if pod_owner["metadata"]["namespace"] == place.namespace
            and pod_owner["spec"]["template"]["metadata"]["labels"].get(key) == value
        ]
        assert len(pods) == 1, part
        containers = [*pods[0].get("initContainers", ()), *pods[0]["containers"]]
        assert place.container in {container["name"] for container in containers}, part


def test_an_upgrade_of_a_run_replaces_operator_and_plugins(default: Rendered, helm: Helm) -> None:
    changed = helm.template({name: json.dumps(value) for name, value in HARMLESS.items()})
    for workload in ("tdcs-operator/operator", "tdcs-csi/csi"):
        before, after = default.containers()[workload], changed.containers()[workload]
        assert before["resources"]["requests"]["cpu"] != after["resources"]["requests"]["cpu"]
        assert {**before, "resources": None} == {**after, "resources": None}
