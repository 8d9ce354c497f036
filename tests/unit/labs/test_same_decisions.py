"""The simulator and the operator come to the same decisions from equal states.

Both walk through the same random story: jobs are submitted, start and end. The simulator decides by its own state, the
operator by objects as the API server and the agents have them.
"""

import asyncio
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.api import names
from tdcs.api.dataset import Copy, DatasetStatus
from tdcs.api.dataset import Dataset as DatasetObject
from tdcs.control.context import WorkKey
from tdcs.control.dataset import cache_users
from tdcs.control.dataset.cache_manager import CacheManager
from tdcs.control.dataset.mount.mount_readers import Reader, all_wants
from tdcs.decide.cache.grants import MountDemand
from tdcs.decide.cache.mount_standing import standing
from tdcs.decide.place import placement_input
from tdcs.decide.place.slot_nodes import NodeView
from tdcs.model.agent_state import AgentState, MountState
from tdcs.model.cache_engine import WorkerInfo
from tdcs.model.cache_view import CacheView
from tdcs.model.kube_resources import DATASETS
from tdcs.model.manifest_format import totals_of
from tdcs_labs.cluster import Cluster
from tdcs_labs.job import SimJob
from tdcs_labs.scenario import Scenario, pods_of
from tdcs_labs.schemes.cache_plan import POLICIES, spec_of, time_at
from tdcs_labs.schemes.tdcs import Tdcs
from tdcs_labs.workload import Dataset

GPU = names.GPU_RESOURCE


def sim_job(*, number: int, submitted: float, gpus: int, dataset: Dataset) -> SimJob:
    return SimJob(
        number=number,
        submitted=submitted,
        gpus=gpus,
        pods=pods_of(gpus=gpus, gpus_per_node=8),
        dataset=dataset,
        compute=1e8,
        work=1e12,
        cost=1e-9,
    )


# --- the cache


@dataclass
class Operator:
    """The operator's side: objects, what agents say, and its cache manager."""

    scenario: Scenario
    manager: CacheManager = field(default_factory=lambda: CacheManager(on_change=lambda cluster, path: None))
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, DatasetStatus] = field(default_factory=dict)
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    jobs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    before: dict[str, dict[str, dict[str, frozenset[str]]]] = field(default_factory=dict)

    def create(self, dataset: Dataset, *, now: str) -> None:
        self.datasets[dataset.name] = {
            "metadata": {"name": dataset.name, "namespace": "n", "creationTimestamp": now},
            "spec": spec_of(dataset, scenario=self.scenario),
        }
        self.sizes[dataset.name] = int(dataset.size_bytes)

    def job(self, job: SimJob, condition: str) -> None:
        """A TrainingJob that waits, was admitted, or has ended."""
        conditions = [{"type": condition, "status": "True", "reason": "x"}] if condition else []
        self.jobs["n", f"job-{job.number}"] = {
            "metadata": {
                "name": f"job-{job.number}",
                "namespace": "n",
                "creationTimestamp": time_at(job.submitted),
            },
            "spec": {"datasets": [{"name": job.dataset.name, "mountPath": "/data"}]},
            "status": {
                "conditions": conditions,
                "copies": [{"dataset": job.dataset.name, "copy": job.copy or "0"}],
            },
        }

    def grants(self, *, free: dict[str, int], now: str) -> dict[str, dict[str, int]]:
        """One pass over all mounts: bytes on each node, by dataset."""
        active = {
            job["spec"]["datasets"][0]["name"]
            for job in self.jobs.values()
            if [condition["type"] for condition in job["status"]["conditions"]] == [names.ADMITTED]
        }
        stores = SimpleNamespace(
            training_jobs=self.jobs,
            preloads={},
            usage=SimpleNamespace(is_mounted=lambda claim: claim[1] in active, users_of=lambda claim: ()),
        )
        settings = SimpleNamespace(clone_idle_seconds=self.scenario.clone_idle_seconds)
        context: Any = SimpleNamespace(stores=stores, now=lambda: now, settings=settings)
        nodes = {name: NodeView(name=name, labels={}, free_gpus=gpus) for name, gpus in free.items()}
        cache_nodes = placement_input.cache_nodes(view=self._view(), nodes=nodes, cluster=None)
        demands, idle = [], {}
        for name, obj in self.datasets.items():
            dataset = DatasetObject.model_validate(obj).model_copy(update={"status": self.statuses.get(name)})
            user = Reader(key=WorkKey(DATASETS, "n", name), obj=obj, dataset=dataset)
            uses = cache_users.of_mount(context=context, users=[user], queue=[])
            use = uses[user.own_want].use
            further = cache_users.clones_of(context=context, users=[user], uses=uses)
            idle[name] = {clone.id: clone.idle_since for clone in further[user.own_want]}
            self.statuses[name] = DatasetStatus(
                in_use=use.mounted, active_jobs=len(use.jobs.active), last_used_time=use.last_used
            )
            hosts = placement_input.hosts(path=name, cache=cache_nodes, expected=(), now=1.0, patience=1.0)
            totals = totals_of(self.sizes[name])
            stands = standing(list(uses.values()), size=totals.block_bytes, policies=POLICIES, now=now)
            wants = all_wants(stores=stores, users=[user], now=now)  # type: ignore[arg-type]
            wants += cache_users.clone_wants([user], wants, further)
            demands.append(
                MountDemand(
                    path=name,
                    manifest=name,
                    wants=tuple(wants),
                    totals={(): totals},
                    candidates=hosts.candidates,
                    tier=stands.tier,
                    value=stands.value,
                    held_before=self.before.get(name, {}),
                )
            )
        self.manager.register(cluster="c", demands=demands)
        if demands:
            asyncio.run(
                self.manager.grant(cluster="c", demand=demands[0], nodes=cache_nodes.spaces, quotas={})
            )
        mounts = self.manager.grants("c").mounts
        for name, grant in mounts.items():
            self.held[name] = {node: size for node, size in grant.node_bytes.items() if size}
            nodes_of = {
                placed.want.key: {copy.id: frozenset(node for node in copy.nodes if placed.bytes_for(node))}
                for placed in grant.placements
                for copy in placed.copies
            }
            self.before[name] = {key: held for key, held in nodes_of.items() if all(held.values())}
            # As its status says it.
            copies = [
                Copy(id=id_, idle_since=idle[name].get(id_))
                for held in self.before[name].values()
                for id_ in held
            ]
            self.statuses[name] = self.statuses[name].model_copy(update={"copies": copies})
        return self.held

    def _view(self) -> CacheView:
        capacity = int(self.scenario.cache_bytes)
        states = {
            node: AgentState(
                node=node,
                instance="i",
                revision=1,
                capacity_bytes=capacity,
                mounts={
                    name: MountState(mount=name, held_bytes=held[node])
                    for name, held in self.held.items()
                    if held.get(node)
                },
            )
            for node in self.scenario.node_names()
        }
        workers = tuple(
            WorkerInfo(name=node, address="", capacity_bytes=capacity, used_bytes=0, live=True)
            for node in states
        )
        return CacheView(since=0.0, answered=True, workers=workers, agents=states)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 5))
def test_from_equal_states_every_dataset_is_granted_the_same_bytes_on_the_same_nodes(
    seed: int, nodes: int
) -> None:
    draw = random.Random(seed)
    limit = draw.choice([0, 0, 1, 2])
    scenario = Scenario(
        nodes=nodes,
        cache_bytes=draw.choice([1e6, 3e6, 1e7]),
        jobs_per_copy=limit,
        clones=limit > 0 and draw.random() < 0.7,
        clone_idle_seconds=draw.choice([0.0, 150.0]),
    )
    cluster = Cluster(scenario=scenario)
    scheme, operator = Tdcs(scenario=scenario, cluster=cluster), Operator(scenario)
    datasets = [
        Dataset(name=f"d{number}", size_bytes=float(draw.randint(1, 8_000_000)), object_bytes=1e5)
        for number in range(draw.randint(1, 5))
    ]
    number = 0
    for step in range(10):
        now = 60.0 * step
        for _ in range(draw.randint(0, 3)):
            job = sim_job(
                number=number, submitted=now, gpus=draw.choice([1, 2, 8]), dataset=draw.choice(datasets)
            )
            number += 1
            if job.dataset.name not in operator.datasets:
                operator.create(job.dataset, now=time_at(now))
            cluster.enqueue(job)
            scheme.arrived(job, now=now)
            operator.job(job, "")
        running = list(cluster.running.values())
        for job in draw.sample(running, k=draw.randint(0, len(running))):
            cluster.release(job)
            scheme.finished(job, now=now)
            operator.job(job, names.SUCCEEDED)
        for entering in cluster.jobs_of(cluster.next_turns(now=now).admitted):
            scheme.admitted(entering, now=now)
            if cluster.place(entering, scores=scheme.scores(entering), now=now):
                scheme.started(entering, now=now)
                operator.job(entering, names.ADMITTED)
        scheme._plan(now=now)
        for cached in scheme.cached.values():
            cached.filled = cached.planned  # all is loaded until the next step
        mine: dict[str, dict[str, int]] = {}
        for cached in scheme.cached.values():
            held = mine.setdefault(cached.dataset.name, {})
            for node, size in cached.nodes.items():
                held[node] = held.get(node, 0) + int(size)
        assert mine == operator.grants(free=dict(cluster.free), now=time_at(now))
