"""Random objects of every kind, from the schemas and beyond them, on a real API server with the chart's definitions,
rights and policies, and with the operator as a process.

Each object is refused with a sentence or answered by a condition, and can be deleted; the operator goes on, and a good
Dataset and a good job next to them succeed.

``TDCS_RANDOM_CRS=10000`` draws so many of each kind, ``TDCS_RANDOM_CRS_FROM=5000`` begins with that one: a run of many
can be done in parts. An object costs about a second of processor time, most of it in the operator and the API server,
so that 10,000 take hours. ``TDCS_RANDOM_REQUESTS=10000`` has the API server alone judge so many of each kind, in
minutes; ``tests/unit/control/test_random_objects.py`` has the operator alone answer them.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3
from tests.controlplane.operator_command import (
    allow_secrets,
    install_rights,
    remove_cluster_wide,
    start_operator,
)
from tests.controlplane.operator_world import FILES, SOURCE, STORE_KEYS, TOTAL, World, world
from tests.support.generators.random_resources import random_object, spec_schema
from tests.support.kube import KubeRequestError, Object, condition
from tests.support.programs.processes import Process
from tests.support.report import Measured
from tests.support.waiting import eventually

from tdcs.kube.client import DEEPEST
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATA_CHECKS, DATASETS, PRELOADS, TRAINING_JOBS, Resource

__all__ = ["world"]

COUNT = int(os.environ.get("TDCS_RANDOM_CRS", "12"))
FIRST = int(os.environ.get("TDCS_RANDOM_CRS_FROM", "0"))
REQUESTS = int(os.environ.get("TDCS_RANDOM_REQUESTS", "200"))
BATCH = 25
"""Of each kind at a time. While many Datasets load, their passes leave the others little time on a busy machine."""
PARALLEL = 8
"""Requests at a time."""
ANSWERED = (TRAINING_JOBS, PRELOADS, DATASETS, CACHE_CLUSTERS)
"""Kinds that have conditions. A DataCheck has none: it is answered by the AdmissionCheck of Kueue that names it."""
KINDS = (*ANSWERED, DATA_CHECKS)
"""In the order in which they are deleted."""
SCHEMAS = {resource: spec_schema(resource) for resource in KINDS}
RANDOM = re.compile(r"random-\d+|r\d+")
"""Names of random objects."""
DEADLINE = 300.0
"""Seconds until every object of a batch is answered, or gone."""


@pytest.fixture
def operator(world: World, tmp_path: Path) -> Iterator[Process]:
    """The operator's process, with exactly the chart's rights and under its policies."""
    release = f"tdcs-{world.cluster}"
    objects = install_rights(
        world.kube,
        release=release,
        namespace=world.namespace,
        templates=["operator-rbac", "operator", "admission", "admission-operator"],
        values={"alluxio.image.tag": "dev"},
    )
    allow_secrets(world.kube, release=release, namespace=world.namespace)
    world.create_cluster()
    world.create_dataset("good")
    world.kube.create(deep_job(world))  # before the operator starts: it lists this one, too
    yield start_operator(
        world.plane,
        release=release,
        namespace=world.namespace,
        engine={"sources": {SOURCE: FILES}, "workers": dict.fromkeys(world.nodes, 10 * TOTAL)},
        folder=tmp_path,
        name="operator-of-random-objects",
    )
    remove_cluster_wide(world.plane, objects)


@pytest.fixture(autouse=True)
def deep_objects() -> Iterator[None]:
    """This process can read and write them, too."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * DEEPEST)
    yield
    sys.setrecursionlimit(limit)


def deep_job(world: World) -> Object:
    """A TrainingJob with a field that has nearly as many levels as the API server takes."""
    levels: Object = {}
    for _ in range(DEEPEST - 100):
        levels = {"a": levels}
    template = {"spec": {"containers": [{"name": "main", "image": "train"}], "levels": levels}}
    return {
        "apiVersion": TRAINING_JOBS.api_version,
        "kind": TRAINING_JOBS.kind,
        "metadata": {"name": "random-99999999", "namespace": world.namespace},
        "spec": {"framework": "TensorFlow", "replicaSpecs": [{"name": "Worker", "template": template}]},
    }


def create(
    world: World, seeds: Sequence[int], *, dry_run: bool = False
) -> list[tuple[Resource, KubeRequestError | None]]:
    """Create random objects of each kind; for each why it was refused, None when it was accepted."""

    def one(resource: Resource, seed: int) -> tuple[Resource, KubeRequestError | None]:
        obj = random_object(
            resource,
            SCHEMAS[resource],
            seed=seed,
            namespace=world.namespace,
            cluster=world.cluster,
            source=SOURCE,
            keys=STORE_KEYS,
        )
        if not resource.namespaced:
            del obj["metadata"]["namespace"]
        try:
            world.kube.create(obj, dry_run=dry_run)
        except KubeRequestError as error:
            return resource, error
        except urllib3.exceptions.TimeoutError as error:
            raise AssertionError(f"the server does not answer for {obj}") from error
        return resource, None

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return list(pool.map(one, *zip(*itertools.product(KINDS, seeds), strict=True)))


def random_ones(world: World, resource: Resource) -> list[Object]:
    """The random objects of a kind that are there."""
    namespace = world.namespace if resource.namespaced else None
    objects = world.kube.list(resource.kind, namespace=namespace)
    return [obj for obj in objects if RANDOM.fullmatch(obj["metadata"]["name"])]


def wait_until_none(world: World, what: str, found: Sequence[Resource]) -> None:
    """Until no random object is left that has no conditions, or (what = "gone") none at all."""

    def left() -> list[str]:
        return [
            f"{resource.kind}/{obj['metadata']['name']}"
            for resource in found
            for obj in random_ones(world, resource)
            if what == "gone" or not (obj.get("status") or {}).get("conditions")
        ]

    eventually(
        lambda: not left(), deadline=DEADLINE, interval=0.5, describe=lambda: f"not {what}: {left()[:5]}"
    )


def delete(world: World) -> None:
    """Ask for the deletion of the random objects of all kinds."""
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        for resource in KINDS:
            delete_one = functools.partial(
                world.kube.delete,
                resource.kind,
                namespace=world.namespace if resource.namespaced else None,
            )
            names = [obj["metadata"]["name"] for obj in random_ones(world, resource)]
            for _ in pool.map(delete_one, names):
                pass


def assert_says_why(error: KubeRequestError) -> None:
    """A refusal is the client's fault, and says what is wrong."""
    assert 400 <= error.code < 500, error
    assert error.reason, error
    assert str(error).partition(f"{error.reason}: ")[2].strip(), error


@pytest.mark.timeout(180 + REQUESTS, func_only=True)
def test_the_server_judges_every_random_object_at_once(world: World, measured: Measured) -> None:
    """No rule or policy takes so long that the request ends by a timeout, and each refusal says why."""
    objects = install_rights(
        world.kube,
        release=f"tdcs-{world.cluster}",
        namespace=world.namespace,
        templates=["operator", "admission"],
        values={"alluxio.image.tag": "dev"},
    )
    try:
        world.create_cluster()
        answers = create(world, range(FIRST, FIRST + REQUESTS), dry_run=True)
    finally:
        remove_cluster_wide(world.plane, objects)
    refusals = [error for _, error in answers if error is not None]
    for error in refusals:
        assert_says_why(error)
    assert 0 < len(refusals) < len(answers) == REQUESTS * len(KINDS)
    measured(f"random requests of each kind: {REQUESTS}; {len(refusals)} of {len(answers)} refused")


@pytest.mark.timeout(180 + 2 * COUNT, func_only=True)
@pytest.mark.threat("random-objects")
def test_every_random_object_is_refused_or_answered_and_delays_no_good_one(
    world: World, operator: Process, measured: Measured
) -> None:
    pid = operator.pid
    accepted, refused = Counter[str](), Counter[str]()
    for begin in range(FIRST, FIRST + COUNT, BATCH):
        seeds = range(begin, min(begin + BATCH, FIRST + COUNT))
        for resource, error in create(world, seeds):
            if error is None:
                accepted[resource.kind] += 1
                continue
            refused[resource.kind] += 1
            assert_says_why(error)
        world.create_job(replicas=1, datasets=[{"name": "good", "mountPath": "/data"}])
        wait_until_none(world, "answered", list(ANSWERED))
        world.wait_ready("good")
        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        world.kube.delete("TrainingJob", "train", namespace=world.namespace)
        delete(world)
        wait_until_none(world, "gone", KINDS)
        world.wait(lambda: world.kube.find("TrainingJob", "train", namespace=world.namespace) is None)
        assert operator.pid == pid  # also fails when it has ended
    defects = [
        line
        for line in operator.log.read_text(errors="replace").splitlines()
        if "by a defect" in line or line.startswith("Traceback")
    ]
    assert not defects, (defects[:3], operator.log)
    for resource in KINDS:
        measured(
            f"random {resource.plural}: {accepted[resource.kind]} accepted and answered, "
            f"{refused[resource.kind]} refused"
        )
        # Both ways were taken: neither is this test without objects, nor without refusals.
        assert min(accepted[resource.kind], refused[resource.kind]) > COUNT // 20, resource.kind
