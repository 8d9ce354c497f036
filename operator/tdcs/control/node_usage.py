"""What the pods of the whole cluster take of each node, kept up to date pod by pod.

Only what counts is kept of a pod, because a large cluster has a hundred thousand of them.
"""

import bisect
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from tdcs.api import names
from tdcs.api.dataset import USERS_NAMED
from tdcs.decide.forbidden_addresses import plain_address
from tdcs.model.kube_objects import UNENDED_PODS, Key, Object
from tdcs.model.pod_resources import Amounts, added, pod_requests

BOUND_AND_UNENDED = f"spec.nodeName!=,{UNENDED_PODS}"
"""Field selector of the pods that hold resources of a node."""

OF_NO_JOB = f"!{names.LABEL_TRAINING_JOB}"
"""Label selector of the pods that no TrainingJob made: those of jobs are followed also before they have a node."""


GoneBy = tuple[str, float]
"""Of a pod that is being deleted: when its time to end is over (RFC 3339), and how many seconds it had for that."""

NOTHING: Amounts = MappingProxyType({})
"""What no pod takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPod:
    """A pod's place in a TrainingJob: the Indexed Job that owns it, its role, its index.

    The owner counts, and not the label with the job's name: others may carry that label, and a job that is made again
    has the name of the one before.
    """

    owner: str
    role: str
    index: str


def trimmed(pod: Object) -> Object:
    """A pod with its node, what it takes there, its addresses, and to which job it belongs, and nothing else."""
    metadata = pod["metadata"]
    kept_fields = {field: metadata[field] for field in ("name", "resourceVersion") if field in metadata}
    if "namespace" in metadata:
        kept_fields["namespace"] = sys.intern(metadata["namespace"])
    summary = {
        "metadata": kept_fields,
        "node": sys.intern(pod["spec"].get("nodeName", "")),
        "takes": takes_of(pod),
        "foreign": (job_pod := job_pod_of(pod)) is None,
        "claims": claims_of(pod),
        "addresses": addresses_of_pod(pod),
    }
    gone_by = metadata.get("deletionTimestamp")
    if job_pod is None:
        # One that is being deleted and that no controller makes again is none that a Dataset has to stay for.
        return {**summary, "leaves": True} if gone_by and not owner_of(pod) else summary
    if not gone_by:
        return {**summary, "jobPod": job_pod}
    return {**summary, "goneBy": (str(gone_by), float(metadata.get("deletionGracePeriodSeconds") or 0))}


def takes_of(pod: Object) -> Amounts:
    """What a pod takes of its node; of one that is kept in short (`kept_pod`) it is noted."""
    noted: Amounts | None = pod.get("takes")
    return _shared(tuple(pod_requests(pod["spec"]).items())) if noted is None else noted


@lru_cache(maxsize=1 << 14)
def _shared(takes: tuple[tuple[str, int], ...]) -> Amounts:
    """The same object for all pods that take the same: those of a job do."""
    return dict(takes)


def job_pod_of(pod: Object) -> JobPod | None:
    """The place of a pod in a TrainingJob; None when it belongs to none."""
    metadata = pod["metadata"]
    labels = _labels(metadata)
    owner = owner_of(pod)
    if not labels.get(names.LABEL_TRAINING_JOB) or not owner:
        return None
    index = (metadata.get("annotations") or {}).get(names.ANNOTATION_COMPLETION_INDEX, metadata["name"])
    role = labels.get(names.LABEL_ROLE, "")
    return JobPod(owner=sys.intern(owner), role=sys.intern(role), index=sys.intern(index))


def claims_of(pod: Object) -> Sequence[str]:
    """The claims that a pod mounts, in order; of one that is kept in short they are noted."""
    if "claims" in pod:
        noted: Sequence[str] = pod["claims"]
        return noted
    volumes = pod["spec"].get("volumes") or ()
    claim_names = {
        str((volume.get("persistentVolumeClaim") or {}).get("claimName", "")) for volume in volumes
    }
    return _claims(tuple(sorted(claim_names - {""})))


@lru_cache(maxsize=1 << 14)
def _claims(claims: tuple[str, ...]) -> Sequence[str]:
    """The same object for all pods that mount the same."""
    return [sys.intern(name) for name in claims]


def owner_of(obj: Object) -> str:
    """The uid of the object that controls this one; empty when none does."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((str(reference["uid"]) for reference in references if reference.get("controller")), "")


def _labels(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return metadata.get("labels") or {}


class _Mounts:
    """The pods that mount a claim.

    Attributes:
        nodes: how many of them a node has.
        users: the names of those that no TrainingJob made, in order, as `Usage.users_of` has them.
    """

    def __init__(self) -> None:
        self.nodes: Counter[str] = Counter()
        self.users: list[str] = []
        self._node_of: dict[Key, str] = {}

    def node_of(self, pod: Key) -> str:
        return self._node_of[pod]

    def put(self, pod: Key, node: str, *, is_user: bool) -> None:
        """Add a pod that is not there."""
        self._node_of[pod] = node
        self.nodes[node] += 1
        if is_user:
            bisect.insort(self.users, pod[1])

    def drop(self, pod: Key) -> None:
        """Remove a pod that is there."""
        node = self._node_of.pop(pod)
        self.nodes[node] -= 1
        if not self.nodes[node]:
            del self.nodes[node]
        at = bisect.bisect_left(self.users, pod[1])
        if self.users[at : at + 1] == [pod[1]]:
            del self.users[at]


_NO_MOUNTS = _Mounts()


@lru_cache(maxsize=1 << 14)
def _claim_keys(namespace: str, claims: tuple[str, ...]) -> tuple[Key, ...]:
    """The same object for all pods that mount the same."""
    return tuple((namespace, claim) for claim in claims)


class Usage:
    """The sum of requests by node.

    Args:
        on_claim: called when pods begin or end to mount a claim on a node, and when its first users change.

    Attributes:
        changes: how often a sum has changed.
    """

    def __init__(self, *, on_claim: Callable[[Key], None] = lambda key: None) -> None:
        self._claims: dict[Key, _Mounts] = {}
        self._claims_of: dict[Key, tuple[Key, ...]] = {}
        self._expected: dict[Key, tuple[frozenset[Key], frozenset[str]]] = {}
        self._on_claim = on_claim
        self._pods: dict[Key, tuple[str, Amounts, bool]] = {}
        self._nodes: dict[str, dict[str, int]] = {}
        self._foreign: dict[str, dict[str, int]] = {}
        self._job_pods: dict[Key, JobPod] = {}
        self._gone_by: dict[Key, GoneBy] = {}
        self.changes = 0

    def copy(self) -> "Usage":
        """The sums and the pods as they are now, which change no more."""
        snapshot = Usage()
        snapshot._nodes, snapshot._foreign = (
            dict(self._nodes),
            dict(self._foreign),
        )  # a sum is replaced, never changed
        snapshot._job_pods, snapshot._pods, snapshot.changes = (
            dict(self._job_pods),
            dict(self._pods),
            self.changes,
        )
        snapshot._gone_by = dict(self._gone_by)
        return snapshot

    def taken(self, node: str) -> Mapping[str, int]:
        return self._nodes.get(node, NOTHING)

    def foreign(self, node: str) -> Mapping[str, int]:
        return self._foreign.get(node, {})

    def takes(self, pod: Key) -> Amounts:
        """What a pod takes of its node; nothing where it has none."""
        return self._pods[pod][1] if pod in self._pods else NOTHING

    def is_mounted(self, claim: Key) -> bool:
        return claim in self._claims

    def nodes_of(self, claim: Key) -> frozenset[str]:
        """The nodes of the pods that mount a claim, and those on which pods are expected that will."""
        expected = (nodes for claims, nodes in self._expected.values() if claim in claims)
        return frozenset(self._claims.get(claim, _NO_MOUNTS).nodes).union(*expected)

    def users_of(self, claim: Key) -> tuple[str, ...]:
        """The first pods, by name, that mount a claim and that no TrainingJob made, without those that are being
        deleted and that no controller makes again."""
        return tuple(self._claims.get(claim, _NO_MOUNTS).users[:USERS_NAMED])

    def expect(self, job: Key, *, claims: Collection[Key], nodes: Collection[str]) -> None:
        """Further pods of a job will come to nodes, and mount these claims there; none are expected any more without
        nodes."""
        before = {claim: self.nodes_of(claim) for claim in (*claims, *self._expected.get(job, ((), ()))[0])}
        self._expected.pop(job, None)
        if nodes:
            self._expected[job] = (frozenset(claims), frozenset(nodes))
        for claim in sorted(before):
            if self.nodes_of(claim) != before[claim]:
                self._on_claim(claim)

    def job_pods(self) -> Iterator[JobPod]:
        """The pods of TrainingJobs that have a node; one that is being deleted is none any more."""
        yield from self._job_pods.values()

    def of_jobs(self) -> Iterator[tuple[str, str, Amounts]]:
        """For each pod of a TrainingJob with a node that is not being deleted: the Job that owns it; the node; and what
        it takes there."""
        for key, job_pod in self._job_pods.items():
            node, takes, _ = self._pods[key]
            yield job_pod.owner, node, takes

    def deleted(self) -> Iterator[tuple[GoneBy, str, Amounts]]:
        """For each pod of a TrainingJob with a node that is being deleted: when it is gone; its node; and what it takes
        there."""
        for key, gone_by in self._gone_by.items():
            node, takes, _ = self._pods[key]
            yield gone_by, node, takes

    def seen(self, key: Key, pod: Object | None) -> bool:
        """Take in a trimmed pod, None when it has ended or is gone; whether a sum has changed."""
        before, job_pod = self._pods.get(key), self._job_pods.pop(key, None)
        after = None if pod is None or not pod["node"] else (pod["node"], pod["takes"], pod["foreign"])
        ended_before = self._gone_by.pop(key, None)
        self._see_claims(key, pod, after)
        if pod is not None and "goneBy" in pod and after is not None:
            self._gone_by[key] = pod["goneBy"]
        if pod is not None and "jobPod" in pod and after is not None:
            self._job_pods[key] = pod["jobPod"]
        previous = (before, job_pod, ended_before)
        if previous == (after, self._job_pods.get(key), self._gone_by.get(key)):
            return False
        if before is not None:
            node, takes, foreign = before
            self._add(node, {name: -value for name, value in takes.items()}, foreign=foreign)
        if after is not None:
            node, takes, foreign = after
            self._add(node, takes, foreign=foreign)
        self.changes += 1
        return True

    def _see_claims(self, key: Key, pod: Object | None, pod_use: tuple[str, Amounts, bool] | None) -> None:
        node = str(pod["node"]) if pod is not None else ""
        used = pod.get("claims", ()) if pod is not None and node else ()
        claims = _claim_keys(key[0], tuple(used))
        before = self._claims_of.pop(key, ())
        if claims:
            self._claims_of[key] = claims
        concerned, nodes = {*before, *claims}, {node, *(self._claims[claim].node_of(key) for claim in before)}
        uses_before = {claim: self._use_of(claim, nodes) for claim in concerned}
        if pod_use is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod_use
        for claim in before:
            self._claims[claim].drop(key)
        is_user = pod_use is not None and pod_use[2] and pod is not None and not pod.get("leaves")
        for claim in claims:
            self._claims.setdefault(claim, _Mounts()).put(key, node, is_user=is_user)
        for claim in before:
            if not self._claims[claim].nodes:
                del self._claims[claim]
        for claim in sorted(concerned):
            if self._use_of(claim, nodes) != uses_before[claim]:
                self._on_claim(claim)

    def _use_of(self, claim: Key, nodes: Collection[str]) -> object:
        """What is reported of a claim's pods, as far as a pod on these nodes can change it: a claim may have ten
        thousand pods, so not all of them are looked at for one."""
        expected = (on for claims, on in self._expected.values() if claim in claims)
        used = frozenset(nodes).intersection(frozenset().union(*expected))
        mounts = self._claims.get(claim, _NO_MOUNTS)
        return (
            self.is_mounted(claim),
            used.union(node for node in nodes if node in mounts.nodes),
            self.users_of(claim),
        )

    def _add(self, node: str, amounts: Amounts, *, foreign: bool) -> None:
        for sums in (self._nodes, self._foreign) if foreign else (self._nodes,):
            total = {name: value for name, value in added((sums.get(node, {}), amounts)).items() if value}
            if total:
                sums[node] = total
            else:
                sums.pop(node, None)


def addresses_of_pod(pod: Object) -> Sequence[str]:
    """The addresses of a pod; none for a pod in its node's network (`hostNetwork`): the Node object has those."""
    if "addresses" in pod:  # of one that is kept in short they are noted
        noted: Sequence[str] = pod["addresses"]
        return noted
    if pod["spec"].get("hostNetwork"):
        return []
    status = pod.get("status") or {}
    return [str(address["ip"]) for address in status.get("podIPs") or () if address.get("ip")]


class PodAddresses:
    """Those of all pods that have a node and have not ended. An ended pod's address may be another host's next. Where
    nodes name no networks of pods, as with those that a cloud manages, nothing else says that an address leads to one.

    It contains an address in its plain form (`tdcs.decide.forbidden_addresses.plain_address`), as a text.
    """

    def __init__(self) -> None:
        self._of_pods: dict[Key, tuple[str, ...]] = {}
        self._pods: Counter[str] = Counter()

    def __contains__(self, address: object) -> bool:
        return address in self._pods

    def seen(self, key: Key, addresses: Sequence[str]) -> None:
        """Take in a pod's addresses; none when it has ended, or is gone."""
        for address in self._of_pods.pop(key, ()):
            self._pods[address] -= 1
            if not self._pods[address]:
                del self._pods[address]
        if addresses:
            self._of_pods[key] = tuple(map(_plain, addresses))
            self._pods.update(self._of_pods[key])


def _plain(address: str) -> str:
    """An address in its plain form: the same text where it has that already."""
    plain = str(plain_address(address))
    return address if address == plain else plain
