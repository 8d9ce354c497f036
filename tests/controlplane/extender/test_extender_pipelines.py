"""Pipelines on random clusters: every reader that can be on a node with data is, whoever was created first.

Four clusters share out 32 nodes. In most of them the workers that read no data are created before those that read it.
``TDCS_PIPELINE_CLUSTERS=200`` looks at so many.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.controlplane.extender_world import (
    SCHEDULER,
    Extender,
    put_dataset,
    start_extender,
    start_scheduler,
)
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.generators.random_clusters import GPUS, GROUP, NODES
from tests.support.generators.random_pipelines import INDEX, Pipeline, random_pipelines
from tests.support.kube import Kube, Object
from tests.support.kube.describe import describe
from tests.support.kube.objects import gpu_pod
from tests.support.report import Measured
from tests.support.waiting import eventually

CLUSTERS = int(os.environ.get("TDCS_PIPELINE_CLUSTERS", "8"))
GROUPS_AT_ONCE = 5
LABEL = "tests.tdcs.io/cluster"


@pytest.mark.timeout(1200, func_only=True)  # many more clusters than by default can be asked for
@pytest.mark.failure_mode("pipeline-workers-first")
def test_on_random_clusters_every_reader_that_can_be_on_a_node_with_data_is(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes, measured: Measured
) -> None:
    extender = start_extender(control_plane)
    start_scheduler(control_plane, extender.url)
    groups = list(range(0, CLUSTERS, GROUP))
    nodes = fake_nodes(count=NODES * min(len(groups), GROUPS_AT_ONCE), gpus=GPUS)
    readers = possible = 0
    for begin in range(0, len(groups), GROUPS_AT_ONCE):
        pipelines = [
            pipeline
            for place, first in enumerate(groups[begin : begin + GROUPS_AT_ONCE])
            for pipeline in random_pipelines(first=first, nodes=nodes[NODES * place : NODES * (place + 1)])
        ]
        for pipeline, placed in zip(pipelines, run(extender, kube, namespace, pipelines), strict=True):
            assert pipeline.on_data(placed) == pipeline.most_on_data(), (pipeline, placed)
            readers += pipeline.readers
            possible += pipeline.most_on_data()
    measured(
        f"{len(groups) * GROUP} clusters with pipelines: {possible} of {readers} readers can be on data, and are"
    )


def run(
    extender: Extender, kube: Kube, namespace: str, pipelines: Sequence[Pipeline]
) -> list[dict[int, str]]:
    """The node of each worker of each pipeline. Leaves no pod behind."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        labels = {node: str(pipeline.number) for pipeline in pipelines for node in pipeline.free}
        list(
            pool.map(
                lambda node: kube.patch("Node", node, {"metadata": {"labels": {LABEL: labels[node]}}}), labels
            )
        )
        list(
            pool.map(
                lambda pipeline: put_dataset(
                    extender, kube, namespace=namespace, held=pipeline.held, name=f"data-{pipeline.number}"
                ),
                pipelines,
            )
        )
        kube.create_many(others(namespace, pipelines))
        # Each pipeline's workers one after another, in its order; the scheduler places them as they come.
        list(pool.map(lambda pipeline: create_workers(kube, namespace, pipeline), pipelines))
    workers = sum(pipeline.workers for pipeline in pipelines)

    def places() -> dict[str, str]:
        pods = kube.list("Pod", namespace=namespace, labels={"part": "worker"})
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")
        }

    eventually(
        lambda: len(places()) == workers, deadline=180, describe=lambda: describe(kube, namespace=namespace)
    )
    node_by_pod = places()
    kube.delete_all("Pod", namespace=namespace, grace_seconds=0)
    eventually(lambda: not kube.list("Pod", namespace=namespace), deadline=120)
    return [
        {index: node_by_pod[f"p{pipeline.number}-{index}"] for index in range(pipeline.workers)}
        for pipeline in pipelines
    ]


def others(namespace: str, pipelines: Sequence[Pipeline]) -> list[Object]:
    """Pods of others, which take what is not free."""
    pods = []
    for pipeline in pipelines:
        for node, free in pipeline.free.items():
            if free < GPUS:
                pod = gpu_pod(name=f"other-{node}", namespace=namespace, gpus=GPUS - free)
                pods.append({**pod, "spec": {**pod["spec"], "nodeName": node}})
    return pods


def create_workers(kube: Kube, namespace: str, pipeline: Pipeline) -> None:
    """The workers as the Job controller makes them, in the order of the pipeline."""
    reference = {
        "dataset": f"{namespace}/data-{pipeline.number}",
        "copy": "0",
        "readers": pipeline.readers_text,
    }
    for index in pipeline.order:
        pod = gpu_pod(
            name=f"p{pipeline.number}-{index}",
            namespace=namespace,
            gpus=pipeline.pod_gpus,
            scheduler=SCHEDULER,
            labels={"part": "worker", INDEX: str(index)},
            annotations={"tdcs.io/datasets": json.dumps([reference])},
            spec={"nodeSelector": {LABEL: str(pipeline.number)}},
        )
        kube.create(pod)
