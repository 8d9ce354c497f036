"""May a Dataset read its source now? Asked at each pass; the first no counts.

By the rules of its CacheCluster (`tdcs.decide.source_rules`), and by where the name of its store leads. Keys and volume
are asked for elsewhere (`control.dataset.access.credentials` and `volume_origins`), with the same kind of answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.dataset import DatasetSpec
from tdcs.api.source_uri import AMAZON, canonical_endpoint
from tdcs.decide.problem import RETRY_LATER, RETRY_SOON, Problem, Refusal
from tdcs.decide.source_rules import SourceVerdict, endpoint_field, judge_source
from tdcs.model.kube_objects import Object

ENDPOINT_NOT_ALLOWED: Final = "EndpointNotAllowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What is known of a host.

    Attributes:
        known: whether it was looked up; if not it is being looked up.
        address: one of its addresses, the same for as long as it has that; all of them are fit.
        internal: what kind of address it has that a source may not have; empty when all are fit.
        failure: why it has no address; empty when it has.
        settled: whether an address that is not fit counts for good: it was seen again and again.
    """

    known: bool = False
    address: str = ""
    internal: str = ""
    failure: str = ""
    settled: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceUse:
    """The use of a source by a Dataset.

    Attributes:
        namespace: of the Dataset.
        labels: of that namespace; None while they are not known.
        spec: of the Dataset.
        rules: the spec of its CacheCluster; None while that cannot be read.
        serves: whether pods read the Dataset's volume.
    """

    namespace: str
    labels: Mapping[str, str] | None
    spec: DatasetSpec
    rules: CacheClusterSpec | None
    serves: bool

    @property
    def cluster(self) -> str:
        """Name of the CacheCluster."""
        return self.spec.cache_cluster_ref.name

    @cached_property
    def verdict(self) -> SourceVerdict:
        if self.rules is None:
            text = (
                f"the spec of CacheCluster {self.cluster} cannot be read, so that no source is allowed: see its "
                "condition Ready"
            )
            return SourceVerdict(refusal=Refusal(reason="InvalidCacheCluster", message=text))
        return judge_source(
            rules=self.rules.sources,
            shared_folders=self.rules.source_folders,
            namespace=self.namespace,
            labels=self.labels,
            uri=self.spec.source.uri,
            endpoint=self.spec.source.endpoint,
            path_style=self.spec.source.options.path_style,
            cluster=self.cluster,
        )

    @property
    def host(self) -> str:
        """The host whose addresses decide, too; empty where the rules alone do."""
        verdict = self.verdict
        return "" if verdict.refusal is not None or verdict.named else verdict.host

    @property
    def is_plain(self) -> bool:
        """Whether requests go without TLS: whoever answers is believed."""
        return canonical_endpoint(self.spec.source.endpoint or AMAZON).scheme != "https"


def missing_cluster(cluster: Object | None, *, name: str, new: bool) -> Problem | None:
    """Why the cache cluster cannot hold a source: it is not there, or goes.

    Args:
        cluster: the CacheCluster; None when there is none.
        name: its name.
        new: whether the Dataset has not been mounted yet: a cache that is being deleted takes no new ones.
    """
    if cluster is None:
        return Problem(
            reason="CacheClusterNotFound",
            message=f"there is no CacheCluster {name} (spec.cacheClusterRef): create it, or create the "
            "Dataset again with the name of one that exists (kubectl get cacheclusters -A)",
            retry_after=RETRY_SOON,
            nothing_cached=True,
        )
    if new and cluster["metadata"].get("deletionTimestamp"):
        return Problem(
            reason="CacheClusterDeleting",
            message=f"CacheCluster {name} (spec.cacheClusterRef) is being deleted and takes no new Datasets: create "
            "the Dataset again with the name of another one, or wait until one of that name is created again",
            retry_after=RETRY_SOON,
        )
    return None


def unmountable(spec: DatasetSpec, cluster: CacheClusterSpec | None) -> Problem | None:
    """Why a cache cluster cannot hold a source; None where it can, or is not known.

    Args:
        cluster: the spec of the CacheCluster; None while that cannot be read.
    """
    if cluster is None or cluster.profile != "Stock":
        return None
    return Problem(
        reason="EngineCannotMount",
        message=f"CacheCluster {spec.cache_cluster_ref.name} (spec.cacheClusterRef) holds no Datasets: it has "
        "spec.profile Stock, which is there to compare Alluxio without TDCS. Create the Dataset again in a "
        "CacheCluster with the profile Tuned or with spec.engine Native",
        retry_after=RETRY_LATER,
    )


def may_read(use: SourceUse, *, answer: HostAnswer, networks_known: bool) -> Refusal | None:
    """Why the source may not be read; None when it may.

    Args:
        use: which source, by whom.
        answer: what is known of `use.host`.
        networks_known: whether the networks of Services are known: else any address may be a Service's.
    """
    if use.verdict.refusal is not None or not use.host:
        return use.verdict.refusal
    where = f"{use.host} ({endpoint_field(use.spec.source.uri.partition('://')[0].lower())})"
    rules = f"CacheCluster {use.cluster} (spec.sources)"
    if not answer.known:
        text = f"{where} is being looked up, to see that it is not inside the cluster"
        return Refusal(reason="EndpointLookup", message=text)
    if answer.failure:
        full = _service_name(use.host)
        service = f"; a Service is named in full, such as {full}" if full else ""
        text = f"{where} has no address: {answer.failure}. Correct the endpoint, or see the cluster's DNS{service}"
        return Refusal(reason="EndpointUnknown", message=text)
    if answer.internal:
        text = (
            f"{where} has a {answer.internal} address, and no rule of {rules} names it for namespace {use.namespace}: "
            "use another store, or ask its administrator for a rule that names the endpoint"
        )
        # A name's address may be refused by a single false answer: what serves waits for others.
        permanent = answer.settled or not use.serves
        return Refusal(reason=ENDPOINT_NOT_ALLOWED, message=text, permanent=permanent)
    if not use.is_plain:
        return None
    if use.spec.source.options.path_style is False:
        text = (
            f"{where} is asked without TLS, with the bucket in its name, and no rule of {rules} names the endpoint: "
            "use https, set spec.source.options.pathStyle to true, or ask the administrator for a rule"
        )
        return Refusal(reason=ENDPOINT_NOT_ALLOWED, message=text, permanent=True)
    if not networks_known:
        text = (
            f"{where} is asked without TLS, and it cannot be seen whether its address is that of a Service: the API "
            "server names no networks of Services (ServiceCIDR, Kubernetes 1.33 and newer). Use https, or ask the "
            f"administrator for a rule of {rules} that names the endpoint, or for internalNetworks of the chart with "
            "the networks in kube-apiserver's --service-cluster-ip-range"
        )
        return Refusal(reason="NetworksUnknown", message=text)
    return None


def _service_name(host: str) -> str:
    """The full name of a Service, for a host that may be one by its short name, which is known in no other namespace;
    empty where it is not. A name without a dot is refused before."""
    return f"{host}.svc" if host.count(".") == 1 else ""


def pinned_address(use: SourceUse, *, answer: HostAnswer) -> str:
    """The address to which requests go instead of to the store's name, where only that keeps them out of the cluster:
    without TLS a second lookup of the name must not decide. Empty: requests go to the name."""
    return answer.address if use.host and use.is_plain else ""
