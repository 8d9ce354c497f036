"""Whether a Dataset may use its source now: by the rules of its CacheCluster, and by where its store's name leads."""

from dataclasses import dataclass

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.dataset import DatasetSpec
from tdcs.api.source_uri import AMAZON, canonical_endpoint
from tdcs.control.context import Stores, WorkKey
from tdcs.control.dataset.access.store_endpoints import Endpoints
from tdcs.decide.source_rules import judge_source
from tdcs.model.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """How it stands with the use of a source.

    Attributes:
        refused: why it may not be used; None while it may.
        settled: whether that stands: a name's address may be refused by a single false answer.
        unknown: why that cannot be said just now; None when it can.
        address: what the name of a store that no rule names stands for, where only that keeps its requests there:
            without TLS whoever answers is believed, so that a second lookup of the name must not decide.
    """

    refused: Problem | None = None
    settled: bool = True
    unknown: Problem | None = None
    address: str = ""

    @property
    def doubt(self) -> Problem | None:
        """Why nothing of the source is to be read now; None when it may be."""
        return self.refused or self.unknown


def source_permission(
    *,
    rules: CacheClusterSpec | None,
    stores: Stores,
    endpoints: Endpoints,
    services_known: bool,
    key: WorkKey,
    spec: DatasetSpec,
) -> Permission:
    """The permission of a Dataset. Waits for nothing: `endpoints` has it looked at when there is another answer.

    Args:
        rules: the spec of its CacheCluster; None while that cannot be read.
        endpoints: what is known of stores' names.
        services_known: whether the networks of Services are known: else any address may be a Service's.
    """
    namespace, name, source = key.namespace, spec.cache_cluster_ref.name, spec.source
    if rules is None:
        text = f"the spec of CacheCluster {name} cannot be read, so that no source is allowed: see its condition Ready"
        return Permission(unknown=Problem(reason="InvalidCacheCluster", message=text))
    labelled = stores.namespaces.get(("", namespace))
    labels = (labelled.get("metadata") or {}).get("labels") or {} if labelled is not None else None
    verdict = judge_source(
        rules=rules.sources,
        shared_folders=rules.source_folders,
        namespace=namespace,
        labels=labels,
        uri=source.uri,
        endpoint=source.options.endpoint,
        path_style=source.options.path_style,
        cluster=name,
    )
    if verdict.refusal is not None or not verdict.host or verdict.named:
        endpoints.forget(key)
    if verdict.refusal is not None:
        reason, message = verdict.refusal
        return Permission(refused=Problem(reason=reason, message=message))
    if not verdict.host or verdict.named:
        return Permission()
    answer = endpoints.look(verdict.host, user=key)
    where = f"{verdict.host} (spec.source.options.endpoint)"
    if not answer.known:
        text = f"{where} is being looked up, to see that it is not inside the cluster"
        return Permission(unknown=Problem(reason="EndpointLookup", message=text))
    if answer.failure:
        text = f"{where} has no address: {answer.failure}. Correct the endpoint, or see the cluster's DNS"
        return Permission(unknown=Problem(reason="EndpointUnknown", message=text))
    if answer.internal:
        text = (
            f"{where} has a {answer.internal} address, and no rule of CacheCluster {name} (spec.sources) names it for "
            f"namespace {namespace}: use another store, or ask its administrator for a rule that names the endpoint"
        )
        return Permission(
            refused=Problem(reason="EndpointNotAllowed", message=text),
            settled=answer.settled,
        )
    if canonical_endpoint(source.options.endpoint or AMAZON).scheme == "https":
        return Permission()
    if source.options.path_style is False:
        text = (
            f"{where} is asked without TLS, with the bucket in its name, and no rule of CacheCluster {name} "
            "(spec.sources) names the endpoint: use https, set spec.source.options.pathStyle to true, or ask the "
            "administrator for a rule"
        )
        return Permission(refused=Problem(reason="EndpointNotAllowed", message=text))
    if not services_known:
        text = (
            f"{where} is asked without TLS, and it cannot be seen whether its address is that of a Service: the API "
            "server names no networks of Services (ServiceCIDR, Kubernetes 1.33 and newer). Use https, or ask the "
            "administrator for a rule of "
            f"CacheCluster {name} (spec.sources) that names the endpoint, or for internalNetworks of the chart with "
            "the networks in kube-apiserver's --service-cluster-ip-range"
        )
        return Permission(unknown=Problem(reason="NetworksUnknown", message=text))
    return Permission(address=answer.address)
