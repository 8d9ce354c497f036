"""The victim's source by its sharing: a grant that nobody gave, one that was taken back, more than one gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.attacks.unit.victim import ATTACKER, MB, RENEWED, VICTIM, cluster, forged, reason, victims
from tests.support.twins.engine import Operation
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.control.dataset.access import volume_objects
from tdcs.model.cache_engine import SourceError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NAMESPACES, PERSISTENT_VOLUMES, SECRETS

__all__ = ["cluster"]

REFERENCE = {"datasetRef": {"namespace": VICTIM[0], "name": VICTIM[1]}}
CONSENT = {"namespaces": ["stranger"]}


async def share(cluster: Cluster, *grants: Object) -> None:
    """The victim shares its source in this way, and in no other."""
    await cluster.change(DATASETS, VICTIM[1], sharedWith=list(grants))


async def put_reference(cluster: Cluster, *, metadata: Object | None = None, **more: Any) -> None:
    """The attacker's Dataset of the victim's source by a reference."""
    namespace, name = ATTACKER
    spec = {"source": REFERENCE, **more.pop("spec", {})}
    await cluster.server.create(
        DATASETS,
        obj={
            "apiVersion": names.API_VERSION,
            "kind": "Dataset",
            "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
            "spec": spec,
            **more,
        },
    )


def status(cluster: Cluster) -> Object:
    return dict(cluster.server.store(DATASETS)[ATTACKER].get("status") or {})


async def until_ready(cluster: Cluster) -> None:
    await cluster.until(lambda: status(cluster).get("state") == "Ready")


def has_volume(cluster: Cluster) -> bool:
    volume = names.volume_name(namespace=ATTACKER[0], dataset=ATTACKER[1])
    return ("", volume) in cluster.server.store(PERSISTENT_VOLUMES)


@pytest.mark.threat("forged-grant")
@pytest.mark.parametrize("place", ["status", "annotation", "own spec"])
async def test_a_grant_that_the_attacker_writes_grants_nothing(cluster: Cluster, place: str) -> None:
    grant = {"sharedWith": [CONSENT]}
    match place:
        case "status":
            await put_reference(cluster, status={**forged(cluster), **grant, "claimName": ATTACKER[1]})
        case "annotation":
            marks = {"annotations": {"tdcs.io/shared-with": "stranger", "tdcs.io/sharedWith": "stranger"}}
            await put_reference(cluster, metadata=marks)
        case _:
            await put_reference(cluster, spec=grant)
    await reason(cluster, {"NotShared"})
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.threat("forged-grant")
async def test_a_grant_in_the_victims_status_grants_nothing(cluster: Cluster) -> None:
    """As one would have it who may write statuses in the victim's namespace."""
    await cluster.server.merge(
        DATASETS, name=VICTIM[1], namespace=VICTIM[0], patch={"status": {"sharedWith": [CONSENT]}}
    )
    await put_reference(cluster)
    await reason(cluster, {"NotShared"})


@pytest.mark.threat("forged-grant")
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_a_grant_that_was_taken_back_leaves_no_volume(cluster: Cluster, restarted: bool) -> None:
    await share(cluster, CONSENT)
    await put_reference(cluster)
    await until_ready(cluster)
    assert has_volume(cluster)
    if restarted:
        await cluster.stop()
    await share(cluster)
    if restarted:
        await cluster.start()
    await cluster.until(lambda: not has_volume(cluster))
    await reason(cluster, {"NotShared"})
    await cluster.until(lambda: cluster.condition("Ready")["status"] == "True")


def slow_mounts(cluster: Cluster) -> None:
    async def hold(operation: Operation) -> None:
        if operation.name == "mount":
            await asyncio.Event().wait()

    cluster.engine.before = hold


def store_away(cluster: Cluster) -> list[Operation]:
    """What asks the store fails from now on, and is noted."""
    failed: list[Operation] = []

    async def fail(operation: Operation) -> None:
        if operation.name in {"mount", "ask_source", "check_keys", "files"}:
            failed.append(operation)
            raise SourceError(
                attempted=f"ask the source of {operation.path}", reason="no answer", remedy="Wait"
            )

    cluster.engine.before = fail
    return failed


def path_of_volume(cluster: Cluster) -> str:
    """Where the attacker's volume leads; empty without one."""
    volume_name = names.volume_name(namespace=ATTACKER[0], dataset=ATTACKER[1])
    return volume_objects.mounted_path(cluster.server.store(PERSISTENT_VOLUMES).get(("", volume_name)))


@pytest.mark.threat("outside-the-grant")
@pytest.mark.parametrize("keys", ["same keys", "renewed keys", "no keys left", "no keys needed"])
@pytest.mark.parametrize("hinder", [None, slow_mounts, store_away], ids=["quick", "slow mount", "store away"])
async def test_a_grant_that_is_narrowed_while_no_operator_runs_leaves_no_wider_volume(
    cluster: Cluster, hinder: Callable[[Cluster], object] | None, keys: str
) -> None:
    """Whether or not the store answers, and whatever became of the owner's keys meanwhile."""
    cluster.engine.sources["s3://pictures"] = {"a": MB, "train/b": 2 * MB}
    await cluster.annotate(VICTIM[1], refresh="1")
    await cluster.until(lambda: cluster.status()["totalBytes"] == 3 * MB)
    if keys == "no keys needed":
        cluster.engine.credentials.clear()
        await cluster.change(DATASETS, VICTIM[1], source={"secretRef": None})
        await cluster.until_state("Ready")
    await share(cluster, CONSENT)
    await put_reference(cluster)
    await until_ready(cluster)
    wide = path_of_volume(cluster)
    assert status(cluster)["totalFiles"] == 2
    await cluster.stop()
    await share(cluster, {**CONSENT, "paths": ["train"]})
    if keys == "renewed keys":
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.create_keys(key=RENEWED.secret_access_key)
    if keys == "no keys left":
        del cluster.server.store(SECRETS)[VICTIM[0], "keys"]
    if hinder is not None:
        hinder(cluster)
    await cluster.start()
    await cluster.until(lambda: path_of_volume(cluster) != wide, deadline=10)
    if hinder is None and keys != "no keys left":
        await cluster.until(lambda: status(cluster).get("totalFiles") == 1)
        await until_ready(cluster)
    assert path_of_volume(cluster) != wide


@pytest.mark.threat("outside-the-grant")
async def test_a_grant_narrowed_while_the_store_is_away_since_a_restart_leaves_no_wider_volume(
    cluster: Cluster,
) -> None:
    """The new operator has not mounted the source, and had found the volume to be the Dataset's own."""
    await share(cluster, CONSENT)
    await put_reference(cluster)
    await until_ready(cluster)
    wide = path_of_volume(cluster)
    await cluster.stop()
    failed = store_away(cluster)
    await cluster.start()
    await cluster.until(
        lambda: len(failed) >= 3
    )  # so often the new operator has tried, and looked at the volume
    assert path_of_volume(cluster) == wide, "what is granted still stays"
    await share(cluster, {**CONSENT, "paths": ["train"]})
    await cluster.until(lambda: path_of_volume(cluster) != wide, deadline=10)


@pytest.mark.threat("outside-the-grant")
async def test_a_grant_that_is_narrowed_takes_the_wider_volume_while_the_store_has_no_address() -> None:
    """Also of a Dataset that was reported not to be mounted."""
    hosts = {"store.example": ["93.184.216.34"]}

    def resolve(host: str) -> list[str]:
        if host not in hosts:
            raise OSError("no such host")
        return hosts[host]

    async with victims(resolve=resolve) as cluster:
        await cluster.change(DATASETS, VICTIM[1], source={"options": {"endpoint": "https://store.example"}})
        await share(cluster, CONSENT)
        await put_reference(cluster)
        await until_ready(cluster)
        wide = path_of_volume(cluster)
        await cluster.stop()
        await share(cluster, {**CONSENT, "paths": ["train"]})
        hosts.clear()
        conditions = cluster.server.store(DATASETS)[ATTACKER]["status"]["conditions"]
        mounted = next(condition for condition in conditions if condition["type"] == names.MOUNTED)
        mounted["status"] = "False"
        await cluster.start()
        await cluster.until(lambda: path_of_volume(cluster) != wide, deadline=10)


@pytest.mark.threat("outside-the-grant")
async def test_a_grant_that_stands_keeps_its_volume_when_keys_were_renewed_while_no_operator_ran(
    cluster: Cluster,
) -> None:
    await share(cluster, {**CONSENT, "paths": ["a"]})
    await put_reference(cluster)
    await until_ready(cluster)
    path = path_of_volume(cluster)
    await cluster.stop()
    cluster.engine.credentials["s3://pictures"] = RENEWED
    await cluster.create_keys(key=RENEWED.secret_access_key)
    failed = store_away(cluster)
    await cluster.start()
    await cluster.until(
        lambda: len(failed) >= 3
    )  # so often the new operator has tried, and looked at the volume
    assert path_of_volume(cluster) == path
    assert not cluster.events("CacheUnavailable")


@pytest.mark.threat("outside-the-grant")
async def test_no_path_outside_of_the_grant_is_had_by_naming_it(cluster: Cluster) -> None:
    cluster.engine.sources["s3://pictures"] = {"a": MB, "train/b": 2 * MB, "train-c": 4 * MB}
    await cluster.annotate(VICTIM[1], refresh="1")
    await cluster.until(lambda: cluster.status()["totalBytes"] == 7 * MB)
    await share(cluster, {**CONSENT, "paths": ["train"]})
    await put_reference(cluster, spec={"preload": {"paths": ["a", "train-c", "train"]}})
    await cluster.until(lambda: status(cluster).get("loadedBytes") == 2 * MB)
    assert (status(cluster)["totalFiles"], status(cluster)["wantedBytes"]) == (1, 2 * MB)
    assert "no file under 'a', 'train-c'" in status(cluster)["message"], "as if it were not there"


async def test_what_is_shared_counts_against_the_quota_of_who_reads_it(cluster: Cluster) -> None:
    labels = {"kubernetes.io/metadata.name": ATTACKER[0]}  # as the API server labels it
    cluster.server.store(NAMESPACES)["", ATTACKER[0]]["metadata"]["labels"] = labels
    quota = {
        "name": "strangers",
        "bytes": 1000,
        "namespaceSelector": {"matchLabels": labels},
    }
    await cluster.server.merge(
        CACHE_CLUSTERS,
        name=names.DEFAULT_CACHE_CLUSTER,
        namespace=names.SYSTEM_NAMESPACE,
        patch={"spec": {"quotas": [quota]}},
    )
    await share(cluster, CONSENT)
    await put_reference(cluster)
    await cluster.until(
        lambda: any(
            condition["type"] == names.GRANTED
            and condition["status"] == "False"
            and "strangers" in condition["message"]
            for condition in status(cluster).get("conditions", ())
        )
    )
    assert cluster.status()["loadedBytes"] == MB, "the victim's own stays"
    assert cluster.condition(names.GRANTED)["status"] == "True"
