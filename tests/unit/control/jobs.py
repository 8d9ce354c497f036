"""Training jobs on an API server in memory: the real controller and queue, with a small Kubernetes around them."""

import asyncio
import datetime
import time
from collections.abc import Callable
from typing import Any, Self, cast

from tests.support.caches import MemoryCaches
from tests.support.kube.objects import with_roles
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.passes import work_off
from tests.unit.control.server import Server

from tdcs.api import names
from tdcs.api.durations import seconds_between
from tdcs.control.context import Context, Settings, Stores, WorkKey
from tdcs.control.job.job_controller import TrainingJobController
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.gang_requeue import PLACEMENT_SECONDS
from tdcs.control.job.stalled_reads import DataStalls
from tdcs.control.node_usage import Usage, trimmed
from tdcs.control.operator.admitters import Admitters
from tdcs.decide.place.node_eligibility import may_run
from tdcs.decide.queue.node_requests import NodeProvisioning
from tdcs.decide.queue.pod_admission import MAX_PASSES
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import Applier
from tdcs.kube.events import EventRecorder, utc_now
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    TRAINING_JOBS,
    WORKLOADS,
    Resource,
)

GPU = "nvidia.com/gpu"


class JobServer(Server):
    """The server, with Jobs that do not end by themselves: the test plays their controller."""

    def play(self, resource: Resource, obj: Object) -> None:
        pass

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        foreground: bool = False,
    ) -> bool:
        self.refuse("delete", resource)
        live = self.store(resource).get((namespace or "", name))
        if live is not None and foreground:
            # As the garbage collector has it; the test plays that one, too.
            live["metadata"]["finalizers"] = ["foregroundDeletion"]
        return await super().delete(resource, name=name, namespace=namespace, uid=uid)


class Mortal:
    """The server as an operator sees it that is killed with its n-th write: that one is made, and nothing after it.

    Args:
        server: which answers.
        killed_after: the number of the write.
        latency: seconds until a request reaches it.
    """

    def __init__(self, server: Server, *, killed_after: int, latency: float = 0.0) -> None:
        self._server = server
        self._latency = latency
        self._writes_left = killed_after
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._server, name)

        async def maybe(*args: Any, **more: Any) -> Any:
            await asyncio.sleep(self._latency)
            if self.dead:
                await asyncio.Event().wait()
            if name in {"create", "apply", "apply_status", "merge", "merge_status", "delete"}:
                self._writes_left -= 1
                self.dead = self._writes_left == 0
            answer = await call(*args, **more)
            if self.dead:
                await asyncio.Event().wait()
            return answer

        return maybe


class _AtOnce(KeyedQueue[WorkKey]):
    """Has jobs looked at now that are to be looked at later."""

    def __init__(self, queue: KeyedQueue[WorkKey]) -> None:
        super().__init__()
        self._queue = queue

    def add_after(self, key: WorkKey, seconds: float) -> None:
        self._queue.add_after(key, 0.0)


class Jobs:
    """Nodes with GPUs, and an operator of jobs at work; a context manager. The test plays the rest of Kubernetes."""

    def __init__(
        self,
        *,
        gpus: dict[str, int],
        max_passes: int = MAX_PASSES,
        patience: float = PLACEMENT_SECONDS,
        kueue: bool = False,
        clock: Callable[[], float] = time.monotonic,
        latency: float = 0.0,
        preempts: bool = False,
        provisioning: NodeProvisioning = "Off",
        node_wait: int = 900,
    ) -> None:
        self._provisioning: NodeProvisioning = provisioning
        self._node_wait = node_wait
        self._preempts = preempts
        self._kueue = kueue
        self._latency = latency
        self._clock = clock
        self.passes = 0
        self._max_passes = max_passes
        self._patience = patience
        self.server = JobServer()
        for name, count in gpus.items():
            self.server.store(NODES)["", name] = {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": {GPU: str(count), "cpu": "96", "pods": "110"}},
            }
        self._work: list[asyncio.Task[None]] = []
        self._known_jobs: set[str] = set()
        self.refuses: Callable[[Object], bool] = lambda pod: False
        self._ahead = 0.0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self, *, killed_after: int | None = None) -> None:
        """An operator begins, with nothing in its memory; it dies with its write of this number."""
        server = self.server
        self.operator = Mortal(server, killed_after=killed_after or 0, latency=self._latency)
        api = cast("KubeApi", self.operator)
        usage = Usage()
        stores = Stores(
            cache_clusters=server.store(CACHE_CLUSTERS),
            datasets=server.store(DATASETS),
            training_jobs=server.store(TRAINING_JOBS),
            nodes=server.store(NODES),
            pods=server.store(PODS),
            jobs=server.store(JOBS),
            priority_classes=server.store(PRIORITY_CLASSES),
            resource_quotas=server.store(RESOURCE_QUOTAS),
            runtime_classes=server.store(RUNTIME_CLASSES),
            namespaces=server.store(NAMESPACES),
            usage=usage,
        )
        engine = MemoryEngine(sources={}, workers={})
        self.context = Context(
            api=api,
            applier=Applier(api=api),
            recorder=EventRecorder(api=api, component="test", now=utc_now),
            caches=MemoryCaches(engine),
            stores=stores,
            queue=KeyedQueue(),
            settings=Settings(
                kueue=self._kueue,
                node_provisioning=self._provisioning,
                node_wait_seconds=self._node_wait,
            ),
            now=self.now,
        )
        self.usage = usage
        self.gangs = GangQueue(
            stores=stores,
            queue=self.context.queue,
            max_passes=self._max_passes,
            patience=self._patience,
            preempts=self._preempts,
            kueue=self._kueue,
            provisioning=self._provisioning,
            now=self.now,
            clock=self._clock,
        )
        self.stalls = DataStalls(
            queue=_AtOnce(self.context.queue),
            clock=lambda: time.monotonic() + self._ahead,
        )
        controller = TrainingJobController(
            context=self.context,
            gangs=self.gangs,
            admitter=Admitters(context=self.context, gangs=self.gangs),
            stalls=self.stalls,
            clock=self._clock,
        )

        async def reconcile(key: WorkKey) -> float | None:
            self.passes += 1
            again = await controller.reconcile(key)
            # Less would be no time at all on a virtual clock.
            return max(again, 1e-3) if again else again

        self._reconcile = reconcile
        self.gangs.start()
        self.defects: list[Exception] = []
        server.on_change = self._changed
        for key, pod in server.store(PODS).items():
            self._count(key, pod)
        self._work = [
            asyncio.create_task(
                work_off(self.context.queue, self._reconcile, defects=self.defects, most_wait=30.0)
            )
            for _ in range(3)
        ]
        for namespace, name in list(server.store(TRAINING_JOBS)):
            self.context.queue.add(WorkKey(TRAINING_JOBS, namespace, name))

    async def stop(self) -> None:
        """The operator ends as if it were killed."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self.gangs.close()
        self.context.queue.close()
        assert not self.defects, self.defects

    def _changed(self, resource: Resource, obj: Object, deleted: bool) -> None:
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if resource is PODS:
            self._count(key, None if deleted else obj)
        if resource in (PODS, JOBS, WORKLOADS):
            job = (metadata.get("labels") or {}).get(names.LABEL_TRAINING_JOB)
            if job:
                self.context.queue.add(WorkKey(TRAINING_JOBS, key[0], job))
        if resource is TRAINING_JOBS:
            self.context.queue.add(WorkKey(TRAINING_JOBS, *key))
        if resource is NAMESPACES:
            for key in list(self.server.store(TRAINING_JOBS)):
                self.context.queue.add(WorkKey(TRAINING_JOBS, *key))
        self.gangs.touch(nodes=resource is NODES, overheads=resource is RUNTIME_CLASSES)

    def _count(self, key: tuple[str, str], pod: Object | None) -> None:
        holds = pod is not None and pod["spec"].get("nodeName") and phase_of(pod) in {"Pending", "Running"}
        if self.usage.seen(key, trimmed(pod) if pod is not None and holds else None):
            self.gangs.touch()

    def now(self) -> str:
        """The operator's time."""
        return time_at(seconds_between(EPOCH, utc_now()) + self._ahead)

    def advance(self, seconds: float) -> None:
        """Let the operator's clock go on by so much."""
        self._ahead += seconds

    # The rest of Kubernetes.

    async def play(self, *, schedule: bool = True) -> None:
        """One round of the Job controller and the scheduler: pods are made and deleted, and get nodes with room."""
        await self._collect_garbage()
        for (namespace, name), job in list(self.server.store(JOBS).items()):
            if job["metadata"].get("deletionTimestamp"):
                continue
            job_pods = [pod for pod in self.pods() if pod["metadata"]["labels"]["job-name"] == name]
            over = any(condition["type"] in {"Complete", "Failed"} for condition in conditions_of(job))
            over = over or failures(job_pods) > job["spec"].get("backoffLimit", 6)
            completions = 0 if job["spec"]["suspend"] or over else job["spec"]["completions"]
            for pod in job_pods:
                if phase_of(pod) not in {"Succeeded", "Failed"} and index_of(pod) >= completions:
                    await self.server.delete(PODS, name=pod["metadata"]["name"], namespace=namespace)
            held = {index_of(pod) for pod in job_pods if phase_of(pod) != "Failed"}
            for index in range(completions):
                if index not in held:
                    await self._make_pod(job, index)
            await self._count_pods(job)
        for pod in self.pods() if schedule else ():
            if not pod["spec"].get("nodeName"):
                await self._place(pod)

    async def _collect_garbage(self) -> None:
        """Pods go with their Job, which goes after them where it was deleted in the foreground."""
        jobs = {job["metadata"]["uid"]: job for job in self.server.store(JOBS).values()}
        going = {uid for uid, job in jobs.items() if job["metadata"].get("deletionTimestamp")}
        deleted, self._known_jobs = self._known_jobs - jobs.keys(), self._known_jobs | jobs.keys()
        for pod in self.pods():
            if pod["metadata"]["ownerReferences"][0]["uid"] in going | deleted:
                await self.server.delete(PODS, name=pod["metadata"]["name"], namespace="n")
        for uid in going:
            await self._merge(JOBS, jobs[uid], {"metadata": {"finalizers": None}})

    async def kubelet(self) -> None:
        """One round of a kubelet whose pods run and end well: each that has a node goes one step on."""
        for pod in self.pods():
            if phase_of(pod) == "Running":
                await self.end(pod)
        for name in {pod["metadata"]["labels"][names.LABEL_TRAINING_JOB] for pod in self.pods()}:
            await self.run(name)

    async def _make_pod(self, job: Object, index: int) -> None:
        template, metadata = job["spec"]["template"], job["metadata"]
        number = sum(index_of(pod) == index for pod in self.pods())
        while (metadata["namespace"], f"{metadata['name']}-{index}-{number}") in self.server.store(PODS):
            number += 1  # an earlier one was deleted
        labels = {**template["metadata"]["labels"], "job-name": metadata["name"]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-{index}-{number}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": {names.ANNOTATION_COMPLETION_INDEX: str(index)},
                "ownerReferences": [{"uid": metadata["uid"], "controller": True}],
            },
            "spec": dict(template["spec"]),
            "status": {"phase": "Pending"},
        }
        await self.server.create(PODS, obj=pod)

    async def _place(self, pod: Object) -> None:
        if pod["spec"].get("schedulerName") not in (None, names.SCHEDULER_NAME, "default-scheduler"):
            return  # nobody looks at it
        requested = trimmed(pod)["takes"].get(GPU, 0)
        for (_, node), obj in self.server.store(NODES).items() if not self.refuses(pod) else ():
            if not may_run(pod["spec"], obj):
                continue
            free = int(obj["status"]["allocatable"][GPU]) - self.usage.taken(node).get(GPU, 0)
            if free >= requested:
                await self._merge(PODS, pod, {"spec": {"nodeName": node}, "status": {"conditions": []}})
                return
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0 nodes fit",
        }
        if conditions_of(pod) != [refused]:
            await self._merge(PODS, pod, {"status": {"conditions": [refused]}})

    async def stranger(self, name: str, *, node: str, gpus: int, **labels: str) -> None:
        """A pod of somebody else takes GPUs of a node."""
        container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "else", "labels": labels},
            "spec": {"containers": [container], "nodeName": node},
            "status": {"phase": "Running"},
        }
        await self.server.create(PODS, obj=pod)

    async def _count_pods(self, job: Object) -> None:
        job_pods = [
            pod for pod in self.pods() if pod["metadata"]["labels"]["job-name"] == job["metadata"]["name"]
        ]
        done = sorted(index_of(pod) for pod in job_pods if phase_of(pod) == "Succeeded")
        failed = failures(job_pods)
        status: Object = {
            "active": sum(phase_of(pod) in {"Pending", "Running"} for pod in job_pods),
            "succeeded": len(done),
            "failed": failed,
            "completedIndexes": ",".join(map(str, done)),
        }
        started = (job.get("status") or {}).get("startTime")
        if started or not job["spec"]["suspend"]:
            status["startTime"] = started or utc_now()
        if len(done) == job["spec"]["completions"]:
            status["conditions"] = [{"type": "Complete", "status": "True", "lastTransitionTime": utc_now()}]
        elif failed > job["spec"].get("backoffLimit", 6):
            condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
            status["conditions"] = [{**condition, "lastTransitionTime": utc_now()}]
        if (job.get("status") or {}) != status:
            await self._merge(JOBS, job, {"status": status})

    async def run(self, job: str = "train") -> None:
        """The pods of a job that have a node run."""
        for pod in self.pods(job):
            if pod["spec"].get("nodeName") and phase_of(pod) == "Pending":
                ready = {"type": "Ready", "status": "True"}
                await self._merge(PODS, pod, {"status": {"phase": "Running", "conditions": [ready]}})

    async def evict(self, pod: Object, *, reason: str = "EvictionByEvictionAPI") -> None:
        """The cluster ends a pod."""
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        await self._merge(PODS, pod, {"status": {"phase": "Failed", "conditions": [disrupted]}})

    async def end(self, pod: Object, *, code: int = 0) -> None:
        """A pod ends."""
        state = {
            "terminated": {
                "exitCode": code,
                "reason": "Error" if code else "Completed",
                "finishedAt": utc_now(),
            }
        }
        status: Object = {"phase": "Failed" if code else "Succeeded", "conditions": []}
        containers = [{"name": "main", "state": state}]
        await self._merge(PODS, pod, {"status": {**status, "containerStatuses": containers}})

    async def _merge(self, resource: Resource, obj: Object, patch: Object) -> None:
        metadata = obj["metadata"]
        await self.server.merge(resource, name=metadata["name"], namespace=metadata["namespace"], patch=patch)

    # What users do and see.

    async def create(
        self,
        name: str = "train",
        *,
        workers: int = 2,
        gpus: int = 1,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A job of so many workers with so many GPUs each."""
        job_spec = with_roles({"roles": {"Worker": role(workers, gpus=gpus)}, **spec})
        metadata: Object = {"name": name, "namespace": "n", **({"labels": labels} if labels else {})}
        job = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": job_spec}
        await self.server.create(TRAINING_JOBS, obj=job)

    async def change(self, name: str = "train", **spec: Any) -> None:
        """Merge fields into a job's spec."""
        await self.server.merge(TRAINING_JOBS, name=name, namespace="n", patch={"spec": spec})

    def status(self, name: str = "train") -> Object:
        return dict(self.server.store(TRAINING_JOBS).get(("n", name), {}).get("status") or {})

    def condition(self, kind: str, name: str = "train") -> Object:
        conditions = self.status(name).get("conditions") or ()
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def job(self, name: str) -> Object:
        return self.server.store(JOBS)["n", name]

    def training_job(self, name: str) -> Object:
        return self.server.store(TRAINING_JOBS)["n", name]

    def pods(self, job: str = "") -> list[Object]:
        """All pods of jobs, or those of one, by name."""
        labelled = [
            (key, (pod["metadata"].get("labels") or {}).get(names.LABEL_TRAINING_JOB), pod)
            for key, pod in self.server.store(PODS).items()
            if key[0] == "n"
        ]
        return [
            pod
            for _, owner, pod in sorted(labelled, key=lambda entry: entry[0])
            if owner and job in ("", owner)
        ]

    def bound(self, job: str) -> int:
        """How many pods of a job have a node."""
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.pods(job))

    def events(self) -> list[str]:
        """The reasons of all events."""
        return sorted(event["reason"] for event in self.server.store(EVENTS).values())

    async def until(
        self, holds: Callable[[], object], *, play: bool = True, kubelet: bool = False, deadline: float = 60.0
    ) -> None:
        """Until it holds, while the rest of Kubernetes plays on; with `kubelet`, pods run and end by themselves."""

        async def look() -> bool:
            assert not self.defects, self.defects
            if play:
                await self.play()
            if kubelet:
                await self.kubelet()
            return bool(holds())

        await eventually_async(look, deadline=deadline, interval=0.02, describe=self._describe)

    async def until_state(self, state: str, name: str = "train", *, kubelet: bool = False) -> None:
        """Until the job is in a state."""
        await self.until(lambda: self.status(name).get("state") == state, kubelet=kubelet)

    async def until_running(self, name: str = "train") -> None:
        """Until the job runs; its pods with a node run whenever it is tried, also those of a later try."""

        async def look() -> bool:
            await self.play()
            await self.run(name)
            return bool(self.status(name).get("state") == "Running")

        await eventually_async(look, deadline=60.0, interval=0.02, describe=self._describe)

    def _describe(self) -> str:
        return "\n".join(
            f"{resource.kind} {key}: {obj.get('status')}"
            for resource in (TRAINING_JOBS, JOBS, PODS)
            for key, obj in self.server.store(resource).items()
        )


EPOCH = "1970-01-01T00:00:00Z"


def time_at(seconds: float) -> str:
    """A time of the API, so many seconds after 1970."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def role(replicas: int, *, gpus: int = 0) -> Object:
    """The pods of a role."""
    limits = {GPU: str(gpus)} if gpus else {}
    container = {"name": "main", "image": "train", "resources": {"limits": limits}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


def phase_of(pod: Object) -> str:
    return str(pod["status"]["phase"])


def failures(pods: list[Object]) -> int:
    """How many pods failed in a way that counts to the backoffLimit of their Job."""
    return sum(
        phase_of(pod) == "Failed"
        and all(condition["type"] != "DisruptionTarget" for condition in conditions_of(pod))
        for pod in pods
    )


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][names.ANNOTATION_COMPLETION_INDEX])


def conditions_of(obj: Object) -> list[Object]:
    return list((obj.get("status") or {}).get("conditions") or ())
