"""A job as the queue sees it: how many pods it asks for, and what they need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tdcs.api import names
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.queue.copy_places import PlaceRequest
from tdcs.decide.queue.namespace_quota import QuotaCharge
from tdcs.decide.queue.pod_admission import Reason, queue_key
from tdcs.model.kube_objects import Key
from tdcs.model.pod_resources import CPU, Amounts, added

DemandKey = tuple[tuple[int, frozenset[tuple[str, int]], frozenset[str] | None], ...]
"""What makes two jobs equal as far as room goes."""

Order = tuple[int, int, bool, float, str, str]
"""Sorts the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a job may not start although its data is ready: a quota is used up, or a dataset has no place for it.

    Attributes:
        reason: QUOTA or AT_LIMIT.
        dataset: the Dataset that has no place, as namespace/name; empty for a quota.
    """

    reason: Reason
    message: str
    dataset: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Workers that an elastic job asks for beyond those that it has, or enters with.

    Attributes:
        base: workers that it has without them.
        pods: how many more, and what each needs.
        charges: what one of them takes of the quotas of its namespace.
    """

    base: int
    pods: PodGroup
    charges: tuple[QuotaCharge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job in the queue: one that waits to start, or an elastic one that waits for more workers.

    Attributes:
        key: (namespace, name).
        priority: larger is admitted first.
        submitted: when it was created, in seconds.
        data_ready: whether its datasets let it start.
        possible: whether its pods would fit on empty nodes.
        passed: how many later jobs were admitted before it.
        groups: the pods with which it starts; of an elastic job as few as it allows.
        charges: what they take of the quotas of its namespace.
        access: the places that it takes at its datasets.
        short: which of these do not admit it now; None when all do.
        growth: what an elastic job asks for beyond that.
        runs: whether it was admitted before, and waits for more workers only.
        pauses: whether it is tried again only later: until then others leave it what it was passed too often for.
        own_priority: that of its class, where it counts as more important because it has waited for long.
        waited: how long it has waited, in seconds.
        lasts: seconds after which its pods are gone at the latest, once they start; infinite when nobody knows.
        may_preempt: whether it may take the place of running jobs of lower priority.
        turn: the place that its namespace's share gives it; 0 where shares do not count.
        rank: its place among those of its namespace and priority, as its owner wishes: smaller is first.
        stands_as: the age and the name that it is sorted by, where that place is another than its age gives it.
        share: whose share of the cluster it takes of, where that is not its namespace's own.
        growth_turn: the same as `turn` of the workers that an elastic job asks for beyond those that it enters with.
    """

    key: Key
    uid: str
    priority: int
    submitted: float
    data_ready: bool
    passed: int
    groups: tuple[PodGroup, ...]
    possible: bool = True
    charges: tuple[QuotaCharge, ...] = ()
    access: tuple[PlaceRequest, ...] = ()
    short: Shortage | None = None
    growth: Growth | None = None
    runs: bool = False
    pauses: bool = False
    own_priority: int | None = None
    waited: float = 0.0
    lasts: float = math.inf
    may_preempt: bool = False
    turn: int = 0
    rank: int = 0
    stands_as: tuple[float, str] | None = None
    growth_turn: int = 0
    share: str = ""

    @property
    def owner(self) -> str:
        """Whose share it takes of: its namespace's, or that of several namespaces with one value of a label."""
        return self.share or self.key[0]

    @property
    def class_priority(self) -> int:
        """That of its class: a long wait makes nobody yield."""
        return self.priority if self.own_priority is None else self.own_priority

    @property
    def asks(self) -> Amounts:
        """What it would take of the nodes now; nothing while its data is not ready, or it never can run."""
        if not (self.data_ready and self.possible):
            return {}
        groups = (self.growth.pods,) if self.runs and self.growth is not None else self.groups
        return added(
            [{name: group.count * value for name, value in group.request.items()} for group in groups]
        )

    @property
    def ready(self) -> bool:
        """Whether it could start, had it room. A job that never can, or lacks quota or a place, holds up no other."""
        return self.data_ready and self.possible and self.short is None

    @property
    def order(self) -> Order:
        """Sorts the queue: the share of its namespace; then priority; of one priority who waits to start before who
        grows; age.

        Times of creation are whole seconds: jobs that came at once are in the order of their names, which outlives a
        restart.
        """
        priority, age = queue_key(self)
        namespace, name = self.key
        if self.stands_as is not None:
            age, name = self.stands_as
        return (self.turn, priority, self.runs, age, name, namespace)

    @property
    def scarce(self) -> str:
        """The resource that its pods are short of first: GPUs, or CPU for pods without."""
        return (
            names.GPU_RESOURCE if any(group.request.get(names.GPU_RESOURCE) for group in self.groups) else CPU
        )

    @property
    def demand_key(self) -> DemandKey:
        """Equal for jobs whose pods need the same."""
        return tuple((group.count, frozenset(group.request.items()), group.nodes) for group in self.groups)

    @property
    def pods(self) -> Sequence[int]:
        return [group.request.get(self.scarce, 0) for group in self.groups for _ in range(group.count)]

    @property
    def pod_count(self) -> int:
        return sum(group.count for group in self.groups)

    def growing(self) -> "QueuedJob | None":
        """Its place in the queue once it has started: for one more worker at a time; None when it asks for none."""
        if self.growth is None or self.growth.pods.count <= 0:
            return None
        single_pod = replace(self.growth.pods, count=1)
        return replace(
            self,
            runs=True,
            groups=(single_pod,),
            charges=self.growth.charges,
            access=(),
            passed=0,
            short=None,
            data_ready=True,
            turn=self.growth_turn,
        )
