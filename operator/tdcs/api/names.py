"""Every name that users, tests and the parts of TDCS agree on, once.

Nothing but a hash is imported here, so every layer (decisions included) may read it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

# The API group and its kinds.
GROUP: Final = "tdcs.io"
VERSION: Final = "v1alpha2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND_CACHE_CLUSTER: Final = "CacheCluster"
KIND_DATASET: Final = "Dataset"
KIND_PRELOAD: Final = "Preload"
KIND_TRAINING_JOB: Final = "TrainingJob"
KIND_DATA_CHECK: Final = "DataCheck"

# Where the parts run and what they are called.
SYSTEM_NAMESPACE: Final = "tdcs-system"
SCHEDULER_NAME: Final = "tdcs-scheduler"
OPERATOR_ACCOUNT: Final = "tdcs-operator"
SECRETS_ROLE: Final = "tdcs-dataset-secrets"
IDENTITY_ROLE: Final = "tdcs-identity"
ANNOTATION_SHARE_WEIGHT: Final = f"{GROUP}/share-weight"
"""Annotation of a namespace: how large its share of the cluster is next to those of others, such as 2; 1 without it."""
ANNOTATION_QUEUE_STOP: Final = f"{GROUP}/queue-stop-policy"
"""Annotation of a namespace, in Kueue's words. Hold: no TrainingJob of it starts. HoldAndDrain: those that run are
suspended, too, and queue again."""

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of a job: the LocalQueue that it waits in."""

KUEUE_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
"""Annotation of a Workload, at its creation only: whoever is named has to take it away before Kueue looks at it."""

KUEUE_CONTROLLER: Final = "tdcs.io/data"
"""Of AdmissionChecks of Kueue: who answers those for data."""
CSI_DRIVER: Final = "csi.tdcs.io"
AUDIT_LOG: Final = "tdcs.audit"
"""The logger of who was given what: sources and volumes to Datasets, volumes to pods."""
LOG_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""A line of the log of each process; the operator's is the same in JSON, unless it is to be plain."""
FIELD_MANAGER: Final = "tdcs"
DEFAULT_CACHE_CLUSTER: Final = "default"
GPU_RESOURCE: Final = "nvidia.com/gpu"
CLONE_COPY: Final = "clone-"
"""How the ids of copies begin that `spec.access` made."""

PRELOADED_COPY: Final = "preloads"
"""Among the copies in a Dataset's status: what is on the nodes to which its Preloads brought some of it."""

# Annotations, labels, finalizers.
ANNOTATION_DATASETS: Final = "tdcs.io/datasets"
"""On a pod: JSON list of ``{"dataset": "ns/name", "copy": "0", "readers": "0-2"}``; the extender reads it. Without
``readers`` every pod reads the dataset, else those with these completion indices."""
ANNOTATION_LEAVE_NODES: Final = "tdcs.io/leave-nodes"
"""On a pod: ``{"nodes": ["n1"], "until": "2026-01-01T00:00:00Z"}``, nodes that larger pods wait for; until then the
extender places the pod there only when it has no other candidate."""
ANNOTATION_DATA_AFFINITY: Final = "tdcs.io/data-affinity"
"""On a pod that mounts a Dataset's claim: its own scheduler places it, and it gets node affinity to its data, as
``preferred`` or ``required``."""
ANNOTATION_PREDICTED: Final = "tdcs.io/predicted-seconds"
"""On a TrainingJob: how long it runs, as `tdcs plan` predicted. Its status says in the end how wrong that was."""
ANNOTATION_SPEC_DIGEST: Final = "tdcs.io/spec-digest"
"""On a Job: digest of what its TrainingJob asked for when it was made, of all that a waiting job may change."""
ANNOTATION_GANG: Final = "tdcs.io/gang"
"""On a Job: whether its TrainingJob was a gang (spec.scheduling.gang) when it was made."""
ANNOTATION_ENDED: Final = "tdcs.io/ended"
"""On a TrainingJob that has ended: how, when, and as which object; a backup without its status knows it by this."""
ANNOTATION_RESTART_ATTEMPT: Final = "tdcs.io/restart-attempt"
"""On a Job and its pods: how often all pods of the TrainingJob had been restarted when it was made."""
ANNOTATION_CONFIG_HASH: Final = "tdcs.io/config-hash"
"""On a pod template: digest of the configuration it was started with, so that a change restarts it."""
ANNOTATION_REFRESH: Final = "tdcs.io/refresh"
"""On a Dataset: any new value has its source listed for changes at once."""
ANNOTATION_ACCEPT_LOSS: Final = "tdcs.io/accept-loss"
"""On a Dataset: the digest of the version that is served. What its source has lost since is right, and is taken over;
of any other version it says nothing."""
ANNOTATION_NODE: Final = "tdcs.io/node"
"""On a cache worker's StatefulSet: the node it is for, in full (a label would be too short for some)."""
ANNOTATION_DRAINING: Final = "tdcs.io/draining-since"
"""On a cache worker's StatefulSet: when its worker began to hand its data to others, because it leaves."""
ANNOTATION_WANTED: Final = "tdcs.io/wanted-since"
"""On a cache worker's StatefulSet: when its worker was wanted again after it had begun to leave."""
ANNOTATION_VOLUME_BOUND: Final = "tdcs.io/volume-bound"
"""On the claim of a Dataset: its volume was bound before it was."""
ANNOTATION_RESTARTED: Final = "tdcs.io/restarted"
"""On the pod template of a cache worker: when it was last to be started again; a new value does that."""
LABEL_PLACE_BY_DATA: Final = "tdcs.io/place-by-data"
"""On a pod: "false" leaves its placement to its own scheduler, without regard to what it mounts."""
TARGET: Final = f"{GROUP}/target"
"""On a pod template of a TrainingJob, as an annotation or a label: the processor that its code is for. On a node, as a
label: the best one that it can run."""
LABEL_TRAINING_JOB: Final = "tdcs.io/training-job"
LABEL_ROLE: Final = "tdcs.io/role"
LABEL_CACHE_CLUSTER: Final = "tdcs.io/cache-cluster"
LABEL_COMPONENT: Final = "tdcs.io/component"
LABEL_NODE: Final = "tdcs.io/node"
LABEL_DATASET_NAMESPACE: Final = "tdcs.io/dataset-namespace"
LABEL_DATASET_NAME: Final = "tdcs.io/dataset-name"
LABEL_DATASET_UID: Final = "tdcs.io/dataset-uid"
"""On a PersistentVolume: the Dataset that it was made for, so that a later one of the same name inherits nothing."""
LABEL_CERTIFICATE: Final = "tdcs.io/certificate"
"""On a Secret with a certificate that the operator has made: the role in it."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "tdcs"
ANNOTATION_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
FINALIZER: Final = "tdcs.io/finalizer"

# Components of a cache cluster (value of LABEL_COMPONENT).
COMPONENT_MASTER: Final = "master"
COMPONENT_WORKER: Final = "worker"
COMPONENT_FUSE: Final = "fuse"
COMPONENT_CLAIM_SERVER: Final = "claim-server"
"""Of pods in namespaces of Datasets, which serve a PersistentVolumeClaim that is a source."""
LABEL_SERVED_CLAIM: Final = "tdcs.io/served-claim"
"""On the Job of such a pod: a digest of the folder that it serves, and of which claim."""
LABEL_SERVED_BY: Final = "tdcs.io/served-by"
"""On the same: the operator's process that made it, and knows its token."""
COMPONENT_AGENT: Final = "agent"
"""Of a container in a worker's pod; it is no pod of its own."""

# Paths on every node (hostPath) and in the engine's namespace.
NODE_STATE_DIR: Final = "/var/lib/tdcs"
FUSE_ROOT: Final = f"{NODE_STATE_DIR}/fuse"
CACHE_ROOT: Final = f"{NODE_STATE_DIR}/cache"
CACHE_USER: Final = 65532
"""Of master, workers and agents: a number that no user of the image has, nor needs to have."""
READER_USER: Final = 65531
"""Of the remote-read client: another one, for its pod sees the node's processes, and could read the memory of those of
its own user."""
READER_ROOT: Final = f"{NODE_STATE_DIR}/reader"
"""What the remote-read client keeps on a node: registrations, its socket, and where its file system is mounted."""
READER_VERSIONS: Final = "versions"
"""Below it: a file for each version that the node plugin has registered, named CLUSTER.DIGEST."""
READER_MOUNT: Final = "mnt"
"""Below it: the file system, with a folder for each of them."""
READER_SOCKET: Final = "holder.sock"
"""Next to it: the socket of the process that holds the session."""
READER_FILE_SYSTEM: Final = "fuse.tdcs"
"""Its type, as /proc/self/mountinfo has it."""
READER_NUMBERED: Final = "@"
"""What follows a version's name in the reader's file system, where it has the files by their numbers."""
BLOCK_FOLDER: Final = "alluxioworker"
"""Below a tier's folder: where Alluxio's worker keeps its blocks (alluxio.worker.data.folder)."""
AGENT_FOLDER: Final = "agent"
"""Below a tier's folder: what the cache agent keeps (spool, manifests, assignments, epoch)."""
OWN_BLOCK_IDS: Final = "own"
"""What the file `epoch` in it says: blocks are named by ids of TDCS's own, made of what the files are."""
AGENT_BOOT: Final = f"{AGENT_FOLDER}/boot"
"""Below a tier: the run of the kernel (its boot id) in which the agent last made the store ready."""
AGENT_SPOOL: Final = f"{AGENT_FOLDER}/spool"
"""Below a tier's folder: blocks that the agent has verified, each of which is all of its file."""
AGENT_PARTS: Final = f"{AGENT_FOLDER}/parts"
"""Below a tier's folder: files of several blocks of which some are here, named by their first block."""
AGENT_WHOLE: Final = f"{AGENT_FOLDER}/whole"
"""Below a tier's folder: such files of which all blocks are here. They do not change any more."""
AGENT_EXTENTS: Final = f"{AGENT_FOLDER}/extents"
"""Below a tier's folder: a table for each of both, which says what it is and which of its blocks are here."""
AGENT_KEPT: Final = f"{AGENT_FOLDER}/kept"
"""Below a tier's folder: blocks that say what they are and have no id yet."""
AGENT_FACTS: Final = f"{AGENT_FOLDER}/facts"
"""Below a tier: what files say of themselves, where the file system keeps no attributes."""
AGENT_MANIFESTS: Final = f"{AGENT_FOLDER}/manifests"
"""Below a tier's folder: the manifests that the agent works by, named by their digests."""
AGENT_REFUSED: Final = f"{AGENT_FOLDER}/refused"
"""Below a tier: a folder of each mount (`refused_folder`) with an empty file for each block that was found wrong, named
as the block."""
VIEWS_FOLDER: Final = "views"
"""Below a tier's folder: the native views of the node plugin."""
ENGINE_DATASETS_ROOT: Final = "/datasets"

# Alluxio's ports (its defaults).
MASTER_RPC_PORT: Final = 19998
MASTER_WEB_PORT: Final = 19999
WORKER_RPC_PORT: Final = 29999
WORKER_WEB_PORT: Final = 30000

# Ports of the cache agent, in the worker's pod: HTTP for the operator, raw TCP for blocks.
AGENT_CONTROL_PORT: Final = 29990
AGENT_BLOCK_PORT: Final = 29991

# The operator's HTTP service of manifests, for agents and node plugins.
MANIFEST_PORT: Final = 8082
CLAIM_PORT: Final = 8443

# volumeAttributes of a Dataset's PersistentVolume, for the node plugin.
VOLUME_CLUSTER: Final = "cluster"
VOLUME_PATH: Final = "path"
VOLUME_TIERS: Final = "tiers"
"""Folders of the cache's blocks on the nodes, comma-separated, that for the views first; absent: the default one."""

# Keys of a Dataset's Secret.
SECRET_ACCESS_KEY_ID: Final = "accessKeyId"  # noqa: S105 - the key's name, not a secret
SECRET_SECRET_ACCESS_KEY: Final = "secretAccessKey"  # noqa: S105 - the key's name, not a secret
SECRET_SESSION_TOKEN: Final = "sessionToken"  # noqa: S105 - the key's name, not a secret
SECRET_TOKEN: Final = "token"  # noqa: S105 - the key's name, not a secret
SECRET_ACCOUNT_KEY: Final = "accountKey"  # noqa: S105 - the key's name, not a secret
SECRET_SAS_TOKEN: Final = "sasToken"  # noqa: S105 - the key's name, not a secret
SECRET_KEY_FILE: Final = "key.json"  # noqa: S105 - the key's name, not a secret
SECRET_USERNAME: Final = "username"  # noqa: S105 - the key's name, not a secret
SECRET_PASSWORD: Final = "password"  # noqa: S105 - the key's name, not a secret

# Ports of the extender: for kube-scheduler, and for the API server's admission of pods.
EXTENDER_PORT: Final = 8900
WEBHOOK_PORT: Final = 8902

CLAIM_LIST: Final = "tdcs-claims"
"""The ConfigMap with the claims of all Datasets, each as a key ``namespace.name``: the admission policy reads it."""

# Defaults.
DEFAULT_IMAGE: Final = "tdcs/alluxio:dev"
DEFAULT_AGENT_IMAGE: Final = "tdcs/tdcs:dev"
DEFAULT_TIER_CAPACITY: Final = "10Gi"
METRICS_PREFIX: Final = "tdcs_"

# Condition types.
READY: Final = "Ready"
PROGRESSING: Final = "Progressing"
MOUNTED: Final = "Mounted"
LOADED: Final = "Loaded"
PLACED: Final = "Placed"
GRANTED: Final = "Granted"
FOLLOWS_JOBS: Final = "FollowsJobs"
WITHIN_QUOTAS: Final = "WithinQuotas"
TRUSTED: Final = "Trusted"
NETWORK_ISOLATED: Final = "NetworkIsolated"
EXPORTED: Final = "Exported"
SOURCE_REACHABLE: Final = "SourceReachable"
COMPLETE: Final = "Complete"
SUSPENDED: Final = "Suspended"
DATA_READY: Final = "DataReady"
ADMITTED: Final = "Admitted"
QUEUED: Final = "Queued"
NODES_REQUESTED: Final = "NodesRequested"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

# Names of children: each derives from its owner alone, so that a retry finds what an earlier try made.


def volume_name(*, namespace: str, dataset: str) -> str:
    """Name of the PersistentVolume of a Dataset (cluster scope, hence with the namespace)."""
    return f"tdcs.{namespace}.{dataset}"


def volume_owner(volume: str) -> tuple[str, str] | None:
    """Namespace and name of the Dataset whose PersistentVolume has this name; None for any other volume."""
    parts = volume.split(".")  # neither of the two names has dots
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "tdcs" else None


def master_name(*, cluster: str) -> str:
    return f"{cluster}-master"


def cache_cluster_of(dataset: Mapping[str, Any]) -> str:
    """Name of the CacheCluster that holds the data of a Dataset, given as JSON."""
    return str(_reference(dataset, "cacheClusterRef").get("name", DEFAULT_CACHE_CLUSTER))


def follows_jobs(cluster: Mapping[str, Any] | None) -> bool:
    scaling = ((cluster or {}).get("spec") or {}).get("scaling") or {}
    return bool(scaling.get("followJobs"))


def dataset_of(preload: Mapping[str, Any]) -> str:
    """Name of the Dataset that a Preload is about, given as JSON; empty where it says none."""
    return str(_reference(preload, "datasetRef").get("name", ""))


def source_dataset_of(dataset: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of the Dataset whose source a Dataset reads, given as JSON; empty texts where it has a source
    of its own."""
    source = _reference(dataset, "source").get("datasetRef")
    reference = source if isinstance(source, Mapping) else {}
    return str(reference.get("namespace", "")), str(reference.get("name", ""))


def _reference(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """A reference of a spec; empty where there is none, or something else stands there."""
    spec = obj.get("spec")
    reference = spec.get(field) if isinstance(spec, Mapping) else None
    return reference if isinstance(reference, Mapping) else {}


def master_address(*, cluster: str, namespace: str) -> str:
    master = master_name(cluster=cluster)
    return f"{master}-0.{master}.{namespace}.svc:{MASTER_RPC_PORT}"


def workers_service_name(*, cluster: str) -> str:
    """Name of the headless Service that gives every cache worker a stable DNS name."""
    return f"{cluster}-workers"


def worker_set_name(*, cluster: str, node: str) -> str:
    """Name of the StatefulSet that holds the one cache worker of a node; at most 52 characters.

    (The name of a revision, which adds 11 characters, must fit a label.)
    """
    return f"{cluster}-worker-{node_slug(node, limit=52 - len(cluster) - len('-worker-'))}"


def worker_host(*, cluster: str, node: str, namespace: str) -> str:
    """DNS name of the pod of a node's cache worker, and so of its agent."""
    pod = f"{worker_set_name(cluster=cluster, node=node)}-0"
    return f"{pod}.{workers_service_name(cluster=cluster)}.{namespace}.svc"


def node_slug(node: str, *, limit: int = 63) -> str:
    """A node's name as a DNS label of at most `limit` characters; the name itself when it is one."""
    return dns_label(node, limit=limit)


def dns_label(text: str, *, limit: int = 63) -> str:
    """A DNS subdomain as a DNS label of at most `limit` characters: itself when it is one, else with a hash of
    the whole, so that two texts with the same beginning stay apart."""
    if len(text) <= limit and "." not in text:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text.replace('.', '-')[: limit - 9].strip('-')}-{digest}"


def refused_folder(*, mount: str) -> str:
    """Where the agent notes the wrong blocks of a mount, below a tier: neither it nor the node plugin reads those."""
    return f"{AGENT_REFUSED}/{mount_digest(mount)}"


def mount_digest(mount: str) -> str:
    """How what is on a disk names a mount: 32 hexadecimal digits."""
    return hashlib.sha256(mount.encode()).hexdigest()[:32]


def last_copies_name(*, cluster: str) -> str:
    """Name of the PodDisruptionBudget of the workers that hold what no other one holds."""
    return f"{cluster}-last-copies"


def fuse_name(*, cluster: str) -> str:
    return f"{cluster}-fuse"


def config_name(*, cluster: str) -> str:
    return f"{cluster}-properties"


def mounts_name(*, cluster: str) -> str:
    """Name of the ConfigMap with what a cache cluster without a master has mounted."""
    return f"{cluster}-mounts"


def fuse_mount_point(*, cluster: str) -> str:
    """Where, on every node, the whole namespace of a cache cluster is mounted."""
    return f"{FUSE_ROOT}/{cluster}"


def cache_path(*, cluster: str) -> str:
    """Default folder of a node for the blocks of a cache cluster."""
    return f"{CACHE_ROOT}/{cluster}"


def role_job_name(*, job: str, role: str) -> str:
    """Name of the Indexed Job of a TrainingJob's role; its pods' host names are this and their index."""
    return f"{job}-{role.lower()}"
