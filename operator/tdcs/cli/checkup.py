"""What a user, a namespace and a cluster lack for training jobs, from what was read of them."""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tdcs.api import names
from tdcs.cli.explain.listed_objects import CLUSTER_VIEW, EDIT
from tdcs.cli.explain.operator_lease import silence
from tdcs.cli.identity_checkup import REASONS as REASONS_OF_IDENTITIES
from tdcs.cli.identity_checkup import Accounts, IdentityFinding, identity_checkup
from tdcs.cli.problems import problems
from tdcs.cli.webhook_checkup import Webhooks, webhook_checkup
from tdcs.decide.worker_nodes import gpus
from tdcs.model.humanize import counted
from tdcs.model.job_pods import quoted_from_kubelet
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import amount

Right = tuple[str, str]
"""A verb, and the plural of what it is about."""

IN_NAMESPACE: Final[Mapping[Right, str]] = {
    ("create", "trainingjobs"): EDIT,
    ("list", "trainingjobs"): EDIT,
    ("create", "datasets"): EDIT,
    ("list", "datasets"): EDIT,
    ("create", "secrets"): "edit",
    ("list", "pods"): EDIT,
    ("get", "pods/log"): EDIT,
    ("list", "events"): EDIT,
}
"""What somebody needs who trains in a namespace, and the ClusterRole that gives it there."""

IN_CLUSTER: Final[Mapping[Right, str]] = {
    ("list", "cacheclusters"): CLUSTER_VIEW,
    ("list", "nodes"): CLUSTER_VIEW,
}
"""The same for what is in no namespace of theirs: without it the commands say less."""

KEYS: Final = ("accessKeyId", "secretAccessKey")

OLD_KERNEL: Final = (5, 12)
"""Nodes with an older kernel mount volumes by older calls."""

OVERLAY_KERNEL: Final = (6, 5)
"""From this one on, what is on a node is read without a process of TDCS between."""

NAMED: Final = 5
"""So many nodes or Datasets are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckupFinding:
    """One thing that was looked at.

    Attributes:
        about: whom it is about.
        state: lacks: somebody must do something; unknown: it could not be looked at; note: it works, otherwise.
        text: what is there or lacks, and what to do.
    """

    about: Literal["You", "Namespace", "Cluster"]
    state: Literal["ok", "lacks", "note", "unknown"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was read. None: it may not be read.

    Attributes:
        rights: whether the user has each right.
        user: the user's name, as the API server knows it; empty: it does not say.
        home: the Namespace; None: unknown.
        is_there: whether there is such a namespace, as far as that is known.
        installed: whether the cluster knows the kinds of TDCS.
        secrets: the fields of each Secret that a Dataset names; None: there is no such Secret.
        accounts: what was read of the ServiceAccounts that Datasets name.
        drivers: the names of nodes with the driver of TDCS's volumes.
        pod_refusal: why the namespace takes no plain pod; empty: it does.
        plugins: the pods of the node plugin, and of what holds the FUSE sessions of nodes.
        webhooks: what was read of webhooks; None: nothing was.
    """

    namespace: str
    now: str
    rights: Mapping[Right, bool] = field(default_factory=dict)
    user: str = ""
    home: Object | None = None
    is_there: bool = True
    installed: bool = True
    datasets: Sequence[Object] | None = None
    jobs: Sequence[Object] | None = None
    secrets: Mapping[str, frozenset[str] | None] | None = None
    accounts: Accounts = field(default_factory=Accounts)
    quotas: Sequence[Object] | None = None
    clusters: Sequence[Object] | None = None
    nodes: Sequence[Object] | None = None
    drivers: frozenset[str] | None = None
    lease: Object | None = None
    pod_refusal: str | None = None
    plugins: Sequence[Object] | None = None
    webhooks: Webhooks | None = None


def checkup(checked: Checked) -> list[CheckupFinding]:
    """All that was looked at, the user first."""
    return [*_user(checked), *_namespace(checked), *_cluster(checked)]


def _user(checked: Checked) -> Iterator[CheckupFinding]:
    subject = subject_option(checked.user)
    missing_rights = [right for right in (*IN_NAMESPACE, *IN_CLUSTER) if checked.rights.get(right) is False]
    for verb, plural in missing_rights:
        role = IN_NAMESPACE.get((verb, plural))
        if role is not None:
            remedy = f"kubectl create rolebinding NAME -n {checked.namespace} --clusterrole={role} {subject}"
            who = "an administrator runs"
            if plural == "secrets":
                who = "let somebody with this right create those that Datasets name, or have an administrator run"
            place = f"in namespace {checked.namespace}"
            text = f"you may not {verb} {plural} {place}: {who} {remedy}"
        else:
            role = IN_CLUSTER[verb, plural]
            remedy = f"kubectl create clusterrolebinding NAME --clusterrole={role} {subject}"
            text = f"you may not {verb} {plural}, so commands show less of the cluster: an administrator runs {remedy}"
        needed = (verb, plural) in IN_NAMESPACE and plural != "secrets"
        yield CheckupFinding(about="You", state="lacks" if needed else "note", text=text)
    if checked.rights and not missing_rights:
        yield CheckupFinding(about="You", state="ok", text="you have the rights that all commands need")
    if not checked.rights:
        yield CheckupFinding(
            about="You", state="unknown", text="the API server does not say which rights you have"
        )


def subject_option(user: str) -> str:
    """What names a user in kubectl create rolebinding; YOU in place of one that is not known. A ServiceAccount has an
    option of its own, since the one for users takes its name and binds nobody.
    """
    account = user.removeprefix("system:serviceaccount:")
    if account != user and account.count(":") == 1:
        return f"--serviceaccount={account}"
    return f"--user={shlex.quote(user) if user else 'YOU'}"


def _namespace(checked: Checked) -> Iterator[CheckupFinding]:
    if not checked.is_there:
        text = f"there is no namespace {checked.namespace}: kubectl create namespace {checked.namespace}"
        yield CheckupFinding(about="Namespace", state="lacks", text=text)
        return
    metadata = (checked.home or {}).get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        text = f"namespace {checked.namespace} is being deleted: nothing can be made in it"
        yield CheckupFinding(about="Namespace", state="lacks", text=text)
    level = (metadata.get("labels") or {}).get("pod-security.kubernetes.io/enforce")
    if level == "restricted":
        text = (
            "it enforces the Pod Security level restricted: templates need runAsNonRoot, allowPrivilegeEscalation: "
            "false, capabilities.drop [ALL] and a seccompProfile; the volumes of Datasets are allowed"
        )
        yield CheckupFinding(about="Namespace", state="note", text=text)
    identities = list(_identities(checked))
    lacks = [
        *_secrets(checked),
        *(CheckupFinding(about="Namespace", state=one.state, text=one.text) for one in identities),
        *_quotas(checked),
        *_dataset_problems(checked, explained=_explained(identities)),
        *_plain_pod(checked),
        *_refused_pods(checked),
    ]
    yield from lacks
    if checked.datasets is None:
        text = f"its Datasets may not be listed: bind ClusterRole {EDIT} to you"
        yield CheckupFinding(about="Namespace", state="unknown", text=text)
    elif not lacks:
        counted_datasets = counted(len(checked.datasets), "Dataset")
        text = f"{counted_datasets}, each with its Secret or ServiceAccount; no quota is used up"
        yield CheckupFinding(about="Namespace", state="ok", text=text)


def _secrets(checked: Checked) -> Iterator[CheckupFinding]:
    users: dict[str, list[str]] = {}
    may_read = checked.secrets is not None
    for dataset in checked.datasets or ():
        if not may_read and _operator_says(dataset):
            continue
        name = (((dataset.get("spec") or {}).get("source") or {}).get("secretRef") or {}).get("name")
        if name:
            users.setdefault(str(name), []).append(dataset["metadata"]["name"])
    if users and not may_read:
        text = f"whether Secret {', '.join(sorted(users)[:NAMED])} has its keys is unknown: you may not read Secrets"
        yield CheckupFinding(about="Namespace", state="unknown", text=text)
        return
    for secret, datasets in sorted(users.items()):
        fields = (checked.secrets or {}).get(secret)
        missing = [key for key in KEYS if fields is None or key not in fields]
        if not missing:
            continue
        shortage = "there is no" if fields is None else f"{' and '.join(missing)} {_are(missing)} missing in"
        of = ", ".join(sorted(datasets)[:NAMED])
        text = (
            f"{shortage} Secret {secret}, which Dataset {of} names: kubectl create secret generic {secret} -n "
            f"{checked.namespace} --from-literal=accessKeyId=... --from-literal=secretAccessKey=..."
        )
        yield CheckupFinding(about="Namespace", state="lacks", text=text)


def _operator_says(dataset: Object) -> bool:
    """Whether the operator, which reads the Secret, says of it that it serves, or what it lacks."""
    return any(
        condition.get("reason") in _LACKS_OF_DATASETS
        or (condition.get("type") == names.SOURCE_REACHABLE and condition.get("status") == "True")
        for condition in _conditions(dataset)
    )


_LACKS_OF_DATASETS: Final = frozenset({"SecretNotFound", "SecretIncomplete"})
"""Reasons of which `_secrets` says more."""


def _identities(checked: Checked) -> Iterator[IdentityFinding]:
    labels = None if checked.home is None else checked.home["metadata"].get("labels") or {}
    yield from identity_checkup(
        checked.accounts,
        datasets=checked.datasets or (),
        clusters=checked.clusters,
        namespace=checked.namespace,
        labels=labels,
    )


def _explained(identities: Sequence[IdentityFinding]) -> frozenset[str]:
    """The Datasets whose identity lacks something that is said already."""
    return frozenset(title for one in identities if one.state == "lacks" for title in one.datasets)


def _dataset_problems(checked: Checked, *, explained: frozenset[str]) -> Iterator[CheckupFinding]:
    """What the operator says of Datasets that need a person: a binding, a rule, a CA, a quota that refuses a claim."""
    other_datasets = []
    for dataset in checked.datasets or ():
        reasons = {condition.get("reason") for condition in _conditions(dataset)}
        explained_reasons = _LACKS_OF_DATASETS if checked.secrets is not None else frozenset[str]()
        if dataset["metadata"]["name"] in explained:
            explained_reasons |= REASONS_OF_IDENTITIES
        if not explained_reasons & reasons:
            other_datasets.append(dataset)
    for problem in itertools.islice(problems({"Dataset": other_datasets}, now=checked.now), NAMED):
        yield CheckupFinding(
            about="Namespace", state="lacks", text=f"Dataset {problem.name}: {problem.message}"
        )


_REFUSED: Final = frozenset({"ChildNotMade", "ChildRefused", "FailedCreate"})
"""Reasons of jobs whose pods the namespace does not take: its Pod Security level, a webhook, a quota."""


def _plain_pod(checked: Checked) -> Iterator[CheckupFinding]:
    """What the namespace would answer to a pod, asked before a job's pods are made."""
    if not checked.pod_refusal:
        return
    if "webhook" in checked.pod_refusal:
        text = f"a webhook keeps pods from being made: {checked.pod_refusal}; see its Deployment, or ask its owner"
        yield CheckupFinding(about="Namespace", state="lacks", text=text)
    else:
        text = f"a plain pod would be refused: {checked.pod_refusal}; write the templates of jobs accordingly"
        yield CheckupFinding(about="Namespace", state="note", text=text)


def _refused_pods(checked: Checked) -> Iterator[CheckupFinding]:
    refused = [job for job in checked.jobs or () if (job.get("status") or {}).get("reason") in _REFUSED]
    for job in refused[:NAMED]:
        text = f"pods of TrainingJob {job['metadata']['name']} are refused: {job['status'].get('message')}"
        yield CheckupFinding(about="Namespace", state="lacks", text=text)


def _conditions(obj: Object) -> Sequence[Object]:
    return (obj.get("status") or {}).get("conditions") or ()


def _are(many: Sequence[str]) -> str:
    return "is" if len(many) == 1 else "are"


def _quotas(checked: Checked) -> Iterator[CheckupFinding]:
    for quota in checked.quotas or ():
        status = quota.get("status") or {}
        used, hard = status.get("used") or {}, status.get("hard") or {}
        full = sorted(
            name
            for name, limit in hard.items()
            if _size(name, limit) > 0 and _size(name, used.get(name, 0)) >= _size(name, limit)
        )
        if full:
            text = (
                f"ResourceQuota {quota['metadata']['name']} is used up: {', '.join(full)}; jobs wait until others "
                "end, or for a larger quota"
            )
            yield CheckupFinding(about="Namespace", state="lacks", text=text)


def _size(name: str, quantity: object) -> int:
    return amount(name.removeprefix("requests.").removeprefix("limits."), quantity)


def _cluster(checked: Checked) -> Iterator[CheckupFinding]:
    if not checked.installed:
        text = (
            "it does not know TrainingJobs: helm install tdcs charts/tdcs -n tdcs-system --create-namespace"
        )
        yield CheckupFinding(about="Cluster", state="lacks", text=text)
        return
    if silent := silence(checked.lease, now=checked.now):
        yield CheckupFinding(about="Cluster", state="lacks", text=f"no operator works: {silent}")
    yield from _caches(checked)
    yield from _nodes(checked)
    yield from _fuse(checked)
    if checked.webhooks is not None:
        labels = None if checked.home is None else checked.home["metadata"].get("labels") or {}
        for state, text in webhook_checkup(
            checked.webhooks, namespace=checked.namespace, labels=labels, now=checked.now
        ):
            yield CheckupFinding(about="Cluster", state=state, text=text)


def _caches(checked: Checked) -> Iterator[CheckupFinding]:
    if checked.clusters is None:
        yield CheckupFinding(about="Cluster", state="unknown", text="CacheClusters may not be listed")
    elif not checked.clusters:
        text = "there is no CacheCluster: create one in tdcs-system, or set cacheCluster.create in the chart"
        yield CheckupFinding(about="Cluster", state="lacks", text=text)
    for cluster in checked.clusters or ():
        name = cluster["metadata"]["name"]
        ready: Object = next(
            (condition for condition in _conditions(cluster) if condition.get("type") == names.READY), {}
        )
        if ready.get("status") == "True":
            yield CheckupFinding(
                about="Cluster", state="ok", text=f"CacheCluster {name}: {ready.get('message')}"
            )
        else:
            why = ready.get("message") or "the operator has not looked at it yet"
            yield CheckupFinding(
                about="Cluster", state="lacks", text=f"CacheCluster {name} is not ready: {why}"
            )
        for type_ in (names.TRUSTED, names.NETWORK_ISOLATED):
            condition: Object = next(
                (condition for condition in _conditions(cluster) if condition.get("type") == type_), {}
            )
            if condition.get("status") == "False":
                text = f"CacheCluster {name}: {condition.get('message')}"
                yield CheckupFinding(about="Cluster", state="lacks", text=text)


def _nodes(checked: Checked) -> Iterator[CheckupFinding]:
    if checked.nodes is None:
        text = "nodes may not be listed: their kernels, taints and GPUs are unknown"
        yield CheckupFinding(about="Cluster", state="unknown", text=text)
        return
    with_gpus = {node["metadata"]["name"]: node for node in checked.nodes if gpus(node)}
    if checked.drivers is None:
        text = "which nodes have the node plugin of TDCS is unknown: you may not list csinodes.storage.k8s.io"
        yield CheckupFinding(about="Cluster", state="unknown", text=text)
    elif without := sorted(with_gpus.keys() - checked.drivers):
        taints = sorted(
            {
                f"{taint.get('key')}:{taint.get('effect')}"
                for name in without
                for taint in (with_gpus[name].get("spec") or {}).get("taints") or ()
                if taint.get("effect") != "PreferNoSchedule"
            }
        )
        why = f"; they have the taints {', '.join(taints)} (chart value csi.tolerations)" if taints else ""
        why += _stuck_plugins(checked.plugins or (), without)
        text = (
            f"{counted(len(without), 'node')} with GPUs ({_first(without)}) {_have(without)} no node plugin of TDCS, "
            f"so no pod there can mount a Dataset{why}: see kubectl -n {names.SYSTEM_NAMESPACE} get pods -o wide -l "
            "app.kubernetes.io/component=csi, and their logs for what the node lacks (/dev/fuse, mount propagation)"
        )
        yield CheckupFinding(about="Cluster", state="lacks", text=text)
    elif with_gpus:
        text = f"{counted(len(with_gpus), 'node')} with GPUs, each with the node plugin of TDCS"
        yield CheckupFinding(about="Cluster", state="ok", text=text)
    if not with_gpus:
        text = "no node has GPUs (nvidia.com/gpu): where there are some, its device plugin is missing"
        yield CheckupFinding(about="Cluster", state="note", text=text)
    yield from _kernels(checked.nodes)


def _stuck_plugins(pods: Sequence[Object], nodes: Sequence[str]) -> str:
    """Of nodes without a working node plugin, what its pods there ended with: that /dev/fuse is not there, say."""
    last_words: dict[str, str] = {}
    for pod in pods:
        if words := _last_words(pod):
            last_words.setdefault(_node_of(pod), words)
    lines = [f"on {node}: {last_words[node]}" for node in nodes[:NAMED] if last_words.get(node)]
    return f" ({'; '.join(lines)})" if lines else ""


def _fuse(checked: Checked) -> Iterator[CheckupFinding]:
    """Nodes where the plugin works and its file system does not: what holds its FUSE session runs in a pod of its own.

    A CSINode names the driver alone, so the pods of its holders tell it.
    """
    if checked.plugins is None:
        text = (
            "which nodes have FUSE is unknown: you may not list pods in "
            f"{names.SYSTEM_NAMESPACE}, where each node's reader-holder runs"
        )
        yield CheckupFinding(about="Cluster", state="unknown", text=text)
        return
    holders = [pod for pod in checked.plugins if _component(pod) == "reader-holder"]
    if not holders:
        return
    working = {_node_of(pod) for pod in holders if _runs(pod)}
    reached = {_node_of(pod) for pod in holders} if checked.drivers is None else checked.drivers
    if broken := sorted(reached - working - {""}):
        text = (
            f"{counted(len(broken), 'node')} ({_first(broken)}) {_have(broken)} no working file system of TDCS, so "
            f"pods there read nothing from other nodes{_stuck_plugins(holders, broken)}: see kubectl -n "
            f"{names.SYSTEM_NAMESPACE} get pods -o wide -l app.kubernetes.io/component=reader-holder, and whether the "
            "node has /dev/fuse (modprobe fuse)"
        )
        yield CheckupFinding(about="Cluster", state="lacks", text=text)
    elif reached:
        text = f"{counted(len(reached), 'node')} with FUSE: the file system of TDCS runs there"
        yield CheckupFinding(about="Cluster", state="ok", text=text)


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _node_of(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName", ""))


def _runs(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return bool(statuses) and all("running" in (container.get("state") or {}) for container in statuses)


def _last_words(pod: Object) -> str:
    """What a container of a pod ended with last, or why it does not start; empty where nothing is the matter."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        states = [container.get("lastState") or {}, container.get("state") or {}]
        ended = [state["terminated"].get("message") for state in states if state.get("terminated")]
        waits = [state["waiting"] for state in states if state.get("waiting")]
        words = [
            *ended,
            *(f"{state.get('reason')}: {state['message']}" for state in waits if state.get("message")),
        ]
        if text := next(filter(None, words), ""):
            return quoted_from_kubelet(text)
    return ""


def _kernels(nodes: Sequence[Object]) -> Iterator[CheckupFinding]:
    versions = {node["metadata"]["name"]: _kernel(node) for node in nodes}
    old = sorted(name for name, version in versions.items() if version and version < OLD_KERNEL)
    slower = sorted(
        name for name, version in versions.items() if version and OLD_KERNEL <= version < OVERLAY_KERNEL
    )
    if old:
        text = (
            f"the kernel of {_first(old)} is older than 5.12: volumes are mounted by older calls; update it"
        )
        yield CheckupFinding(about="Cluster", state="note", text=text)
    if slower:
        text = (
            f"the kernel of {_first(slower)} is older than 6.5: pods there read what is on the node through a "
            "process of TDCS, which is slower"
        )
        yield CheckupFinding(about="Cluster", state="note", text=text)


def _kernel(node: Object) -> tuple[int, int] | None:
    text = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kernelVersion", ""))
    version = re.match(r"(\d+)\.(\d+)", text)
    return (int(version[1]), int(version[2])) if version else None


def _first(node_names: Sequence[str]) -> str:
    more = f" and {len(node_names) - NAMED} more" if len(node_names) > NAMED else ""
    return f"{', '.join(node_names[:NAMED])}{more}"


def _have(many: Sequence[str]) -> str:
    return "has" if len(many) == 1 else "have"
