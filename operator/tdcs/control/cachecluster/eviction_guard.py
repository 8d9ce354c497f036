"""Keeps autoscalers and drains from evicting workers that hold what no other one holds.

One PodDisruptionBudget a cache cluster selects their pods by their nodes. The eviction API, the cluster autoscaler,
Karpenter and the descheduler all ask it, and no pod has to be changed. A pod that is not ready may be evicted all the
same.
"""

from collections.abc import Collection, Iterable, Mapping

from tdcs.api import names
from tdcs.control.cachecluster.blueprint import Blueprint, metadata_of
from tdcs.control.context import Context
from tdcs.control.dataset.cached_data import CachedData
from tdcs.decide.leaving_workers import protected_nodes
from tdcs.kube.apply import belongs
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import POD_DISRUPTION_BUDGETS


def budget(plan: Blueprint, *, nodes: Collection[str]) -> Object:
    """The PodDisruptionBudget that lets no worker of these nodes be evicted."""
    component = names.COMPONENT_WORKER
    slugs = sorted(names.node_slug(node) for node in nodes)
    return {
        "apiVersion": POD_DISRUPTION_BUDGETS.api_version,
        "kind": POD_DISRUPTION_BUDGETS.kind,
        "metadata": metadata_of(plan, name=names.last_copies_name(cluster=plan.cluster), component=component),
        "spec": {
            "maxUnavailable": 0,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {
                "matchLabels": {names.LABEL_CACHE_CLUSTER: plan.cluster, names.LABEL_COMPONENT: component},
                "matchExpressions": [{"key": names.LABEL_NODE, "operator": "In", "values": slugs}],
            },
        },
    }


def guarded_nodes(live: Object | None, *, nodes: Iterable[str]) -> frozenset[str]:
    """Those of the nodes that a budget names."""
    selector = ((live or {}).get("spec") or {}).get("selector") or {}
    slugs = {
        slug
        for expression in selector.get("matchExpressions") or ()
        for slug in expression.get("values") or ()
    }
    return frozenset(node for node in nodes if names.node_slug(node) in slugs)


class EvictionGuard:
    """Keeps the budget of every cache cluster.

    Args:
        data: which nodes hold last copies.
    """

    def __init__(self, *, context: Context, data: CachedData) -> None:
        self._context = context
        self._data = data

    async def reconcile(
        self,
        plan: Blueprint,
        *,
        workers: Collection[str],
        staying: Collection[str],
        answering: Collection[str],
    ) -> None:
        """One pass.

        Args:
            plan: of the cache cluster.
            workers: the nodes that have a worker.
            staying: the nodes that shall have one.
            answering: the nodes whose workers answer.

        Raises:
            ForeignObjectError: a budget of another owner has its name.
        """
        api, name = self._context.api, names.last_copies_name(cluster=plan.cluster)
        live = await api.get(POD_DISRUPTION_BUDGETS, name=name, namespace=plan.namespace)
        nodes = self._protected(
            plan,
            before=guarded_nodes(live, nodes=workers),
            workers=workers,
            leaving=frozenset(workers).difference(staying),
            answering=answering,
        )
        if nodes:
            await self._context.applier.apply(
                POD_DISRUPTION_BUDGETS, wanted=budget(plan, nodes=nodes), live=live, owner=plan.owner
            )
        elif live is not None and belongs(live, plan.owner):
            uid = live["metadata"]["uid"]
            await api.delete(POD_DISRUPTION_BUDGETS, name=name, namespace=plan.namespace, uid=uid)

    def _protected(
        self,
        plan: Blueprint,
        *,
        before: Collection[str],
        workers: Collection[str],
        leaving: frozenset[str],
        answering: Collection[str],
    ) -> frozenset[str]:
        protect = plan.spec.scaling.protect
        if protect == "Never":
            return frozenset()
        holders, complete = self._data.last_holders(
            plan.cluster, leaving=leaving, only_needed=protect == "Needed"
        )
        nodes: Mapping[str, Object] = {
            name: node for (_, name), node in self._context.stores.nodes.items() if name in workers
        }
        return protected_nodes(
            holders=holders, before=before, complete=complete, answering=answering, nodes=nodes
        )
