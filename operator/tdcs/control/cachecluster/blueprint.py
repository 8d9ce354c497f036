"""What the objects of a cache cluster are made from, and what they are called."""

from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.kube.apply import owner_reference
from tdcs.model.kube_objects import Object
from tdcs.trust.settings import TrustSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything the children are made from.

    Attributes:
        owner: the CacheCluster object.
        spec: its parsed spec.
        image: the image when the spec names none.
        agent_image: the image of the agents.
        pull_secrets: Secrets of `namespace` with which it is pulled.
        trust: where certificates come from; None: there are none.
    """

    owner: Object
    spec: CacheClusterSpec
    namespace: str
    image: str
    agent_image: str
    pull_secrets: tuple[str, ...] = ()
    trust: TrustSettings | None = None

    @property
    def cluster(self) -> str:
        return str(self.owner["metadata"]["name"])

    @property
    def pulls(self) -> Object:
        """What of a pod's spec names the Secrets that its image is pulled with; empty when there are none."""
        secrets = [{"name": secret} for secret in self.pull_secrets]
        return {"imagePullSecrets": secrets} if secrets else {}

    @property
    def tier_path(self) -> str:
        """The folder of the blocks, on the nodes and in the pods alike."""
        return self.spec.storage.tiers[0].path or names.cache_path(cluster=self.cluster)

    @property
    def native(self) -> bool:
        """Whether the agents alone are the cache."""
        return self.spec.engine == "Native"

    @property
    def master_host(self) -> str:
        master = names.master_name(cluster=self.cluster)
        return f"{master}-0.{master}.{self.namespace}.svc"


def labels_of(*, cluster: str, component: str) -> dict[str, str]:
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_CACHE_CLUSTER: cluster,
        names.LABEL_COMPONENT: component,
    }


def metadata_of(plan: Blueprint, *, name: str, component: str) -> Object:
    return {
        "name": name,
        "namespace": plan.namespace,
        "labels": labels_of(cluster=plan.cluster, component=component),
        "ownerReferences": [owner_reference(plan.owner)],
    }
