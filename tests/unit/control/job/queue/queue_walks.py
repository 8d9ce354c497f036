"""Random walks of the queue of jobs: users, nodes, Kueue and a mortal operator do anything, and nothing may go wrong.

`python -m tests.unit.control.job.queue.queue_walks --walks 1000 --seed 0` (`make queue-walks`). Time is virtual. A walk
that fails prints its seed, its steps, and all statuses.
"""

import argparse
import asyncio
import contextlib
import copy
import datetime
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from tests.support import virtual_time
from tests.unit.control.jobs import GPU, Jobs, conditions_of, phase_of

from tdcs.api import names
from tdcs.control.context import WorkKey
from tdcs.control.job_index import has_ended
from tdcs.decide.queue.node_requests import NodeProvisioning
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    JOBS,
    NAMESPACES,
    NODES,
    POD_TEMPLATES,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_REQUESTS,
    TRAINING_JOBS,
    WORKLOADS,
)

NODES_GPUS: Final = {"a": 4, "b": 4, "c": 4}
MAX_PASSES: Final = 3
START: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
QUIET_ROUNDS: Final = 4
"""So many rounds in which nobody writes anything: then all has come to rest."""

STEPS: Final = 40
LAST_SECONDS: Final = 12 * 3600.0
"""Virtual seconds in which all jobs must have ended, once nothing disturbs them any more."""

KUEUE_QUOTA: Final = 6
"""GPUs that the stand-in for Kueue gives to its workloads together."""

WAYS: Final[tuple[NodeProvisioning, ...]] = ("Off", "Release", "ProvisioningRequest")
"""How the operator of a walk has gangs ask for nodes."""

MOST_NODES: Final = 3
"""So many nodes come at most, next to those that are there from the beginning."""

ANSWERS: Final = ("Provisioned", "Provisioned", "Accepted", "Failed", "BookingExpired", "CapacityRevoked")
"""What an autoscaler says of a ProvisioningRequest; that it never answers is another way."""

ENDED_PODS: Final = frozenset({"Succeeded", "Failed"})


class WrongError(AssertionError):
    """What must always hold does not."""


def virtual_now() -> str:
    """The walk's time, as the API writes it."""
    moment = START + datetime.timedelta(seconds=asyncio.get_running_loop().time())
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Walk(Jobs):
    """One walk: a cluster, whatever happens to it, and what must hold.

    Args:
        seed: of all that is random.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(
            gpus=NODES_GPUS,
            max_passes=MAX_PASSES,
            kueue=True,
            preempts=True,
            provisioning=random.Random(f"nodes of {seed}").choice(WAYS),
            clock=lambda: asyncio.get_running_loop().time(),
        )
        for node in self.server.store(NODES).values():
            node["metadata"]["generation"] = 1
        self.draw = random.Random(seed)
        self._kueues_mind = random.Random(f"Kueue of {seed}")
        self.steps: list[str] = []
        self.met: Counter[str] = Counter()
        self._number = 0
        self._strangers: list[str] = []

    def now(self) -> str:
        """The operator's time is the walk's."""
        return virtual_now()

    # The rest of the cluster.

    async def play(self, *, schedule: bool = True) -> None:
        """One round of everything but the operator."""
        await self._end_orphans()
        await super().play(schedule=schedule)
        await self._kueue_round()

    async def _end_orphans(self) -> None:
        """The garbage collector: what belongs to a TrainingJob that is gone goes."""
        uids = {job["metadata"]["uid"] for job in self.server.store(TRAINING_JOBS).values()}
        for resource in (JOBS, WORKLOADS, PROVISIONING_REQUESTS, POD_TEMPLATES):
            for (namespace, name), obj in list(self.server.store(resource).items()):
                owners = {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}
                if owners and not owners & uids:
                    await self.server.delete(resource, name=name, namespace=namespace)

    async def _kueue_round(self) -> None:
        """Kueue: reserves quota, at times with a check that is pending for a while; and evicts what is inactive."""
        held = 0
        waiting = []
        for _, obj in sorted(self.server.store(WORKLOADS).items()):
            if self.workload_is(obj, "Finished"):
                continue
            if self.workload_is(obj, "QuotaReserved"):
                held += assigned_gpus(obj)
                if obj["spec"].get("active") is False and not self.workload_is(obj, "Evicted"):
                    await self._workload(obj, {"Evicted": "True"}, reason="Deactivated")
                elif not self.workload_is(obj, "Admitted") and self._kueues_mind.random() < 0.4:
                    # It admits what it has reserved, whatever has become of the job.
                    ready = {"name": "check", "state": "Ready", "message": ""}
                    await self._workload(obj, {"Admitted": "True"}, admissionChecks=[ready])
            elif obj["spec"].get("active", True) and not self._passed_over(obj):
                waiting.append(obj)
        for obj in sorted(waiting, key=lambda workload: -workload["spec"]["priority"]):
            sets = self._fitting(obj, free=KUEUE_QUOTA - held)
            if sets is None:
                continue
            waits = self._kueues_mind.random() < 0.5
            check = {"name": "check", "state": "Pending" if waits else "Ready", "message": ""}
            admission = {"clusterQueue": "q", "podSetAssignments": sets}
            admitted = "False" if waits else "True"
            statuses = {"QuotaReserved": "True", "Admitted": admitted, "Evicted": "False"}
            workload_now = {**obj, "status": {"admission": admission}}
            held += assigned_gpus(workload_now)
            await self._workload(obj, statuses, admission=admission, admissionChecks=[check])

    def _passed_over(self, obj: Object) -> bool:
        """Whether Kueue does not look at a Workload: it is gated, on hold, or pauses."""
        status_by_type = {
            condition["type"]: (condition["status"], condition["reason"]) for condition in conditions_of(obj)
        }
        return (
            names.KUEUE_GATED_BY in (obj["metadata"].get("annotations") or {})
            or status_by_type.get("QuotaReserved") == ("False", "OnHold")
            or status_by_type.get("Requeued") == ("False", "PodsReadyTimeout")
        )

    def _fitting(self, obj: Object, *, free: int) -> list[Object] | None:
        """What Kueue assigns to the pod sets: all pods, or of an elastic gang as many as fit; None: it waits."""
        sets = obj["spec"]["podSets"]
        counts = {pod_set["name"]: pod_set["count"] for pod_set in sets}
        gpus = {pod_set["name"]: _gpus_of(pod_set["template"]["spec"]) for pod_set in sets}
        while sum(count * gpus[name] for name, count in counts.items()) > free:
            smaller = [
                pod_set["name"]
                for pod_set in sets
                if counts[pod_set["name"]] > pod_set.get("minCount", pod_set["count"])
            ]
            if not smaller:
                return None
            counts[smaller[0]] -= 1
        return [{"name": name, "count": count, "flavors": {}} for name, count in counts.items()]

    def workload_is(self, obj: Object, kind: str) -> bool:
        return any(
            condition["type"] == kind and condition["status"] == "True" for condition in conditions_of(obj)
        )

    async def _workload(
        self, obj: Object, statuses: dict[str, str], *, reason: str = "Walk", **status: Any
    ) -> None:
        old = {condition["type"]: condition for condition in conditions_of(obj)}
        new = {
            kind: {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": reason,
                "lastTransitionTime": virtual_now(),
            }
            for kind, value in statuses.items()
        }
        patch_ = {"status": {"conditions": list({**old, **new}.values()), **status}}
        await self.server.merge(WORKLOADS, name=obj["metadata"]["name"], namespace="n", patch=patch_)

    # What happens.

    async def step(self) -> None:
        """Something happens."""
        actions: dict[Callable[[], Any], int] = {
            self.submit: 8,
            self.start_pods: 12,
            self.end_job: 5,
            self.fail_pod: 2,
            self.evict_pod: 2,
            self.delete_pod: 1,
            self.cordon: 2,
            self.drain: 1,
            self.uncordon: 3,
            self.suspend: 1,
            self.resume: 2,
            self.delete_job: 1,
            self.pause_queue: 1,
            self.resume_queue: 2,
            self.evict_workload: 2,
            self.deactivate: 1,
            self.activate: 2,
            self.come: 1,
            self.leave: 2,
            self.resize: 2,
            self.move: 1,
            self.change_waiting: 5,
            self.change_queue: 1,
            self.nodes_come: 3,
            self.answer_request: 4,
            self.node_goes: 1,
            self.kill: 3,
        }
        for action in self.draw.choices(list(actions), weights=list(actions.values()), k=8):
            if step := await action():
                self.met[action.__name__] += 1
                self.steps.append(f"{virtual_now()} {step}")
                return

    def _one(self, choices: list[Any]) -> Any:
        return self.draw.choice(choices) if choices else None

    def live(self) -> list[Object]:
        return [job for _, job in sorted(self.server.store(TRAINING_JOBS).items()) if not has_ended(job)]

    async def submit(self) -> str:
        self._number += 1
        name, draw = f"j{self._number:03}", self.draw
        workers, gpus = draw.choice([(1, 1), (2, 1), (4, 1), (1, 4), (2, 2), (2, 4), (3, 4), (6, 1), (8, 1)])
        spec: dict[str, Any] = {"framework": draw.choice(["PyTorch", "None", "PyTorch"])}
        priority = draw.choice(["", "", "low", "urgent", "patient"])
        if priority:
            spec["scheduling"] = {"priorityClassName": priority}
        if draw.random() < 0.15:
            spec["scheduling"] = {**spec.get("scheduling", {}), "gang": False}
        if workers > 1 and gpus == 1 and draw.random() < 0.4:
            spec["elastic"] = {"minReplicas": max(workers // 2, 1), "maxReplicas": 8}
        if draw.random() < 0.3:
            spec["runPolicy"] = {"activeDeadlineSeconds": draw.choice([60, 600, 3600])}
        in_kueue = draw.random() < 0.25 and workers * gpus <= KUEUE_QUOTA
        labels = {names.KUEUE_QUEUE: "gpu"} if in_kueue else None
        await self.create(name, workers=workers, gpus=gpus, labels=labels, **spec)
        return f"{name} of {workers} x {gpus} {spec} {'in Kueue' if in_kueue else ''}"

    async def start_pods(self) -> str:
        owners = {pod["metadata"]["labels"][names.LABEL_TRAINING_JOB] for pod in self.pods()}
        name = self._one(sorted(owners))
        if name is None:
            return ""
        await self.run(name)
        return f"pods of {name} run"

    async def end_job(self) -> str:
        running = [
            job["metadata"]["name"]
            for job in self.live()
            if (job.get("status") or {}).get("state") == "Running"
        ]
        name = self._one(running)
        if name is None:
            return ""
        for pod in self.pods(name):
            if phase_of(pod) == "Running":
                await self.end(pod)
        return f"{name} ends"

    def _pod(self) -> Object | None:
        running: Object | None = self._one([pod for pod in self.pods() if phase_of(pod) == "Running"])
        return running

    async def fail_pod(self) -> str:
        if (pod := self._pod()) is None:
            return ""
        await self.end(pod, code=1)
        return f"{pod['metadata']['name']} fails"

    async def evict_pod(self) -> str:
        if (pod := self._pod()) is None:
            return ""
        await self.evict(pod)
        return f"{pod['metadata']['name']} is evicted"

    async def delete_pod(self) -> str:
        if (pod := self._pod()) is None:
            return ""
        await self.server.delete(PODS, name=pod["metadata"]["name"], namespace="n")
        return f"{pod['metadata']['name']} is deleted"

    def _cordoned(self, cordoned: bool) -> list[str]:
        nodes = self.server.store(NODES).items()
        return [
            name
            for (_, name), node in nodes
            if bool((node.get("spec") or {}).get("unschedulable")) is cordoned
        ]

    async def _set_cordon(self, name: str, cordoned: bool) -> None:
        await self.server.merge(NODES, name=name, patch={"spec": {"unschedulable": cordoned}})

    async def cordon(self) -> str:
        free = self._cordoned(False)
        if len(free) < 2:
            return ""
        name = self._one(free)
        await self._set_cordon(name, True)
        return f"node {name} is cordoned"

    async def drain(self) -> str:
        if not (cordoned := await self.cordon()):
            return ""
        name = cordoned.split()[1]
        for pod in self.pods():
            if pod["spec"].get("nodeName") == name and phase_of(pod) in {"Running", "Pending"}:
                await self.evict(pod)
        return f"node {name} is drained"

    async def uncordon(self) -> str:
        name = self._one(self._cordoned(True))
        if name is None:
            return ""
        await self._set_cordon(name, False)
        return f"node {name} is uncordoned"

    async def _suspend(self, suspended: bool) -> str:
        jobs = [
            job["metadata"]["name"]
            for job in self.live()
            if bool((job["spec"].get("runPolicy") or {}).get("suspend")) is not suspended
        ]
        name = self._one(jobs)
        if name is None:
            return ""
        await self.change(name, runPolicy={"suspend": suspended})
        return f"{name} is {'suspended' if suspended else 'resumed'}"

    async def suspend(self) -> str:
        return await self._suspend(True)

    async def resume(self) -> str:
        return await self._suspend(False)

    async def delete_job(self) -> str:
        job = self._one(self.live())
        if job is None:
            return ""
        await self.server.delete(TRAINING_JOBS, name=job["metadata"]["name"], namespace="n")
        return f"{job['metadata']['name']} is deleted"

    async def _stop_queue(self, word: str | None) -> str:
        patch_ = {"metadata": {"annotations": {names.ANNOTATION_QUEUE_STOP: word}}}
        await self.server.merge(NAMESPACES, name="n", patch=patch_)
        return f"the queue's stop policy is {word}"

    async def pause_queue(self) -> str:
        return await self._stop_queue(self.draw.choice(["Hold", "HoldAndDrain"]))

    async def resume_queue(self) -> str:
        return await self._stop_queue(None)

    def _workloads(self, *, holds: bool | None = None, active: bool | None = None) -> list[Object]:
        return [
            obj
            for _, obj in sorted(self.server.store(WORKLOADS).items())
            if not self.workload_is(obj, "Finished")
            and holds in (None, self.workload_is(obj, "QuotaReserved"))
            and active in (None, obj["spec"].get("active", True))
        ]

    async def evict_workload(self) -> str:
        obj = self._one(self._workloads(holds=True))
        if obj is None:
            return ""
        await self._workload(obj, {"Evicted": "True"}, reason="Preempted")
        return f"Kueue evicts {obj['metadata']['name']}"

    async def _activate(self, active: bool) -> str:
        obj = self._one(self._workloads(active=not active))
        if obj is None:
            return ""
        patch_ = {"spec": {"active": active}}
        await self.server.merge(WORKLOADS, name=obj["metadata"]["name"], namespace="n", patch=patch_)
        return f"somebody sets active of {obj['metadata']['name']} to {active}"

    async def deactivate(self) -> str:
        return await self._activate(False)

    async def activate(self) -> str:
        return await self._activate(True)

    async def come(self) -> str:
        node = self.draw.choice(sorted(NODES_GPUS))
        free = NODES_GPUS[node] - self.usage.taken(node).get(GPU, 0)
        if free <= 0 or len(self._strangers) > 2:
            return ""
        self._number += 1
        name = f"stranger-{self._number}"
        self._strangers.append(name)
        await self.stranger(name, node=node, gpus=self.draw.randint(1, free))
        return f"{name} takes GPUs of {node}"

    async def leave(self) -> str:
        if not self._strangers:
            return ""
        name = self._strangers.pop(self.draw.randrange(len(self._strangers)))
        await self.server.delete(PODS, name=name, namespace="else")
        return f"{name} leaves"

    async def resize(self) -> str:
        job = self._one([job for job in self.live() if job["spec"].get("elastic")])
        if job is None:
            return ""
        bounds = job["spec"]["elastic"]
        # More than all of the queue's quota would never start.
        in_kueue = names.KUEUE_QUEUE in (job["metadata"].get("labels") or {})
        most = min(bounds["maxReplicas"], KUEUE_QUOTA) if in_kueue else bounds["maxReplicas"]
        workers = self.draw.randint(bounds["minReplicas"], most)
        await self.change(job["metadata"]["name"], workers=workers)
        return f"{job['metadata']['name']} shall have {workers} workers"

    async def move(self) -> str:
        job = self._one(self.live())
        if job is None:
            return ""
        rank = self.draw.randint(-3, 3)
        await self.change(job["metadata"]["name"], scheduling={"rank": rank})
        return f"{job['metadata']['name']} gets rank {rank}"

    def _in_kueue(self, *, admitted: bool | None = None) -> list[Object]:
        """The jobs that Kueue decides about; `admitted`: only those that are, or are not."""
        return [
            job
            for job in self.live()
            if (job["metadata"].get("labels") or {}).get(names.KUEUE_QUEUE)
            and admitted
            in (None, self.condition("Admitted", job["metadata"]["name"]).get("status") == "True")
        ]

    async def change_waiting(self) -> str:
        """A job that waits in Kueue, or holds quota while a check is pending, gets other pods or another priority."""
        job = self._one(self._in_kueue(admitted=False))
        if job is None:
            return ""
        name, spec = job["metadata"]["name"], job["spec"]
        if self.draw.random() < 0.3:
            priority = self.draw.choice(["low", "urgent"])
            await self.change(name, scheduling={"priorityClassName": priority})
            return f"{name}, which waits in Kueue, gets priority {priority}"
        sizes = [(1, 1), (2, 1), (4, 1), (1, 4), (2, 2), (3, 2), (6, 1)]
        if spec.get("elastic"):
            bounds = spec["elastic"]
            sizes = [
                (n, 1) for n in range(bounds["minReplicas"], min(bounds["maxReplicas"], KUEUE_QUOTA) + 1)
            ]
        workers, gpus = self.draw.choice(sizes)
        roles = copy.deepcopy(spec["replicaSpecs"])
        for role in roles:
            role["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = str(gpus)
        await self.change(name, workers=workers, replicaSpecs=roles)
        return f"{name}, which waits in Kueue, shall have {workers} x {gpus}"

    async def change_queue(self) -> str:
        """A job leaves Kueue, or goes to another of its queues, whether it runs or not: there is no policy here."""
        job = self._one(self._in_kueue())
        if job is None:
            return ""
        name, queue = job["metadata"]["name"], self.draw.choice([None, "gpu", "other"])
        patch_ = {"metadata": {"labels": {names.KUEUE_QUEUE: queue}}}
        await self.server.merge(TRAINING_JOBS, name=name, namespace="n", patch=patch_)
        return f"{name} goes to the queue {queue}"

    def _came(self) -> list[str]:
        return sorted(name for _, name in self.server.store(NODES) if name not in NODES_GPUS)

    async def _add_nodes(self, count: int) -> list[str]:
        """Nodes come, as far as there may be so many."""
        added = []
        for _ in range(min(count, MOST_NODES - len(self._came()))):
            self._number += 1
            added.append(f"x{self._number:03}")
            node = {
                "metadata": {
                    "name": added[-1],
                    "labels": {"kubernetes.io/hostname": added[-1]},
                    "creationTimestamp": virtual_now(),
                    "generation": 1,
                },
                "status": {"allocatable": {GPU: "4", "cpu": "96", "pods": "110"}},
            }
            await self.server.create(NODES, obj=node)
        return added

    async def nodes_come(self) -> str:
        """Karpenter sees pods without a node: some come for them, be they too few."""
        if all(pod["spec"].get("nodeName") for pod in self.pods()):
            return ""
        added = await self._add_nodes(self.draw.randint(1, 2))
        return f"nodes {added} come" if added else ""

    async def answer_request(self) -> str:
        """The autoscaler answers a ProvisioningRequest: with nodes, be they too few, or with none."""
        request = self._one([obj for _, obj in sorted(self.server.store(PROVISIONING_REQUESTS).items())])
        if request is None:
            return ""
        answer = self.draw.choice(ANSWERS)
        added = await self._add_nodes(self.draw.randint(0, 3)) if answer == "Provisioned" else []
        conditions = {condition["type"]: condition for condition in conditions_of(request)}
        conditions[answer] = {"type": answer, "status": "True", "reason": answer, "message": answer}
        name = request["metadata"]["name"]
        patch_ = {"status": {"conditions": list(conditions.values())}}
        await self.server.merge_status(PROVISIONING_REQUESTS, name=name, namespace="n", patch=patch_)
        for namespace, job in list(self.server.store(TRAINING_JOBS)):
            if name == f"trainingjob-{job}":
                self.context.queue.add(WorkKey(TRAINING_JOBS, namespace, job))
        return f"{name} is {answer}, nodes {added} come"

    async def node_goes(self) -> str:
        """A node that came is taken back, with all that is on it."""
        name = self._one(self._came())
        if name is None:
            return ""
        for pod in self.pods():
            if pod["spec"].get("nodeName") == name and phase_of(pod) in {"Running", "Pending"}:
                await self.evict(pod)
        await self.server.delete(NODES, name=name)
        return f"node {name} goes"

    async def kill(self) -> str:
        """The operator is killed with one of its next writes, and another one starts."""
        await self.stop()
        after = self.draw.randint(1, 12)
        await self.start(killed_after=after)
        for _ in range(self.draw.randint(0, 3)):
            step = await self.draw.choice(
                [self.submit, self.end_job, self.start_pods, self.evict_pod, self.resize]
            )()
            self.steps.append(f"{virtual_now()} meanwhile {step}")
            await self._rounds(3)
        await self.stop()
        await self.start()
        return f"an operator was killed with its write number {after}"

    # What must hold.

    async def _rounds(self, count: int, *, seconds: float = 1.0) -> None:
        for _ in range(count):
            await self.play()
            await asyncio.sleep(seconds)
            self._check_always()

    async def rest(self, *, most: int = 60) -> bool:
        """Until nobody writes anything for some rounds; whether it came to that."""
        quiet = 0
        for _ in range(most):
            before = len(self.server.writes)
            await self._rounds(1)
            quiet = quiet + 1 if len(self.server.writes) == before else 0
            if quiet >= QUIET_ROUNDS:
                return True
        return False

    def _check_always(self) -> None:
        """At every moment: no GPU is taken twice, and nothing failed in the operator."""
        if self.defects:
            raise WrongError("".join(traceback.format_exception(self.defects[0])))
        gpus_by_node: Counter[str] = Counter()
        for pod in self.server.store(PODS).values():
            if phase_of(pod) not in ENDED_PODS and pod["spec"].get("nodeName"):
                gpus_by_node[pod["spec"]["nodeName"]] += _gpus_of(pod["spec"])
        for (_, node), obj in self.server.store(NODES).items():
            gpus = int(obj["status"]["allocatable"][GPU])
            if gpus_by_node[node] > gpus:
                raise WrongError(f"pods on node {node} have {gpus_by_node[node]} GPUs of {gpus}")
        self._check_quota()

    def _check_quota(self) -> None:
        """Pods of jobs in Kueue take no more GPUs than their Workload has quota for."""
        gpus_by_job: Counter[str] = Counter()
        for pod in self.pods():
            if phase_of(pod) not in ENDED_PODS:
                gpus_by_job[pod["metadata"]["labels"][names.LABEL_TRAINING_JOB]] += _gpus_of(pod["spec"])
        for job in self._in_kueue():
            name = job["metadata"]["name"]
            obj = self.server.store(WORKLOADS).get(("n", f"trainingjob-{name}"))
            if obj is not None and self.workload_is(obj, "Finished"):
                continue
            held = 0 if obj is None or not self.workload_is(obj, "QuotaReserved") else assigned_gpus(obj)
            if gpus_by_job[name] > held:
                raise WrongError(
                    f"pods of {name} take {gpus_by_job[name]} GPUs, and Kueue has given it {held}"
                )

    def check_at_rest(self) -> None:
        """Once nothing changes: pods are those of admitted jobs, gangs are whole, quota is held for what was admitted,
        and a job that was passed too often has nodes set aside."""
        by_job = Counter(
            pod["metadata"]["labels"][names.LABEL_TRAINING_JOB]
            for pod in self.pods()
            if phase_of(pod) not in ENDED_PODS
        )
        for job in self.live():
            name = job["metadata"]["name"]
            state = self.condition("Admitted", name).get("status")
            if state != "True" and by_job[name]:
                raise WrongError(f"{name} is not admitted, and has {by_job[name]} pods")
        for job_name in by_job:
            if ("n", job_name) not in self.server.store(TRAINING_JOBS):
                raise WrongError(f"{job_name} is gone, and its pods are there")
        for _, name in self.server.store(PROVISIONING_REQUESTS):
            owner = name.removeprefix("trainingjob-")
            if self.condition("NodesRequested", owner).get("status") != "True":
                raise WrongError(f"ProvisioningRequest {name} asks for nodes that nobody waits for")
        for (_, name), obj in self.server.store(WORKLOADS).items():
            owner = name.removeprefix("trainingjob-")
            admitted = self.condition("Admitted", owner).get("status") == "True"
            holds = self.workload_is(obj, "QuotaReserved") and not self.workload_is(obj, "Finished")
            if ("n", owner) not in self.server.store(TRAINING_JOBS):
                raise WrongError(f"Workload {name} is there, and its job is gone")
            labels = self.training_job(owner)["metadata"].get("labels") or {}
            if not labels.get(names.KUEUE_QUEUE) and not has_ended(self.training_job(owner)):
                raise WrongError(f"Workload {name} is there, and its job has left Kueue")
            if holds and self.workload_is(obj, "Admitted") and not admitted:
                raise WrongError(f"Workload {name} holds quota for a job that is not admitted")
            if has_ended(self.training_job(owner)):
                continue
            if admitted and not holds:
                raise WrongError(f"{owner} is admitted without quota of its Workload")
            if admitted and self.training_job(owner)["spec"].get("elastic") is None:
                (pods,) = obj["spec"]["podSets"]
                job_spec = self.job(f"{owner}-worker")["spec"]
                gpus = job_spec["completions"] * _gpus_of(job_spec["template"]["spec"])
                if (pods["count"], gpus) != (job_spec["completions"], assigned_gpus(obj)):
                    raise WrongError(f"{owner} asks for {gpus} GPUs, and has quota for {assigned_gpus(obj)}")
        self._check_starving()

    def _check_starving(self) -> None:
        schedule = self.gangs._schedule
        if schedule is None or schedule.holder:
            return
        for job in schedule.waiting:
            if not job.runs and job.ready and not job.pauses and job.passed > MAX_PASSES:
                raise WrongError(
                    f"{job.key[1]} was passed {job.passed} times, and no node is set aside for it"
                )

    async def repair(self) -> None:
        """Nothing disturbs anybody any more."""
        for name in self._cordoned(True):
            await self._set_cordon(name, False)
        while await self.leave():
            pass
        await self._stop_queue(None)
        for job in self.live():
            if (job["spec"].get("runPolicy") or {}).get("suspend"):
                await self.change(job["metadata"]["name"], runPolicy={"suspend": False})
        for obj in self._workloads(active=False):
            name = obj["metadata"]["name"]
            if names_suspended(obj):
                continue
            await self.server.merge(WORKLOADS, name=name, namespace="n", patch={"spec": {"active": True}})

    async def _end_one_of_the_gangless(self) -> bool:
        """Jobs with `gang: false` may hold GPUs that each other waits for: their user sees it, and deletes one."""
        waiting = [
            job
            for job in self.live()
            if (job["spec"].get("scheduling") or {}).get("gang") is False
            and {phase_of(pod) for pod in self.pods(job["metadata"]["name"])} >= {"Running", "Pending"}
        ]
        if len(waiting) < 2:
            return False
        await self.server.delete(TRAINING_JOBS, name=waiting[-1]["metadata"]["name"], namespace="n")
        return True

    async def finish(self) -> None:
        """Pods run and end well: every job ends, in a bounded time."""
        await self.repair()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_SECONDS
        while self.live():
            if loop.time() > deadline and await self._end_one_of_the_gangless():
                deadline = loop.time() + LAST_SECONDS
            if loop.time() > deadline:
                stuck = ", ".join(
                    f"{job['metadata']['name']} ({(job.get('status') or {}).get('reason')})"
                    for job in self.live()
                )
                raise WrongError(f"{stuck} did not end")
            await self._rounds(2)
            for job in self.live():
                name = job["metadata"]["name"]
                if (job.get("status") or {}).get("state") == "Running":
                    for pod in self.pods(name):
                        if phase_of(pod) == "Running":
                            await self.end(pod)
                await self.run(name)
            await asyncio.sleep(5.0)
        await self.rest()
        self.check_at_rest()
        if any(phase_of(pod) not in ENDED_PODS for pod in self.pods()):
            raise WrongError("all jobs have ended, and pods run")
        if requests := [name for _, name in self.server.store(PROVISIONING_REQUESTS)]:
            raise WrongError(f"all jobs have ended, and {requests} ask for nodes")


def names_suspended(obj: Object) -> bool:
    """Whether the operator made a Workload inactive: it makes it active again."""
    return "tdcs.io/suspended-by-user" in (obj["metadata"].get("annotations") or {})


def assigned_gpus(obj: Object) -> int:
    """GPUs for which a Workload has quota: so many pods of each set as were assigned, by the set's template."""
    gpus = {pod_set["name"]: _gpus_of(pod_set["template"]["spec"]) for pod_set in obj["spec"]["podSets"]}
    sets = ((obj.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    return sum(assignment["count"] * gpus[assignment["name"]] for assignment in sets)


def _gpus_of(pod: Object) -> int:
    return sum(
        int((container.get("resources") or {}).get("limits", {}).get(GPU, 0))
        for container in pod.get("containers") or ()
    )


async def walk(seed: int, *, steps: int = STEPS) -> Counter[str]:
    """One walk; gives what has happened in it.

    Raises:
        WrongError: what must hold does not.
    """
    with (
        patch("tests.unit.control.server.utc_now", virtual_now),
        patch("tests.unit.control.jobs.utc_now", virtual_now),
    ):
        random.seed(seed)  # pauses of the operator are random
        walk_of_seed = Walk(seed)
        for name, value, policy in (
            ("low", -5, "Never"),
            ("urgent", 100, "PreemptLowerPriority"),
            ("patient", 100, "Never"),
        ):
            obj = {
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": policy,
            }
            await walk_of_seed.server.create(PRIORITY_CLASSES, obj=obj)
        await walk_of_seed.server.create(NAMESPACES, obj={"metadata": {"name": "n"}})
        async with walk_of_seed:
            try:
                for _ in range(steps):
                    await walk_of_seed.step()
                    if walk_of_seed.draw.random() < 0.5:
                        if await walk_of_seed.rest():
                            walk_of_seed.check_at_rest()
                    else:
                        await walk_of_seed._rounds(walk_of_seed.draw.randint(1, 4))
                await walk_of_seed.finish()
            except WrongError as error:
                raise WrongError(
                    "\n".join([f"seed {seed}: {error}", *walk_of_seed.steps, walk_of_seed._describe()])
                ) from error
        walk_of_seed.met.update(
            f"event {event}"
            for event in set(walk_of_seed.events())
            & {
                "Preempted",
                "NotAllPodsPlaced",
                "QueueStopped",
                "PodsReleased",
                "NodesDidNotCome",
                "NodesCame",
            }
        )
        return walk_of_seed.met


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Random walks of the queue.")
    parser.add_argument("--walks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    met: Counter[str] = Counter()
    wrong, began = [], time.process_time()
    for seed in range(options.seed, options.seed + options.walks):
        try:
            with contextlib.redirect_stderr(sys.stdout):
                met.update(virtual_time.run(walk(seed)))
        except Exception as error:
            wrong.append(seed)
            print("".join(traceback.format_exception_only(error))[:20000], flush=True)
        if (done := seed + 1 - options.seed) % 25 == 0:
            print(f"{done} walks, wrong: {wrong}", flush=True)
    print(
        f"{options.walks} walks, {len(wrong)} wrong {wrong}, {time.process_time() - began:.0f} s of processor time"
    )
    print(", ".join(f"{name}: {count}" for name, count in sorted(met.items())))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
