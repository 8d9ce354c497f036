"""TrainJobs, JobSets, Jobs and bare pods that do nothing but mount a Dataset's claim run on its nodes: with the real
managers of Kubeflow Trainer and JobSet, the real API server and kube-scheduler, and the real extender.

`make ecosystem` builds the managers; where they are not built the tests are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.controlplane.extender_world import (
    SCHEDULER,
    put_claim,
    put_dataset,
    start_extender,
    start_scheduler,
)
from tests.controlplane.pod_admission import extender_with_webhook, gets_our_scheduler
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.ecosystem.kubeflow import JobSetManager, TrainerManager
from tests.support.ecosystem.webhooks import ASKED
from tests.support.kube import Kube, Object, condition
from tests.support.kube.claimed_jobs import KIND, PODS, jobs_with_claim
from tests.support.kube.claimed_pods import CLAIM, volumes
from tests.support.kube.describe import describe
from tests.support.kube.objects import GPU
from tests.support.waiting import eventually

GB = 10**9


@pytest.fixture(scope="module")
def managers(shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One of each for all tests: their start takes seconds."""
    managers = [
        kind(shared_control_plane, folder=tmp_path_factory.mktemp(kind.program))
        for kind in (JobSetManager, TrainerManager)
    ]
    with ExitStack() as stack:
        for manager in managers:
            manager.start()
            stack.callback(manager.stop)
        yield


def pod_spec(*, scheduler: str) -> Object:
    """A pod that mounts the claim; an empty name: it names no scheduler."""
    mounts = [{"name": "v0", "mountPath": "/data", "readOnly": True}]
    container = {"name": "node", "image": "train:test", "resources": {"limits": {GPU: "1"}}}
    return {
        "containers": [{**container, "volumeMounts": mounts}],
        "volumes": volumes(CLAIM),
        **({"schedulerName": scheduler} if scheduler else {}),
    }


def placed(kube: Kube, *, namespace: str) -> list[Object]:
    """The pods that have a node."""
    return [pod for pod in kube.list("Pod", namespace=namespace) if pod["spec"].get("nodeName")]


def kind_of(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(KIND))


@pytest.mark.usefixtures("managers")
@pytest.mark.parametrize("webhook", [True, False], ids=["by-the-webhook", "by-the-extender-alone"])
def test_pods_of_every_kind_run_on_the_nodes_with_the_data_of_their_claim(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes, *, webhook: bool
) -> None:
    nodes = fake_nodes(count=10, gpus=8)
    holders = {nodes[3], nodes[7]}
    kube.patch("Namespace", namespace, {"metadata": {"labels": ASKED}})
    with ExitStack() as stack:
        if webhook:
            extender = stack.enter_context(extender_with_webhook(control_plane, namespace=namespace))
        else:
            extender = start_extender(control_plane)
            start_scheduler(control_plane, extender.url)
        put_dataset(extender, kube, namespace=namespace, held=dict.fromkeys(holders, GB), name=CLAIM)
        put_claim(kube, namespace=namespace, name=CLAIM)
        if webhook:
            tries = iter(range(1000))
            eventually(
                lambda: gets_our_scheduler(kube, namespace=namespace, tries=tries),
                deadline=60,
                describe=extender.process.tail,
            )
        spec = pod_spec(scheduler="" if webhook else SCHEDULER)
        for obj in jobs_with_claim(spec, namespace=namespace):
            kube.create(obj)

        def seen() -> str:
            kinds = ("TrainJob", "JobSet", "Job", "Pod")
            return f"{describe(kube, namespace=namespace, kinds=kinds)}\n{extender.process.tail()}"

        eventually(
            lambda: Counter(map(kind_of, placed(kube, namespace=namespace))) == PODS,
            deadline=120,
            describe=seen,
        )
        pods = placed(kube, namespace=namespace)
        away = [(kind_of(pod), pod["spec"]["nodeName"]) for pod in pods]
        assert not [place for place in away if place[1] not in holders], seen()
        assert {pod["spec"]["schedulerName"] for pod in pods} == {SCHEDULER}
        # KWOK ends the pods of Jobs, and each manager follows.
        for kind, done in (("JobSet", "Completed"), ("TrainJob", "Complete")):
            eventually(
                lambda kind=kind, done=done: (  # type: ignore[misc]
                    condition(kube.get(kind, kind.lower(), namespace=namespace), done) == "True"
                ),
                deadline=60,
                describe=seen,
            )
