"""The nodes and their GPUs: who runs where."""

from collections.abc import Callable, Collection, Mapping, Sequence

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.place import gang_fit
from tdcs.decide.queue import fair_share, pod_admission
from tdcs.decide.queue.copy_places import KeptPlaces, Key, PlaceRequest, Places, missing_place, takes_place_at
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario
from tdcs_labs.scheduling import NOTHING_LEFT, place_pods

#: How many waiting jobs an admission looks at: those further back would only pass these.
WINDOW = 64


class Cluster:
    """Free GPUs by node, the queue, and the running jobs by dataset."""

    def __init__(self, *, scenario: Scenario) -> None:
        self.scenario = scenario
        self.free = dict.fromkeys(scenario.node_names(), scenario.gpus_per_node)
        self.sizes = dict(self.free)
        self.by_free = [0] * scenario.gpus_per_node + [scenario.nodes]
        self.queue: list[SimJob] = []
        self.holder: SimJob | None = None
        self.aside: tuple[str, ...] = ()
        self.running: dict[int, SimJob] = {}
        self.readers: dict[str, dict[int, SimJob]] = {}
        self.requests: Callable[[SimJob], tuple[PlaceRequest, ...]] | None = None

    def window(self) -> Sequence[SimJob]:
        """The waiting jobs that are looked at, first first; all of them where jobs wait for places at datasets, too."""
        return self.queue[:WINDOW] if self.requests is None else self.queue

    def enqueue(self, job: SimJob) -> None:
        """Put a job into the queue, which is in the policy's order."""
        self.queue.append(job)
        if len(self.queue) > 1 and pod_admission.queue_key(self.queue[-2]) > pod_admission.queue_key(job):
            self.queue.sort(key=pod_admission.queue_key)

    def next_to_admit(self) -> SimJob | None:
        """Take the job that enters next out of the queue; None when all must wait."""
        if self.scenario.fair_share:
            self._take_turns()
        if self.requests is not None:
            self._limit(self.requests)
        if self.holder is not None and not self.holder.ready:
            self._give_back()
        holder = self.holder
        if holder is not None and self._fits_anywhere(holder):
            self._admit(self.queue.index(holder))
            self._give_back()
            return holder
        window = self.window()
        next_ = pod_admission.next_to_admit(queue=window, nodes_by_free_gpus=self.by_free, holder=holder)
        if next_.starves is not None:
            self._set_aside(window[next_.starves])
            return self.next_to_admit()
        if next_.admits is None:
            return None
        job = window[next_.admits]
        self._admit(next_.admits)
        return job

    def _take_turns(self) -> None:
        """Order the queue by the shares of the tenants, as the operator does that of namespaces."""
        used: dict[str, int] = {}
        for job in self.running.values():
            used[job.owner] = used.get(job.owner, 0) + job.gpus
        self.queue = fair_share.turns(
            self.queue,
            order=lambda job: (*pod_admission.queue_key(job), job.number),
            used={owner: {GPU_RESOURCE: gpus} for owner, gpus in used.items()},
            total={GPU_RESOURCE: self.scenario.gpus},
            weights={},
        )

    def _admit(self, place: int) -> None:
        by = self.queue[place]
        taken = self.requests(by) if self.requests is not None else ()
        for job in self.queue[:place]:
            if job.ready or (job.short and takes_place_at(job.dataset.name, taken)):
                job.passed += 1
        del self.queue[place]

    def _limit(self, requests_of: Callable[[SimJob], tuple[PlaceRequest, ...]]) -> None:
        """Find the jobs that have no place at their datasets."""
        taken: dict[str, list[Key]] = {}
        for job in self.running.values():
            taken.setdefault(job.dataset.name, []).append(_key(job))
        places, kept = Places(taken), KeptPlaces()
        for job in self.queue:
            requests = requests_of(job)
            job.short = missing_place(requests, places=places, kept=kept) is not None
            job.ready = not job.short
            if job.passed >= pod_admission.MAX_PASSES:
                kept.keep(_key(job), requests)

    def _fits_anywhere(self, job: SimJob) -> bool:
        by_free = list(self.by_free)
        for node in self.aside:
            by_free[self.free[node]] += 1
        return pod_admission.gang_fits(pods=job.pods, nodes_by_free_gpus=by_free)

    def _give_back(self) -> None:
        for node in self.aside:
            self.by_free[self.free[node]] += 1
        self.holder, self.aside = None, ()

    def _set_aside(self, job: SimJob) -> None:
        self.holder = job
        size = self.scenario.gpus_per_node

        def holds(nodes: Sequence[str]) -> bool:
            return pod_admission.gang_fits(pods=job.pods, nodes_by_free_gpus=[*[0] * size, len(nodes)])

        self.aside = pod_admission.nodes_to_set_aside(free=self.free, sizes=self.sizes, holds=holds)
        for node in self.aside:
            self.by_free[self.free[node]] -= 1

    def nodes_to_leave(self, job: SimJob) -> Mapping[int, frozenset[str]]:
        """By the GPUs of a pod, the empty nodes that a job which is about to start leaves to larger pods."""
        return gang_fit.nodes_to_leave(
            job=job,
            others=[*self.window(), *self.running.values()],
            empty=gang_fit.empty_nodes(free=self._open_nodes(), sizes=self.sizes),
            scarce=GPU_RESOURCE,
        )

    def _open_nodes(self) -> Mapping[str, int]:
        """The free GPUs of the nodes that are not set aside."""
        if not self.aside:
            return self.free
        return {node: gpus for node, gpus in self.free.items() if node not in self.aside}

    def place(
        self,
        job: SimJob,
        *,
        scores: dict[str, int],
        now: float,
        leave: Mapping[int, Collection[str]] = NOTHING_LEFT,
    ) -> None:
        """Start a job that fits as a gang, on the nodes with the best scores; `leave`: see `place_pods`."""
        nodes = place_pods(pods=job.pods, free_gpus=self._open_nodes(), scores=scores, leave=leave)
        if nodes is None:
            raise RuntimeError(f"job {job.number}: admitted although its {job.gpus} GPUs are not free")
        for node, gpus in zip(nodes, job.pods, strict=True):
            self._change(node, -gpus)
        job.start(now=now, nodes=nodes)
        self.running[job.number] = job
        self.readers.setdefault(job.reads, {})[job.number] = job

    def release(self, job: SimJob) -> None:
        """Give a finished job's GPUs back."""
        for node, gpus in zip(job.nodes, job.pods, strict=True):
            self._change(node, gpus)
        del self.running[job.number]
        del self.readers[job.reads][job.number]
        if not self.readers[job.reads]:
            del self.readers[job.reads]

    def _change(self, node: str, gpus: int) -> None:
        before = self.free[node]
        self.free[node] = before + gpus
        if node not in self.aside:
            self.by_free[before] -= 1
            self.by_free[before + gpus] += 1


def _key(job: SimJob) -> Key:
    return ("", str(job.number))
