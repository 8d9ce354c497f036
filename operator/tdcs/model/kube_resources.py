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


def _own(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(group=names.GROUP, version=names.VERSION, plural=plural, kind=kind, namespaced=namespaced)


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    """Of Kueue, 0.19 or later."""
    return Resource(
        group="kueue.x-k8s.io", version="v1beta2", plural=plural, kind=kind, namespaced=namespaced
    )


def _in_namespaces(plural: str, kind: str, *, group: str = "") -> Resource:
    return Resource(group=group, version="v1", plural=plural, kind=kind)


def _of_the_cluster(plural: str, kind: str, *, group: str = "", version: str = "v1") -> Resource:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=False)


CACHE_CLUSTERS = _own("cacheclusters", names.KIND_CACHE_CLUSTER)
DATASETS = _own("datasets", names.KIND_DATASET)
PRELOADS = _own("preloads", names.KIND_PRELOAD)
TRAINING_JOBS = _own("trainingjobs", names.KIND_TRAINING_JOB)
DATA_CHECKS = _own("datachecks", names.KIND_DATA_CHECK, namespaced=False)

WORKLOADS = _kueue("workloads", "Workload", namespaced=True)
ADMISSION_CHECKS = _kueue("admissionchecks", "AdmissionCheck")
RESOURCE_FLAVORS = _kueue("resourceflavors", "ResourceFlavor")
WORKLOAD_PRIORITY_CLASSES = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")

PODS = _in_namespaces("pods", "Pod")
POD_TEMPLATES = _in_namespaces("podtemplates", "PodTemplate")
SERVICES = _in_namespaces("services", "Service")
CONFIG_MAPS = _in_namespaces("configmaps", "ConfigMap")
SECRETS = _in_namespaces("secrets", "Secret")
SERVICE_ACCOUNTS = _in_namespaces("serviceaccounts", "ServiceAccount")
EVENTS = _in_namespaces("events", "Event")
PERSISTENT_VOLUME_CLAIMS = _in_namespaces("persistentvolumeclaims", "PersistentVolumeClaim")
RESOURCE_QUOTAS = _in_namespaces("resourcequotas", "ResourceQuota")
DEPLOYMENTS = _in_namespaces("deployments", "Deployment", group="apps")
STATEFUL_SETS = _in_namespaces("statefulsets", "StatefulSet", group="apps")
DAEMON_SETS = _in_namespaces("daemonsets", "DaemonSet", group="apps")
JOBS = _in_namespaces("jobs", "Job", group="batch")
POD_DISRUPTION_BUDGETS = _in_namespaces("poddisruptionbudgets", "PodDisruptionBudget", group="policy")
PROVISIONING_REQUESTS = _in_namespaces(
    "provisioningrequests", "ProvisioningRequest", group="autoscaling.x-k8s.io"
)
LEASES = _in_namespaces("leases", "Lease", group="coordination.k8s.io")
ENDPOINT_SLICES = _in_namespaces("endpointslices", "EndpointSlice", group="discovery.k8s.io")

NAMESPACES = _of_the_cluster("namespaces", "Namespace")
NODES = _of_the_cluster("nodes", "Node")
PERSISTENT_VOLUMES = _of_the_cluster("persistentvolumes", "PersistentVolume")
PRIORITY_CLASSES = _of_the_cluster("priorityclasses", "PriorityClass", group="scheduling.k8s.io")
RUNTIME_CLASSES = _of_the_cluster("runtimeclasses", "RuntimeClass", group="node.k8s.io")
SERVICE_CIDRS = _of_the_cluster("servicecidrs", "ServiceCIDR", group="networking.k8s.io")
SERVICE_CIDRS_BETA = _of_the_cluster(
    "servicecidrs", "ServiceCIDR", group="networking.k8s.io", version="v1beta1"
)
CSI_NODES = _of_the_cluster("csinodes", "CSINode", group="storage.k8s.io")
SELF_SUBJECT_ACCESS_REVIEWS = _of_the_cluster(
    "selfsubjectaccessreviews", "SelfSubjectAccessReview", group="authorization.k8s.io"
)
SELF_SUBJECT_REVIEWS = _of_the_cluster(
    "selfsubjectreviews", "SelfSubjectReview", group="authentication.k8s.io"
)
LOCAL_SUBJECT_ACCESS_REVIEWS = _in_namespaces(
    "localsubjectaccessreviews", "LocalSubjectAccessReview", group="authorization.k8s.io"
)
MUTATING_WEBHOOKS = _of_the_cluster(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", group="admissionregistration.k8s.io"
)
VALIDATING_WEBHOOKS = _of_the_cluster(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", group="admissionregistration.k8s.io"
)
CUSTOM_RESOURCE_DEFINITIONS = _of_the_cluster(
    "customresourcedefinitions", "CustomResourceDefinition", group="apiextensions.k8s.io"
)
