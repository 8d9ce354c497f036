"""What users do in a run: pods that read all the time, jobs that compare checksums, Datasets and Preloads that come,
change and go.

Four Datasets: `steady` never changes and is read all the time; the source of `moving` changes, and a new pod reads each
version for a while; `passing` is created and deleted; `asked` has of its data what Preloads bring.
"""

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.images.store.tdcs_store import content
from deploy.images.store.tdcs_store.units import parse_sizes

from e2e.chaos import objects
from e2e.chaos.checks import (
    ReadsByNode,
    Sums,
    dataset_state,
    differences,
    missing_of,
    placed_bytes,
    reads_of,
    silent_readers,
    sums_of,
)
from e2e.chaos.nodes import Node
from e2e.chaos.objects import NAMESPACE
from e2e.chaos.plan import Change
from e2e.chaos.source import Source
from e2e.conftest import RESTRICTED
from e2e.support.jobs import PRINT_CHECKSUMS, expected_digest
from e2e.support.pods import finished
from tdcs_local.errors import LocalError
from tdcs_local.kind.kubectl import Kubectl, Object, condition
from tdcs_local.progress import Reporter
from tdcs_local.store import datasets, operations
from tdcs_local.store.operations import Made

STEADY, MOVING, PASSING, ASKED = "steady", "moving", "passing", "asked"
FILES = {STEADY: 60, PASSING: 20, ASKED: 40}
SIZES = "4KiB-400KiB"
COPIES = 2
"""So many nodes hold a Dataset whole."""
RUNNING_JOBS = 3
"""So many jobs at most that were created and have not ended."""
REFRESH = "tdcs.io/refresh"
READY_SECONDS = 240.0
SETTLED_SECONDS = 420.0
REST_SECONDS = 8.0
"""A state that has not changed for so long is at rest."""
DATASETS, JOBS, PRELOADS = "datasets.tdcs.io", "trainingjobs.tdcs.io", "preloads.tdcs.io"


def bucket(name: str) -> str:
    """The bucket of a Dataset."""
    return f"chaos-{name}"


def files_of(name: str, *, version: int) -> Made:
    """What the bucket of a Dataset is filled with. No two versions have a file in common."""
    files, seed = FILES.get(name, 20 + version % 7), version if name == MOVING else 1
    return Made(files=files, size=SIZES, seed=f"{name}-{seed}")


def sums(bucket: Made) -> dict[str, str]:
    """The sum of each file of such a bucket, by its path."""
    files = content.plan(files=bucket.files, sizes=parse_sizes(bucket.size), seed=bucket.seed)
    return {
        file.path: hashlib.sha256(b"".join(content.content(seed=bucket.seed, file=file))).hexdigest()
        for file in files
    }


class Load:
    """The users of a run.

    Args:
        kubectl: of the cluster.
        reporter: prints what is prepared.
        nodes: those with a cache.
        source: of the Datasets.
        image: with Python.
        toolbox: with small tools.
        seed: of what is drawn while it runs.
    """

    def __init__(
        self,
        *,
        kubectl: Kubectl,
        reporter: Reporter,
        nodes: Sequence[Node],
        source: Source,
        image: str,
        toolbox: str,
        seed: int,
    ) -> None:
        self._kubectl = kubectl
        self._reporter = reporter
        self._nodes = nodes
        self.source = source
        self._image = image
        self._toolbox = toolbox
        self._drawn = random.Random(seed)  # noqa: S311
        self._refreshes = 0
        self._count = 0
        self._version = 1
        self._copies = {STEADY: COPIES, MOVING: COPIES, PASSING: COPIES}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._jobs: set[str] = set()
        self._preloads: set[str] = set()
        self._datasets: set[str] = set()
        self._accepted: set[tuple[str, str]] = set()
        """Resource and name of what the API server has said to have taken, and was not asked to delete since."""

    def begin(self) -> None:
        """Create what is there from the beginning, and wait until pods read on all nodes; two of them natively."""
        namespace = {"name": NAMESPACE, "labels": RESTRICTED}
        self._kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        for node in self._nodes:
            node.prepare_results()
        datasets.grant_access(self._kubectl, namespace=NAMESPACE, reporter=self._reporter)
        self.source.begin()
        for name in (STEADY, MOVING, PASSING, ASKED):
            self._fill(name)
        for name in (STEADY, MOVING, ASKED):
            self._create(name)
        self._wait_ready(STEADY)
        sums = {entry["path"]: entry["sha256"] for entry in operations.manifest(bucket(STEADY))["files"]}
        readers = [
            objects.reader(name=reader_of(node), node=node.name, claim=STEADY, image=self._image)
            for node in self._nodes
        ]
        self._kubectl.apply(objects.checks(sums), *objects.results(), *readers)
        self._create_job()  # one at least, whatever is drawn
        self._read_version()
        self._kubectl.wait(
            self._not_reading,
            what="the pods do not read",
            seconds=READY_SECONDS,
            explain=lambda: self._kubectl("describe", "pods", "-n", NAMESPACE),
        )

    def wait_for_readers(self) -> None:
        """Wait until each pod that reads all the time has ended a round after now: none hangs in a read."""
        now = time.time()  # the nodes share the clock of this machine
        self._kubectl.wait(
            lambda: self._not_reading(now),
            what="a pod that reads all the time does not read any more",
            seconds=READY_SECONDS,
            explain=lambda: self._kubectl("describe", "pods", "-n", NAMESPACE),
        )

    def holders(self) -> set[str]:
        """The nodes that hold the Dataset that never changes: pods there read natively."""
        held = placed_bytes(self._status(DATASETS, STEADY))
        return {node.name for node in self._nodes if node.name in held}

    def change(self, change: Change) -> str:
        """Do what a user does; what it was, or why the cluster did not let it."""
        try:
            return f"done: {change}: {self._change(change)}"
        except LocalError as error:
            return f"not possible: {change}: {error}"

    def settle(self) -> None:
        """Wait until every Dataset has what its source has now, and every job and Preload has ended well."""
        self._fill(MOVING)
        self._refreshes += 1
        self._reconcile()
        for name in sorted(self._datasets):
            self._refresh(name)
        self._kubectl.wait(
            self._unsettled,
            what=f"not everything was well {SETTLED_SECONDS:.0f} s after the last fault",
            seconds=SETTLED_SECONDS,
            explain=lambda: self._kubectl("describe", f"{DATASETS},{JOBS},{PRELOADS},pods", "-n", NAMESPACE),
        )

    def state(self) -> dict[str, Any]:
        """What was decided about all objects, without what depends on the time."""
        states: dict[str, Any] = {
            f"Dataset {name}": dataset_state(self._status(DATASETS, name)) for name in sorted(self._datasets)
        }
        for name in sorted(self._preloads):
            status = self._status(PRELOADS, name)
            fields = ("state", "bytesTotal", "bytesDone", "filesDone", "nodes")
            states[f"Preload {name}"] = {field: status.get(field) for field in fields}
        for name in sorted(self._jobs):
            status = self._status(JOBS, name)
            ended = condition({"status": status}, "Succeeded").get("status")
            states[f"TrainingJob {name}"] = (ended, status.get("placement"), status.get("locality"))
        return states

    def state_at_rest(self) -> dict[str, Any]:
        """What was decided, when nothing of it changes any more: what a deleted Preload brought goes after it."""
        state, since = self.state(), time.monotonic()
        end = since + SETTLED_SECONDS
        while time.monotonic() - since < REST_SECONDS:
            time.sleep(1)
            now = self.state()
            if changed := differences(state, now):
                assert time.monotonic() < end, f"the state does not come to rest: {changed}"
                state, since = now, time.monotonic()
        return state

    def reads(self) -> ReadsByNode:
        """What each pod has read so far, jobs' pods that are gone, too."""
        return {
            node.name: {pod: reads_of(text) for pod, text in node.results(objects.READS).items()}
            for node in self._nodes
        }

    def version_rounds(self) -> dict[str, list[Sums]]:
        """What each pod has read of the Dataset that changes. A pod is on one node only."""
        return {
            pod: sums_of(text) for node in self._nodes for pod, text in node.results(objects.VERSIONS).items()
        }

    def versions(self) -> dict[int, dict[str, str]]:
        """What the source of the Dataset that changes has had so far, by the number of the version."""
        return {version: sums(files_of(MOVING, version=version)) for version in range(1, self._version + 1)}

    def succeeded_jobs(self) -> list[str]:
        """The jobs that have succeeded so far and are still there."""
        return sorted(self._jobs - set(self._unended()))

    def wrong_datasets(self) -> list[str]:
        """The Datasets of which a new pod reads other names or bytes than the source has."""
        names = sorted(self._datasets)
        for name in names:
            self._kubectl.apply(
                objects.checksums(
                    name=f"again-{name}", claim=name, image=self._toolbox, script=PRINT_CHECKSUMS
                )
            )
        digests = {name: finished(self._kubectl, f"again-{name}", NAMESPACE).split()[0] for name in names}
        return [name for name, digest in digests.items() if digest != expected_digest(bucket(name))]

    def end(self) -> None:
        """Remove everything, from whatever state; the last thing that is done even when a run fails."""
        for resource in (JOBS, PRELOADS, "pods", DATASETS):
            words = ("delete", resource, "--all", "-n", NAMESPACE, "--ignore-not-found")
            self._kubectl(*words, f"--timeout={READY_SECONDS:.0f}s", timeout=READY_SECONDS + 20)
        self.source.end()
        self._kubectl.delete("namespace", NAMESPACE, timeout=300)
        self._kubectl.delete("persistentvolume", f"{NAMESPACE}-results")
        for node in self._nodes:
            node.remove_results()

    def _change(self, change: Change) -> str:
        match change:
            case Change.SOURCE:
                self._version += 1
                self._fill(MOVING)
                self._refreshes += 1
                self._refresh(MOVING)
                self._read_version()
                return f"version {self._version} of {MOVING}"
            case Change.DATASET:
                self._copies[MOVING] = 1 if self._copies[MOVING] == COPIES else COPIES
                self._create(MOVING)
                return f"{MOVING} on {self._copies[MOVING]} nodes"
            case Change.TOGGLE_DATASET:
                if PASSING not in self._datasets:
                    if self._leaving():
                        return f"{PASSING} is still being deleted"
                    self._create(PASSING)
                    return f"{PASSING} is created"
                self._delete(DATASETS, PASSING, self._datasets)
                return f"{PASSING} is deleted"
            case Change.CREATE_JOB:
                if len(self._unended()) >= RUNNING_JOBS:
                    return f"{RUNNING_JOBS} have not ended yet: none"
                return self._create_job()
            case Change.DELETE_JOB:
                # One is kept: a run without a job shows nothing of them.
                return self._delete_one(JOBS, self._unended() if len(self._jobs) > 1 else (), self._jobs)
            case Change.CREATE_PRELOAD:
                name, percent = self._numbered("preload"), self._drawn.choice((25, 50, 75))
                self._apply(PRELOADS, objects.preload(name, dataset=ASKED, percent=percent), self._preloads)
                return f"{name} of {percent} %"
            case Change.DELETE_PRELOAD:
                return self._delete_one(PRELOADS, sorted(self._preloads), self._preloads)

    def _create_job(self) -> str:
        name, workers = self._numbered("job"), self._drawn.randint(1, 2)
        self._apply(JOBS, objects.job(name, workers=workers, dataset=STEADY, image=self._image), self._jobs)
        return f"{name} with {workers} workers"

    def _read_version(self) -> None:
        name = f"{MOVING}-{self._version:03}"
        self._kubectl.apply(objects.version_reader(name=name, claim=MOVING, image=self._image))

    def _apply(self, resource: str, obj: Object, names: set[str]) -> None:
        """Create an object, or change it. Without an answer it may be there, and must end well if it is."""
        name = obj["metadata"]["name"]
        names.add(name)
        self._kubectl.apply(obj)
        self._accepted.add((resource, name))

    def _refresh(self, name: str) -> None:
        """Have the source of a Dataset listed now."""
        annotation = f"{REFRESH}={self._refreshes}"
        self._kubectl("annotate", DATASETS, name, "-n", NAMESPACE, annotation, "--overwrite")

    def _numbered(self, word: str) -> str:
        self._count += 1
        return f"{word}-{self._count:03}"

    def _unended(self) -> list[str]:
        job_by_name = {obj["metadata"]["name"]: obj for obj in self._kubectl.list(JOBS, namespace=NAMESPACE)}
        return [
            name
            for name in sorted(self._jobs)
            if condition(job_by_name.get(name), "Succeeded").get("status") != "True"
        ]

    def _delete_one(self, resource: str, names: Sequence[str], names_left: set[str]) -> str:
        if not names:
            return "there is none"
        name = self._drawn.choice(names)
        self._delete(resource, name, names_left)
        return name

    def _delete(self, resource: str, name: str, names: set[str]) -> None:
        words = ("delete", resource, name, "-n", NAMESPACE, "--ignore-not-found", "--wait=false")
        self._accepted.discard((resource, name))  # also without an answer
        self._kubectl(*words)
        names.discard(name)

    def _fill(self, name: str) -> None:
        files = files_of(name, version=self._version)
        report = operations.fill("small", bucket=bucket(name), seeded=files, reporter=self._reporter)
        self._sizes[name] = report["totalFiles"], report["totalBytes"]

    def _create(self, name: str) -> None:
        """Create a Dataset, or change it to what it shall be."""
        spec: dict[str, Any] = {"preload": {"enabled": False}}
        if name in self._copies:
            spec = {"placement": {"mode": "Replicate", "nodeCount": self._copies[name]}}
        dataset = objects.made_dataset(name, endpoint=self.source.endpoint, bucket=bucket(name), **spec)
        self._apply(DATASETS, dataset, self._datasets)

    def _reconcile(self) -> None:
        """Create what an API server that did not answer may not have taken, and delete the rest. What it has taken must
        still be there."""
        for resource, names in ((JOBS, self._jobs), (PRELOADS, self._preloads), (DATASETS, self._datasets)):
            live_names = {
                obj["metadata"]["name"] for obj in self._kubectl.list(resource, namespace=NAMESPACE)
            }
            vanished = [name for name in sorted(names - live_names) if (resource, name) in self._accepted]
            assert not vanished, (
                f"{', '.join(vanished)} of {resource} was created, not deleted, and has vanished"
            )
            for name in sorted(live_names - names):
                self._delete(resource, name, names)
            if resource != DATASETS:
                names &= live_names
        self._kubectl.wait(
            lambda: f"{', '.join(leaving)} are being deleted" if (leaving := self._leaving()) else None,
            what="Datasets that were deleted are still there",
            seconds=SETTLED_SECONDS,
            explain=lambda: self._kubectl("describe", DATASETS, "-n", NAMESPACE),
        )
        for name in sorted(self._datasets):
            self._create(name)

    def _leaving(self) -> list[str]:
        return [
            obj["metadata"]["name"]
            for obj in self._kubectl.list(DATASETS, namespace=NAMESPACE)
            if obj["metadata"].get("deletionTimestamp")
        ]

    def _status(self, resource: str, name: str) -> Mapping[str, Any]:
        obj = self._kubectl.get(resource, name, namespace=NAMESPACE) or {}
        status: Mapping[str, Any] = obj.get("status") or {}
        return status

    def _wait_ready(self, name: str) -> None:
        datasets.wait_ready(self._kubectl, name, namespace=NAMESPACE, seconds=READY_SECONDS)

    def _not_reading(self, since: float = 0.0) -> str | None:
        readers = {reader_of(node) for node in self._nodes}
        silent = silent_readers(self.reads(), readers=readers, since=since)
        return f"{', '.join(silent)} have ended no round of reads" if silent else None

    def _unsettled(self) -> str | None:
        for name in sorted(self._datasets):
            files, size = self._sizes[name]
            missing = missing_of(
                self._status(DATASETS, name),
                refreshed=str(self._refreshes),
                files=files,
                size=size,
                nodes=self._copies.get(name),
            )
            if missing:
                return f"Dataset {name}: {missing}"
        for name in sorted(self._preloads):
            if (state := self._status(PRELOADS, name).get("state")) != "Complete":
                return f"Preload {name} is {state}"
        if unended := self._unended():
            status = {"status": self._status(JOBS, unended[0])}
            conditions: list[Object] = status["status"].get("conditions", [])
            messages = [
                f"{condition_now['type']}: {condition_now.get('message')}"
                for condition_now in conditions
                if condition_now["status"] == "True"
            ]
            return f"TrainingJob {unended[0]} has not succeeded: {messages[-1:]}"
        return None


def reader_of(node: Node) -> str:
    """The name of the pod that reads on a node all the time."""
    return f"reads-on-{node.name}"
