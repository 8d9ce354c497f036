"""`tdcs status` shows what there is, how far it is, and what needs a person."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.support.kube.api_stand_in import ApiStandIn
from tests.unit.control.server import Server

from tdcs.cli.console import Console
from tdcs.cli.explain.listed_objects import ListedObjects, check_namespace, used_namespaces
from tdcs.cli.explain.status_command import _look_elsewhere, show
from tdcs.cli.main import main
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_resources import NAMESPACES, Resource

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"


def obj(
    name: str, *, namespace: str = "n", spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec or {}, "status": status}


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


WORLD = ListedObjects(
    clusters=[
        obj(
            "default",
            namespace="tdcs-system",
            conditions=[condition("Ready", "False", "1 of 2 cache workers are registered; lost: b")],
            replicas=3,
            desiredReplicas=2,
            readyReplicas=1,
            usedBytes=1 << 30,
            capacityBytes=4 << 30,
            workers=[
                {"node": "a", "state": "Ready"},
                {"node": "b", "state": "Lost"},
                {"node": "c", "state": "Draining", "lastCopyBytes": 3 << 30},
            ],
        )
    ],
    datasets=[
        obj(
            "pictures",
            state="Loading",
            loaded="42%",
            loadedBytes=42,
            wantedBytes=100,
            rate="47 MB/s",
            totalBytes=3_000_000,
            totalFiles=30,
            copies=[{"id": "0", "nodes": [{"name": "a", "bytes": 42}]}],
            conditions=[
                condition("Placed", "False", "it is on 1 node"),
                condition("Ready", "False", "42%"),
            ],
        ),
        obj(
            "waits", state="Failed", conditions=[condition("Ready", "False", "Secret n/keys does not exist")]
        ),
    ],
    preloads=[
        obj(
            "warm",
            spec={"datasetRef": {"name": "pictures"}},
            state="Complete",
            progress="100%",
            bytesDone=10,
            bytesTotal=10,
            filesDone=3,
            filesTotal=3,
        )
    ],
    jobs=[obj("train", spec={"datasets": [{"name": "pictures"}]}, state="Running", localityPercent="50%")],
)


def output_of(world: ListedObjects, *, namespace: str | None = "n") -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    show(world, namespace=namespace, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_kind_has_its_row() -> None:
    text = output_of(WORLD)
    for part in (
        "1 of 2",
        "1 GiB of 4 GiB",
        "42%",
        "47 MB/s",
        "2.9 MiB",
        "Complete",
        "3 of 3",
        "50%",
        "Lost",
        "3 GiB to move",
    ):
        assert part in text
    assert "n/pictures" not in text.split("!")[0]


def test_what_is_not_ready_or_complete_has_its_reason_in_its_row() -> None:
    def because(kind: str, status: str, reason: str) -> dict[str, str]:
        return {**condition(kind, status), "reason": reason}

    rows = output_of(
        ListedObjects(
            clusters=[obj("cache", conditions=[because("Ready", "False", "MasterAway")])],
            datasets=[obj("refused", state="Failed", reason="EndpointNotAllowed")],
            preloads=[
                obj("over", state="Failed", conditions=[because("Complete", "False", "SomeFilesFailed")]),
                obj("done", state="Complete", conditions=[because("Complete", "True", "AllLoaded")]),
            ],
        )
    ).splitlines()
    named = {line.split()[0]: line for line in rows if line and not line.startswith("!")}
    assert "MasterAway" in named["cache"]
    assert "EndpointNotAllowed" in named["refused"]
    assert "SomeFilesFailed" in named["over"]
    assert "AllLoaded" not in named["done"]


def test_what_needs_a_person_is_said_and_what_is_on_its_way_is_not() -> None:
    complaints = [line for line in output_of(WORLD).splitlines() if line.startswith("!")]
    assert complaints == [
        "! CacheCluster tdcs-system/default: 1 of 2 cache workers are registered; lost: b",
        "! Dataset n/pictures: it is on 1 node",
        "! Dataset n/waits: Secret n/keys does not exist",
    ]


def test_a_new_cache_that_starts_needs_nobody() -> None:
    starts, away = (
        {**condition("Ready", "False", reason), "reason": reason}
        for reason in ("CacheStarting", "CacheUnavailable")
    )
    lines = complaints(
        ListedObjects(clusters=[obj("new", conditions=[starts]), obj("old", conditions=[away])])
    )
    assert lines == ["! CacheCluster n/old: CacheUnavailable"]


def test_what_is_granted_with_a_warning_is_said() -> None:
    warned = {**condition("Granted", "True", "a longer ttl"), "reason": "TtlShorterThanLoad"}
    fine = {**condition("Granted", "True", "all of it"), "reason": "Granted"}
    datasets = [obj("one", state="Ready", conditions=[warned]), obj("two", state="Ready", conditions=[fine])]
    assert complaints(ListedObjects(datasets=datasets)) == ["! Dataset n/one: a longer ttl"]


def test_what_was_deleted_a_while_ago_and_is_still_there_says_why() -> None:
    deleted = obj(
        "old",
        state="Deleting",
        conditions=[
            condition("Ready", "False", "still used by pod reader"),
            condition("Placed", "False", "only 1 of 2 nodes"),
        ],
    )
    stuck = obj("stuck", state="Ready", conditions=[condition("Ready", "True", "all of it")])
    for obj_deleted in (deleted, stuck):
        obj_deleted["metadata"] |= {
            "deletionTimestamp": "2026-01-01T10:00:00Z",
            "finalizers": ["tdcs.io/finalizer"],
        }

    def lines_at(now: str) -> list[str]:
        console = Console(file=io.StringIO(), width=160, color_system=None)
        show(ListedObjects(datasets=[deleted, stuck]), namespace="n", console=console, now=now)
        assert isinstance(console.file, io.StringIO)
        return [line for line in console.file.getvalue().splitlines() if line.startswith("!")]

    silent = (
        "its finalizers (tdcs.io/finalizer) are not removed: see its events, and whether the operator runs"
    )
    assert lines_at("2026-01-01T10:00:40Z") == []
    assert lines_at("2026-01-01T10:07:00Z") == [
        "! Dataset n/old: deleted at 2026-01-01T10:00:00Z, and still there: still used by pod reader",
        f"! Dataset n/stuck: deleted at 2026-01-01T10:00:00Z, and still there: {silent}",
    ]


def test_nothing_is_said_in_a_line() -> None:
    text = output_of(ListedObjects(), namespace=None)
    assert "no Dataset in any namespace" in text
    assert "no CacheCluster" in text


def test_a_narrow_terminal_shows_names_and_states_rather_than_bars() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    show(WORLD, namespace="n", console=console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "━" not in text
    for part in ("pictures", "Loading", "42%", "Complete", "1 GiB of 4 GiB"):
        assert part in text
    assert "━" in output_of(WORLD)


def test_objects_of_all_namespaces_carry_their_namespace() -> None:
    assert "n/pictures" in output_of(WORLD, namespace=None)


def complaints(world: ListedObjects) -> list[str]:
    return [line for line in output_of(world).splitlines() if line.startswith("!")]


LONG = (
    "the source refused the keys of Secret keys: put keys into it that may list and read the bucket pictures"
)


def test_a_long_message_is_written_once_whoever_repeats_it() -> None:
    unready = condition("Ready", "False", LONG)
    datasets = [obj(f"d{number}", state="Failed", conditions=[unready]) for number in range(6)]
    waits = f"it waits for Dataset d3: {LONG}"
    jobs = [
        obj(f"train-{number}", state="Waiting", reason="DatasetNotFound", message=waits)
        for number in range(2)
    ]
    assert complaints(ListedObjects(datasets=datasets, jobs=jobs)) == [
        f"! Dataset n/d0, n/d1, n/d2, n/d3 and 2 more: {LONG}",
        "! TrainingJob n/train-0, n/train-1: it waits for Dataset d3: see Dataset n/d0",
    ]


def test_a_dataset_that_repeats_itself_does_so_in_two_words() -> None:
    conditions = [condition("Placed", "False", LONG), condition("Ready", "False", f"3 MiB on 1 node; {LONG}")]
    assert complaints(ListedObjects(datasets=[obj("one", state="Failed", conditions=conditions)])) == [
        f"! Dataset n/one: {LONG}",
        "! Dataset n/one: 3 MiB on 1 node; as above",
    ]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("Failed", "JobFailed"),
        ("Waiting", "DatasetNotFound"),
        ("Waiting", "InvalidSpec"),
        ("Waiting", "NameTaken"),
        ("Running", "NameTaken"),
        ("Queued", "NoNodeIsLargeEnough"),
        ("Queued", "NoNodeMatches"),
        ("Queued", "QuotaTooSmall"),
        ("Starting", "ImagePullBackOff"),
        ("Starting", "ErrImageNeverPull"),
        ("Restarting", "Unschedulable"),
    ],
)
def test_a_job_that_only_a_person_can_help_is_named_once_with_its_message(state: str, reason: str) -> None:
    failed = [condition("Failed", "True", "what to mend")] if state == "Failed" else []
    job = obj("train", state=state, reason=reason, message="what to mend", conditions=failed)
    assert complaints(ListedObjects(jobs=[job])) == ["! TrainingJob n/train: what to mend"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("Waiting", "DatasetLoading"),
        ("Queued", "NotEnoughRoom"),
        ("Queued", "BehindOtherJobs"),
        ("Suspended", "SuspendedByUser"),
        ("Starting", "PodsStarting"),
        ("Restarting", "PodFailed"),
        ("Waiting", "EarlierJobGoing"),
        ("Running", ""),
        ("Succeeded", "Completed"),
    ],
)
def test_a_job_that_goes_on_by_itself_needs_nobody(state: str, reason: str) -> None:
    assert complaints(ListedObjects(jobs=[obj("train", state=state, reason=reason, message="a while")])) == []


def preload(state: str, reason: str) -> dict[str, Any]:
    verdict = {"reason": reason, "message": f"{reason} is told"}
    conditions = [
        {"type": "Complete", "status": "False", **verdict},
        {"type": "Failed", "status": str(state == "Failed"), **verdict},
    ]
    return obj("warm", state=state, conditions=conditions)


def test_a_preload_that_has_failed_or_lacks_its_dataset_or_nodes_is_named() -> None:
    for state, reason in (
        ("Failed", "VerifyFailed"),
        ("Pending", "DatasetNotFound"),
        ("Pending", "NoCacheNode"),
    ):
        lines = complaints(ListedObjects(preloads=[preload(state, reason)]))
        assert lines == [f"! Preload n/warm: {reason} is told"]
    for state, reason in (("Pending", "Planning"), ("Loading", "LoadFailed"), ("Suspended", "Suspended")):
        assert complaints(ListedObjects(preloads=[preload(state, reason)])) == []


def test_of_a_job_that_has_ended_the_workers_that_succeeded_are_counted() -> None:
    counts = [{"name": "Worker", "ready": 0, "succeeded": 2}]
    spec = {"workers": 2}
    ended = obj("train", spec=spec, state="Succeeded", replicaStatuses=counts)
    assert "2 of 2 succeeded" in output_of(ListedObjects(jobs=[ended]))
    running = obj("train", spec=spec, state="Running", replicaStatuses=[{"name": "Worker", "ready": 1}])
    assert "1 of 2" in output_of(ListedObjects(jobs=[running]))
    assert "succeeded" not in output_of(ListedObjects(jobs=[running]))


@pytest.mark.parametrize(
    ("example", "state", "done", "text"),
    [
        ("trainingjob-parameter-server.yaml", "Succeeded", {"Chief": 1}, "chief succeeded"),
        ("trainingjob-parameter-server.yaml", "Failed", {"Worker": 2}, "chief did not succeed"),
        ("trainingjob-parameter-server-torch.yaml", "Succeeded", {"Worker": 1}, "worker 0 succeeded"),
        ("trainingjob-parameter-server-torch.yaml", "Succeeded", {"Worker": 2}, "2 of 2 succeeded"),
        ("trainingjob-parameter-server-torch.yaml", "Failed", {"Worker": 1}, "1 of 2 succeeded"),
        ("trainingjob-score.yaml", "Failed", {"Worker": 2}, "2 of 3 succeeded"),
    ],
)
def test_of_a_job_that_has_ended_the_pods_by_which_it_ended_are_counted(
    example: str, state: str, done: dict[str, int], text: str
) -> None:
    (job,) = yaml.safe_load_all((EXAMPLES / example).read_text())
    roles = [role["name"] for role in job["spec"]["replicaSpecs"]]
    counts = [{"name": role, "ready": 0, "succeeded": done.get(role, 0)} for role in roles]
    job["status"] = {"state": state, "replicaStatuses": counts}
    assert f" {text} " in output_of(ListedObjects(jobs=[job]))


@pytest.mark.parametrize(
    ("renewed", "words"),
    [
        ("2026-01-01T00:00:00.123456Z", "for 10 min"),
        ("2026-01-01T00:09:30.000000Z", ""),
        ("2026-01-01T00:11:00.000000Z", ""),
        (None, ""),
    ],
)
def test_an_operator_that_is_not_at_work_is_said_first(renewed: str | None, words: str) -> None:
    lease = {"metadata": {"name": "tdcs-operator"}, "spec": {"holderIdentity": "one", "renewTime": renewed}}
    console = Console(file=io.StringIO(), width=160, color_system=None)
    show(ListedObjects(lease=lease), namespace="n", console=console, now="2026-01-01T00:10:00Z")
    assert isinstance(console.file, io.StringIO)
    first = console.file.getvalue().splitlines()[0]
    assert first.startswith("! Operator: none has renewed Lease tdcs-system/tdcs-operator") == bool(words)
    assert words in first


def test_the_operators_lease_is_read_where_that_is_allowed(tmp_path: Path) -> None:
    lease = {**stored("tdcs-operator", "tdcs-system"), "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    for forbidden in (False, True):
        hidden = frozenset({"leases"} if forbidden else ())
        with ApiStandIn({"leases": [lease]}, forbidden=hidden) as server:
            config = str(server.kubeconfig(tmp_path))
            result = CliRunner().invoke(main, ["status", f"--kubeconfig={config}", "-A"])
        assert result.exit_code == 0, result.output
        assert ("! Operator:" in result.output) == (not forbidden)


async def test_a_missing_namespace_is_named_and_an_existing_one_is_not() -> None:
    server = Server()
    await server.create(NAMESPACES, obj={"kind": "Namespace", "metadata": {"name": "there"}})
    await check_namespace(server, "there")
    with pytest.raises(click.ClickException, match="there is no namespace nosuchns"):
        await check_namespace(server, "nosuchns")


async def test_who_may_not_look_at_namespaces_gets_no_error() -> None:
    resources: list[Resource] = []

    def forbid(verb: str, resource: Resource) -> None:
        resources.append(resource)
        raise ForbiddenError(
            verb=verb, resource=resource, namespace=None, name="x", code=403, reason="Forbidden", detail="no"
        )

    server = Server()
    server.refuse = forbid
    await check_namespace(server, "nosuchns")
    assert resources == [NAMESPACES]


def stored(name: str, namespace: str) -> dict[str, Any]:
    return {**obj(name, namespace=namespace), "kind": "x"}


def lines_of_a_tenant(
    folder: Path,
    *options: str,
    forbidden: frozenset[str] = frozenset(),
    own_namespace: frozenset[str] = frozenset(),
) -> Result:
    objects = {
        "datasets": [stored("pictures", "team"), stored("secret", "other")],
        "preloads": [stored("warm", "team")],
        "trainingjobs": [stored("train", "team")],
        "cacheclusters": [stored("default", "tdcs-system")],
    }
    with ApiStandIn(objects, forbidden=forbidden, own_namespace_only=own_namespace) as server:
        config = str(server.kubeconfig(folder))
        return CliRunner().invoke(main, ["status", f"--kubeconfig={config}", *options])


EVERYTHING = frozenset({"datasets", "preloads", "trainingjobs", "cacheclusters"})


def test_a_tenant_without_rights_on_the_caches_sees_the_rest_and_who_can_help(tmp_path: Path) -> None:
    hidden = frozenset({"cacheclusters"})
    for options in (["-n", "team"], ["-A"]):
        result = lines_of_a_tenant(tmp_path, *options, forbidden=hidden)
        assert result.exit_code == 0, result.output
        for name in ("pictures", "warm", "train"):
            assert name in result.output
        assert "you may not list cacheclusters.tdcs.io" in result.output
        assert "bind the ClusterRole tdcs-cluster-view to you" in result.output
        assert "install the chart" not in result.output


def test_a_tenant_of_one_namespace_sees_that_namespace_and_the_limit_on_caches(tmp_path: Path) -> None:
    result = lines_of_a_tenant(tmp_path, "-n", "team", own_namespace=EVERYTHING)
    assert result.exit_code == 0, result.output
    assert "pictures" in result.output
    # Caches of the usual namespace are found where those of all namespaces may not be listed.
    assert "default" in result.output
    assert "may not list" not in result.output


def test_each_kind_that_may_not_be_listed_has_one_line_with_the_role_that_helps(tmp_path: Path) -> None:
    everywhere = lines_of_a_tenant(tmp_path, "-A", own_namespace=EVERYTHING)
    assert everywhere.exit_code == 0, everywhere.output
    for plural in sorted(EVERYTHING - {"cacheclusters"}):
        lines = [line for line in everywhere.output.splitlines() if f"list {plural}.tdcs.io" in line]
        assert len(lines) == 1
        assert "of all namespaces: -n NAMESPACE asks for one" in lines[0]
    result = lines_of_a_tenant(tmp_path, "-n", "team", forbidden=frozenset({"preloads"}))
    assert "you may not list preloads.tdcs.io in namespace team" in result.output
    assert "bind the ClusterRole tdcs-view or tdcs-edit to you there" in result.output
    assert "no Preload" not in result.output


class Listing:
    """An API server on which somebody may list the objects of all namespaces, or may not."""

    def __init__(self, *namespaces: str, allowed: bool = True) -> None:
        self._namespaces, self._allowed = namespaces, allowed

    async def list(self, resource: Resource, **_: object) -> Any:
        if not self._allowed:
            raise ForbiddenError(
                verb="list", resource=resource, namespace=None, name=None, code=403, reason="", detail=""
            )
        return SimpleNamespace(items=[{"metadata": {"namespace": name}} for name in self._namespaces])


@pytest.mark.parametrize(
    ("api", "text"),
    [
        (Listing("b", "a"), "There is something in a, b: -n NAMESPACE looks into one of them, -A into all."),
        (Listing(*"gfedcba"), "There is something in a, b, c, d, e and 2 more: "),
        (Listing(), "-n NAMESPACE looks into another namespace, -A into all."),
        (Listing("secret", allowed=False), "-n NAMESPACE looks into another namespace, -A into all."),
    ],
)
async def test_where_nothing_is_the_namespaces_that_have_something_are_named(api: Any, text: str) -> None:
    assert _look_elsewhere(await used_namespaces(api)).startswith(text)
