"""Random clusters with pipelines: jobs of which only some workers read data, and how many of these can be near it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.generators.random_clusters import GB, shares

from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.protocol import Candidates, PrioritizeRequest
from tdcs_scheduler.rank import rank
from tdcs_scheduler.view import DatasetView

INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Nodes with free GPUs, and a job whose first workers read a dataset that is on some of the nodes.

    Attributes:
        free: free GPUs by node.
        pod_gpus: GPUs of each worker.
        held: bytes of the dataset by node.
        readers: how many workers, the first ones, read it.
        workers: how many there are.
        order: the indices of the workers in the order in which they are created.
    """

    number: int
    free: Mapping[str, int]
    pod_gpus: int
    held: Mapping[str, int]
    readers: int
    workers: int
    order: Sequence[int]

    @property
    def slots(self) -> dict[str, int]:
        """How many workers each node has room for."""
        return {node: gpus // self.pod_gpus for node, gpus in self.free.items()}

    @property
    def readers_text(self) -> str:
        """As in `datasets[].readers`."""
        return f"0-{self.readers - 1}"

    def most_on_data(self) -> int:
        """How many readers can be on a node with data when every worker has a node."""
        slots = self.slots
        near = sum(count for node, count in slots.items() if node in self.held)
        far = sum(slots.values()) - near
        return min(self.readers, near - max(self.workers - self.readers - far, 0))

    def on_data(self, nodes: Mapping[int, str]) -> int:
        """How many readers are on a node with data, of workers that are on these nodes."""
        return sum(nodes[index] in self.held for index in range(self.readers))


def random_pipelines(*, first: int, nodes: Sequence[str]) -> list[Pipeline]:
    """Clusters that share out the nodes, drawn from the first's number; in most, those that read no data come first."""
    draw = random.Random(first)
    pipelines = []
    for number, node_names in enumerate(shares(draw, nodes=nodes), start=first):
        pod_gpus = draw.choice([1, 1, 2, 4])
        free = {node: draw.choice([0, 2, 4, 4, 8, 8]) for node in node_names}
        free[node_names[0]] = free[node_names[-1]] = 8
        room = sum(gpus // pod_gpus for gpus in free.values())
        workers = draw.randint(2, min(room, 16))
        readers = draw.randint(1, workers - 1)
        held = {
            node: draw.randint(1, 100) * GB // 10
            for node in draw.sample(node_names, draw.randint(1, len(node_names)))
        }
        order = list(range(workers))
        if draw.random() < 0.7:
            order = [*range(readers, workers), *range(readers)]
        else:
            draw.shuffle(order)
        pipelines.append(
            Pipeline(
                number=number,
                free=free,
                pod_gpus=pod_gpus,
                held=held,
                readers=readers,
                workers=workers,
                order=order,
            )
        )
    return pipelines


def place_one_by_one(pipeline: Pipeline, *, draw: random.Random) -> dict[int, str]:
    """The node of each worker, placed by the extender's scores as soon as it is created, before the next one is."""
    view = DatasetView()
    demand = Demand(view=view)
    nodes = [{"name": node, "bytes": size} for node, size in pipeline.held.items()]
    status = {"totalBytes": sum(pipeline.held.values()), "copies": [{"id": "0", "nodes": nodes}]}
    view.on_change(("n", "data"), {"status": status})
    annotation = json.dumps([{"dataset": "n/data", "copy": "0", "readers": pipeline.readers_text}])
    free_slots, placed = pipeline.slots, dict[int, str]()
    for index in pipeline.order:
        key = ("n", str(index))
        metadata = {"annotations": {"tdcs.io/datasets": annotation, INDEX: str(index)}}
        demand.on_pod(key, waiting_pod({"metadata": metadata}))
        candidates = [node for node, slots in free_slots.items() if slots > 0]
        request = PrioritizeRequest(
            pod=f"n/{index}",
            uid=str(index),
            annotation=annotation,
            nodes=Candidates(json.dumps(candidates).encode()),
            index=index,
        )
        scores = rank(request=request, view=view, demand=demand, synced=True).scores
        placed[index] = max(candidates, key=_by(scores, draw))
        free_slots[placed[index]] -= 1
        demand.on_pod(key, None)
    return placed


def _by(scores: Mapping[str, int], draw: random.Random) -> Callable[[str], tuple[int, float]]:
    return lambda node: (scores.get(node, 0), draw.random())
