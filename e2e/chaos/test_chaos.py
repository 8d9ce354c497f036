"""Everything fails at random on the local cluster, while jobs run and objects change: what must hold all the same.

No wrong byte, no error and no hang of a read of data that is on the reader's node, elsewhere no error but that the
data is away, in the pods of jobs, too; every job ends well; in the end all pods still read and no read fails, all
Datasets are what their sources are now, all of TDCS decides the same when it has started again, and nothing is left of
what was deleted.

    make chaos CHAOS_SECONDS=600 CHAOS_SEED=7      # an hour by default
    python -m e2e.chaos.plan --seed 7 --seconds 600     # what it would do

The run prints its seed and plan. Among the other end-to-end tests it is five minutes long.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.chaos import plan
from e2e.chaos.checks import (
    KINDS,
    differences,
    failed_since,
    left_over,
    mixed_versions,
    slow_reads,
    summary,
    too_little,
    wrong_reads,
)
from e2e.chaos.faults import Faults
from e2e.chaos.load import Load
from e2e.chaos.nodes import Node
from e2e.chaos.objects import NAMESPACE
from e2e.chaos.plan import Change, Features, PlannedStep
from e2e.chaos.source import Source
from e2e.conftest import describe
from tdcs.api import names
from tdcs_local import demo
from tdcs_local.containers import faketime
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, images, release
from tdcs_local.kind.kubectl import Kubectl, condition
from tdcs_local.paths import LOGS
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

SECONDS = float(os.environ.get("TDCS_CHAOS_SECONDS", "300"))
SEED = int(os.environ.get("TDCS_CHAOS_SEED", "1"))
SYSTEM_READY_SECONDS = 420.0
"""A container that was killed often pauses for up to five minutes before it starts again."""
LONG_SECONDS = 1800.0
"""Of a run of so many seconds it is waited for that views, registrations and manifests go, too."""
SAME_SECONDS = 120.0
GONE_SECONDS = 120.0
QUICKLY_GONE = ("blocks", "refused", "mounts")
"""What is gone soon after its Dataset. Views are kept for a while, with their registrations; a manifest is kept where
an agent was killed at the wrong moment, until a mount goes there again."""
VIEWS_GONE_SECONDS = 780.0
"""The view of a version that no pod uses is kept for ten minutes, for the next pod."""


@pytest.fixture(scope="module", autouse=True)
def training_image_on_its_way() -> None:
    """This test does without the image of TensorFlow."""


@pytest.fixture(scope="module")
def cache_nodes(workers: list[str]) -> list[Node]:
    """The nodes with a cache."""
    return [Node(name) for name in workers]


@pytest.fixture(scope="module")
def disks(cache_nodes: list[Node]) -> bool:
    """Whether TDCS's folder is a small file system on each node; with TDCS_CHAOS_DISKS it becomes one before TDCS is
    installed."""
    if os.environ.get("TDCS_CHAOS_DISKS"):
        for node in cache_nodes:
            if not node.has_own_disk() and not node.has_tdcs():
                node.give_disk()
    return all(node.has_own_disk() for node in cache_nodes)


@pytest.fixture(scope="module")
def clocks(cache_nodes: list[Node], reporter: Reporter) -> bool:
    """Whether what runs on each node has a clock of its own; with TDCS_CHAOS_CLOCKS it gets one before TDCS is
    installed."""
    if os.environ.get("TDCS_CHAOS_CLOCKS"):
        library = faketime.ensure(reporter=reporter)
        for node in cache_nodes:
            if not node.has_own_clock() and not node.has_tdcs():
                node.give_clock(library)
    return all(node.has_own_clock() for node in cache_nodes)


@pytest.fixture(scope="module")
def features(
    disks: bool, clocks: bool, request: pytest.FixtureRequest, kubectl: Kubectl, workers: list[str]
) -> Features:
    """What the cluster has, once TDCS is installed on it."""
    request.getfixturevalue("tdcs")
    operator = kubectl.get("deployments", "tdcs-operator", namespace=release.NAMESPACE) or {}
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    trust = any(argument.startswith("--trust=") for argument in arguments)
    return Features(nodes=len(workers), trust=trust, disks=disks, clocks=clocks)


@pytest.fixture(scope="module")
def store(features: Features, kubectl: Kubectl, reporter: Reporter) -> None:
    """The object store."""
    operations.up(reporter=reporter)
    operations.set_link(egress="unlimited", ingress="unlimited", reporter=reporter)


@pytest.fixture
def load(
    store: None, kubectl: Kubectl, reporter: Reporter, cache_nodes: list[Node], toolbox: str
) -> Iterator[Load]:
    """The users, and their source. Nothing is left of them in the end."""
    image = f"tdcs/tdcs:{images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)['tdcs']}"
    new_load = Load(
        kubectl=kubectl,
        reporter=reporter,
        nodes=cache_nodes,
        source=Source(kubectl=kubectl, namespace=NAMESPACE, image=image),
        image=image,
        toolbox=toolbox,
        seed=SEED,
    )
    demo.forget(kubectl=kubectl)
    new_load.end()
    yield new_load
    new_load.end()


@pytest.fixture
def faults(load: Load, kubectl: Kubectl, reporter: Reporter, cache_nodes: list[Node]) -> Iterator[Faults]:
    """The faults; those that last end with the test."""
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    stop = threading.Event()

    def install(settings: Mapping[str, str]) -> None:
        release.install(reporter=reporter, kubectl=kubectl, tags=tags, settings=settings)

    yield Faults(
        kubectl=kubectl,
        nodes=cache_nodes,
        control_plane=Node(cluster.node_names(cluster.name())[0]),
        source=load.source,
        install=install,
        stop=stop,
    )
    stop.set()


@pytest.mark.timeout(SECONDS + 2400)
@pytest.mark.failure_mode("chaos-on-cluster")
def test_whatever_fails_no_byte_is_wrong_every_job_ends_and_nothing_is_left(
    features: Features, load: Load, faults: Faults, kubectl: Kubectl, cache_nodes: list[Node]
) -> None:
    planned = plan.plan(seed=SEED, seconds=SECONDS, features=features)
    print("\n".join(plan.lines(planned, seed=SEED, features=features)), flush=True)
    kinds = compared(kubectl)
    before, mounted_before = {node.name: node.belongings() for node in cache_nodes}, mounted_paths(kubectl)
    with explained(kubectl):
        load.begin()
        native = load.holders()
        assert len(native) == 2, "the Dataset that is read all the time is on two nodes"
        run(planned, load=load, faults=faults)

        wait_for_system(kubectl)
        load.settle()
        load.wait_for_readers()
        well = time.time()
        reads = load.reads()
        print("\n".join(summary(reads)), flush=True)
        held = native & load.holders()

        def longest(since: float, until: float) -> float:
            return plan.longest_read(faults.done, since=since, until=until)

        count = sum(len(step.step.faults) for step in planned)
        jobs = load.succeeded_jobs()
        assert too_little(faults=len(faults.done), planned=count, jobs=jobs, held=held) == []
        assert wrong_reads(reads, native=held) == []
        assert slow_reads(reads, native=held, most=longest) == []
        rounds = load.version_rounds()
        assert any(rounds.values()), "no pod has read the Dataset that changes"
        assert mixed_versions(rounds, versions=load.versions()) == []
        assert load.wrong_datasets() == []

        state = load.state_at_rest()
        load.wait_for_readers()
        assert failed_since(load.reads(), since=well) == []
        start_again(kubectl)
        load.settle()
        kubectl.wait(
            lambda: "\n".join(differences(state, load.state())) or None,
            what="after a fresh start it is decided otherwise",
            seconds=SAME_SECONDS,
        )
        load.wait_for_readers()
        # Nodes that do not hold the data may have failed to read it while all that holds it was away at once.
        well = time.time()
        load.wait_for_readers()
        reads = load.reads()
        assert wrong_reads(reads, native=held) == []
        assert slow_reads(reads, native=held, most=longest) == []
        assert failed_since(reads, since=well) == []

        load.end()

        def leftovers_now() -> str | None:
            after = {node.name: node.belongings() for node in cache_nodes}
            leftovers = left_over(before, after, kinds=kinds)
            leftovers += [
                volume["metadata"]["name"]
                for volume in kubectl.list("persistentvolumes")
                if (volume["spec"].get("claimRef") or {}).get("namespace") == NAMESPACE
            ]
            try:
                leftovers += sorted(
                    f"mounted in the cache: {path}" for path in mounted_paths(kubectl) - mounted_before
                )
            except LocalError as error:
                leftovers.append(str(error))
            return "\n".join(leftovers) or None

        seconds = VIEWS_GONE_SECONDS if "views" in kinds else GONE_SECONDS
        kubectl.wait(leftovers_now, what="the run left something", seconds=seconds)


def compared(kubectl: Kubectl) -> tuple[str, ...]:
    """What of the nodes is compared with what was there before: all where there is no other Dataset, which a killed
    worker would make move to another node."""
    datasets = [obj["metadata"]["name"] for obj in kubectl.list("datasets.tdcs.io")]
    if datasets:
        print(f"only mounts are compared, because of the Datasets {', '.join(datasets)}")
        return ("mounts",)
    return KINDS if SECONDS >= LONG_SECONDS else QUICKLY_GONE


def mounted_paths(kubectl: Kubectl) -> set[str]:
    """The paths that the operator has mounted."""
    table = names.mounts_name(cluster=release.CACHE_CLUSTER)
    noted = (kubectl.get("configmaps", table, namespace=release.NAMESPACE) or {}).get("data") or {}
    return {json.loads(entry)["path"] for entry in noted.values()}


def run(planned: tuple[PlannedStep, ...], *, load: Load, faults: Faults) -> None:
    """Do one step after the other; what takes longer than it was planned to shortens the run's end."""
    begin = time.monotonic()
    for number, planned_step in enumerate(planned, start=1):
        at = time.monotonic() - begin
        if at > SECONDS:
            print(f"the last {len(planned) - number + 1} steps are left out", flush=True)
            break
        print(f"{time.time():.0f}  {at:5.0f} s  step {number}: {planned_step.step}", flush=True)
        for line in (
            *(load.change(Change(change)) for change in planned_step.step.changes),
            *faults.run(planned_step.step),
        ):
            print(f"    {line}", flush=True)
    kinds = sorted({f"{done.fault.kind} {done.fault.part}" for done in faults.done})
    print(
        f"{len(faults.done)} faults of {len(kinds)} kinds in {time.monotonic() - begin:.0f} s: {'; '.join(kinds)}"
    )


def wait_for_system(kubectl: Kubectl) -> None:
    """Wait until everything runs and is ready, as after an installation."""

    def look() -> str | None:
        for namespace in (release.NAMESPACE, operations.NAMESPACE, NAMESPACE):
            for pod in kubectl.list("pods", namespace=namespace):
                ended = pod["status"].get("phase") in {"Succeeded", "Failed"}
                if not ended and condition(pod, "Ready").get("status") != "True":
                    return f"pod {pod['metadata']['name']}: {condition(pod, 'Ready').get('message')}"
        cache = kubectl.get("cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=release.NAMESPACE)
        for kind in ("Ready", "Trusted"):
            state = condition(cache, kind)
            if state and state["status"] != "True":
                return f"the cache cluster: {state.get('message')}"
        return None

    kubectl.wait(
        look,
        what="the system is not ready again",
        seconds=SYSTEM_READY_SECONDS,
        explain=lambda: kubectl("get", "pods", "-A", "-o", "wide"),
    )


def start_again(kubectl: Kubectl) -> None:
    """Replace all pods of the release, and so of its cache, by ones that know nothing; the holder of the remote-read
    client stays, because what it holds ends with it, and so do the reads of all pods."""
    but_holders = ("-l", "app.kubernetes.io/component!=reader-holder")
    kubectl(
        "delete",
        "pods",
        "-n",
        release.NAMESPACE,
        *but_holders,
        f"--timeout={GONE_SECONDS:.0f}s",
        timeout=GONE_SECONDS + 20,
    )
    wait_for_system(kubectl)


@contextlib.contextmanager
def explained(kubectl: Kubectl) -> Iterator[None]:
    """When a check fails, keep what explains it: the logs of all pods, and the objects of the run."""
    try:
        yield
    except BaseException:
        folder = LOGS / f"chaos-{SEED}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "objects.txt").write_text(describe(kubectl, NAMESPACE))
        for namespace in (release.NAMESPACE, operations.NAMESPACE, NAMESPACE):
            keep_logs(kubectl, namespace, folder)
        print(f"the logs of all pods are in {folder}", flush=True)
        raise


def keep_logs(kubectl: Kubectl, namespace: str, folder: Path) -> None:
    """Write the logs of each container of a namespace, also that of the process before it."""
    with contextlib.suppress(LocalError):
        for pod in kubectl.list("pods", namespace=namespace):
            name = pod["metadata"]["name"]
            for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
                for suffix, words in (("", ()), ("-previous", ("--previous",))):
                    with contextlib.suppress(LocalError):
                        text = kubectl("logs", name, "-n", namespace, "-c", container["name"], *words)
                        (folder / f"{namespace}-{name}-{container['name']}{suffix}.log").write_text(text)
