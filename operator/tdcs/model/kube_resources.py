"""The Kubernetes resources that TDCS touches, as plain values.

A :class:`Resource` holds what is needed to build a REST path; nothing here does I/O. The list is also the
list of what the operator, the extender and the CSI plugin may need rights for.
"""

import re
from dataclasses import dataclass

from tdcs.api import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource type of the API server.

    Attributes:
        group: API group, empty for the core group.
        plural: the name in the URL, such as ``pods``.
        kind: the name in objects, such as ``Pod``.
        namespaced: whether its objects live in a namespace.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of the collection, or of one object when `name` is given.

        Without a namespace the collection of a namespaced resource spans all namespaces.

        Raises:
            ValueError: one object of a namespaced resource is asked for without its namespace, or by what is no name.
        """
        if name is not None and not is_name(name):
            raise ValueError(
                f"{name!r} is no name of a {self.kind}: in a path it could lead to another object"
            )
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} lives in a namespace, and none was given")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")


def is_name(text: str) -> bool:
    """Whether an object can have this name. What users refer to may be any text."""
    return _NAME.fullmatch(text) is not None


def _own(*, plural: str, kind: str) -> Resource:
    return Resource(group=names.GROUP, version=names.VERSION, plural=plural, kind=kind)


CACHE_CLUSTERS = _own(plural="cacheclusters", kind=names.KIND_CACHE_CLUSTER)
DATASETS = _own(plural="datasets", kind=names.KIND_DATASET)
PRELOADS = _own(plural="preloads", kind=names.KIND_PRELOAD)
TRAINING_JOBS = _own(plural="trainingjobs", kind=names.KIND_TRAINING_JOB)
DATA_CHECKS = Resource(
    group=names.GROUP,
    version=names.VERSION,
    plural="datachecks",
    kind=names.KIND_DATA_CHECK,
    namespaced=False,
)

# Of Kueue, 0.19 or later.
WORKLOADS = Resource(group="kueue.x-k8s.io", version="v1beta2", plural="workloads", kind="Workload")
ADMISSION_CHECKS = Resource(
    group="kueue.x-k8s.io",
    version="v1beta2",
    plural="admissionchecks",
    kind="AdmissionCheck",
    namespaced=False,
)
RESOURCE_FLAVORS = Resource(
    group="kueue.x-k8s.io",
    version="v1beta2",
    plural="resourceflavors",
    kind="ResourceFlavor",
    namespaced=False,
)
WORKLOAD_PRIORITY_CLASSES = Resource(
    group="kueue.x-k8s.io",
    version="v1beta2",
    plural="workloadpriorityclasses",
    kind="WorkloadPriorityClass",
    namespaced=False,
)

NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False)
NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
PODS = Resource(group="", version="v1", plural="pods", kind="Pod")
SERVICES = Resource(group="", version="v1", plural="services", kind="Service")
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap")
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret")
EVENTS = Resource(group="", version="v1", plural="events", kind="Event")
PERSISTENT_VOLUMES = Resource(
    group="", version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"
)
STATEFUL_SETS = Resource(group="apps", version="v1", plural="statefulsets", kind="StatefulSet")
DAEMON_SETS = Resource(group="apps", version="v1", plural="daemonsets", kind="DaemonSet")
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment")
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease")
JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job")
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io", version="v1", plural="priorityclasses", kind="PriorityClass", namespaced=False
)
RESOURCE_QUOTAS = Resource(group="", version="v1", plural="resourcequotas", kind="ResourceQuota")
RUNTIME_CLASSES = Resource(
    group="node.k8s.io", version="v1", plural="runtimeclasses", kind="RuntimeClass", namespaced=False
)
SERVICE_CIDRS = Resource(
    group="networking.k8s.io", version="v1", plural="servicecidrs", kind="ServiceCIDR", namespaced=False
)
SERVICE_CIDRS_BETA = Resource(
    group="networking.k8s.io", version="v1beta1", plural="servicecidrs", kind="ServiceCIDR", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
