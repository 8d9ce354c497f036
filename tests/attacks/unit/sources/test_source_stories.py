"""Tenants that name what is not theirs, at a whole operator: what they are told, and what becomes of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.model.cache_engine import Source
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NAMESPACES, NODES, PERSISTENT_VOLUMES, SECRETS

MB = 1_000_000
STORE = "http://store.example:9000"


class Names:
    """What the names of hosts stand for; a test changes it."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {"store.example": ["93.184.216.34"]}
        self.asked = 0

    def __call__(self, host: str) -> list[str]:
        self.asked += 1
        if host not in self.found:
            raise OSError(f"{host} is not known")
        return self.found[host]


@pytest.fixture
def hosts() -> Names:
    return Names()


@pytest.fixture
async def cluster(hosts: Names, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr("tdcs.control.dataset.access.store_endpoints.FRESH_SECONDS", 0.05)
    engine = MemoryEngine(
        sources={"s3://pictures": {"a": MB}, "file:///nfs/pictures": {"a": MB}},
        workers={"n1": 100 * MB, "n2": 100 * MB},
    )
    async with Cluster(engine=engine, nodes={"n1": {}, "n2": {}}, resolve=hosts) as cluster:
        cluster.server.store(NAMESPACES)["", "n"] = {"metadata": {"name": "n", "labels": {"team": "a"}}}
        await cluster.create_cache()
        await cluster.create_keys()
        yield cluster


async def refused(cluster: Cluster, reason: str, name: str = "pictures") -> str:
    """Until a Dataset is refused for this reason; the message."""
    await cluster.until(lambda: cluster.condition("Ready", name).get("reason") == reason)
    return str(cluster.condition("Ready", name)["message"])


@pytest.mark.threat("forbidden-addresses")
async def test_where_the_networks_of_services_are_unknown_a_store_without_tls_waits_for_a_rule(
    hosts: Names,
) -> None:
    engine = MemoryEngine(sources={"s3://pictures": {"a": MB}}, workers={"n1": 100 * MB})
    async with Cluster(engine=engine, nodes={"n1": {}}, resolve=hosts, services=()) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(source={"options": {"endpoint": STORE}})
        message = await refused(cluster, "NetworksUnknown")
        assert "internalNetworks" in message
        assert "Use https" in message
        assert not engine.state.mounts
        await cluster.create_dataset("by-https", source={"options": {"endpoint": "https://203.0.113.9"}})
        await cluster.until_state("Ready", "by-https")
        cluster.networks.texts = ("10.96.0.0/12",)
        await cluster.annotate("pictures", refresh="1")
        await cluster.until_state("Ready")


@pytest.mark.threat("forbidden-addresses")
async def test_a_store_inside_the_cluster_is_not_read_unless_a_rule_names_it(cluster: Cluster) -> None:
    inside = "http://store.tdcs-store.svc:7070"
    await cluster.create_dataset(source={"options": {"endpoint": inside}})
    assert inside in await refused(cluster, "EndpointNotAllowed")
    assert not cluster.engine.state.mounts
    await cluster.server.merge(
        CACHE_CLUSTERS,
        name="default",
        namespace=names.SYSTEM_NAMESPACE,
        patch={"spec": {"sources": [{"name": "store", "endpoints": [inside]}]}},
    )
    await cluster.until_state("Ready")


@pytest.mark.threat("audit")
async def test_a_forbidden_address_that_only_the_operator_finds_is_an_event_and_a_line_of_the_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.context.stores.pod_addresses.seen(("m", "web"), ["192.0.2.7"])
    await cluster.create_dataset(source={"options": {"endpoint": "https://192.0.2.7"}})
    message = await refused(cluster, "EndpointNotAllowed")
    await cluster.until(lambda: cluster.events("EndpointNotAllowed"))
    (event,) = cluster.events("EndpointNotAllowed")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == "pictures"
    assert event["message"] == message
    (line,) = [record for record in caplog.records if "EndpointNotAllowed" in record.getMessage()]
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("Dataset n/pictures: ")


async def test_a_name_without_an_address_is_a_warning_to_its_owner(cluster: Cluster, hosts: Names) -> None:
    hosts.found.clear()
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    await refused(cluster, "EndpointUnknown")
    await cluster.until(lambda: cluster.events("EndpointUnknown"))
    assert {event["type"] for event in cluster.events("EndpointUnknown")} == {"Warning"}


@pytest.mark.threat("forbidden-addresses")
async def test_a_name_that_stands_for_the_metadata_address_is_not_mounted(
    cluster: Cluster, hosts: Names
) -> None:
    hosts.found["store.example"] = ["93.184.216.34", "169.254.169.254"]
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    assert "link-local or metadata address" in await refused(cluster, "EndpointNotAllowed")
    assert not cluster.engine.state.mounts


@pytest.mark.threat("name-changes")
async def test_a_name_that_changes_its_mind_loses_its_mount_and_its_volume(
    cluster: Cluster, hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    await cluster.until_state("Ready")
    monkeypatch.setattr("tdcs.control.dataset.access.store_endpoints.REFUSED_SECONDS", 0.3)
    hosts.found["store.example"] = ["10.0.0.7"]
    for node in cluster.server.store(NODES).values():
        node["spec"] = {"podCIDRs": ["10.0.0.0/16"]}
    assert "cluster-internal address" in await refused(cluster, "EndpointNotAllowed")
    await cluster.until(lambda: not cluster.engine.state.mounts)
    await cluster.until(lambda: not cluster.server.store(PERSISTENT_VOLUMES))
    await cluster.until(lambda: not cluster.held())
    await cluster.until(lambda: not cluster.status().get("mountPath"))


@pytest.mark.threat("forbidden-addresses")
async def test_a_pod_is_no_store_where_nodes_name_no_networks_of_pods(
    cluster: Cluster, hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = cluster.context.stores.pod_addresses
    pods.seen(("m", "web"), ["192.0.2.7"])
    await cluster.create_dataset(source={"options": {"endpoint": "https://192.0.2.7"}})
    assert "cluster-internal address" in await refused(cluster, "EndpointNotAllowed")
    assert not cluster.engine.state.mounts
    # One that a pod has later, behind a name.
    await cluster.create_dataset("later", source={"options": {"endpoint": STORE}})
    await cluster.until_state("Ready", "later")
    monkeypatch.setattr("tdcs.control.dataset.access.store_endpoints.REFUSED_SECONDS", 0.3)
    pods.seen(("m", "new"), hosts.found["store.example"])
    assert "cluster-internal address" in await refused(cluster, "EndpointNotAllowed", "later")
    await cluster.until(lambda: not cluster.engine.state.mounts)
    # It is any other address once that pod has ended.
    pods.seen(("m", "new"), [])
    await cluster.until_state("Ready", "later")


@pytest.mark.parametrize("answer", [["169.254.169.254"], None])
async def test_one_wrong_or_failed_answer_takes_nothing_from_a_dataset_that_serves(
    cluster: Cluster, hosts: Names, monkeypatch: pytest.MonkeyPatch, answer: list[str] | None
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.access.store_endpoints.STALE_SECONDS", 0.5)
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    await cluster.until_state("Ready")
    good, hosts.found = hosts.found, {} if answer is None else {"store.example": answer}
    await cluster.until(lambda: "store.example" in cluster.condition("Ready")["message"])
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.engine.state.mounts
    assert cluster.server.store(PERSISTENT_VOLUMES)
    assert cluster.held()
    hosts.found = good
    await cluster.until_state("Ready")
    await cluster.until(lambda: "store.example" not in cluster.condition("Ready")["message"])


@pytest.mark.threat("forbidden-addresses")
async def test_a_store_without_tls_is_asked_at_the_address_that_was_looked_at(
    cluster: Cluster, hosts: Names
) -> None:
    sources: list[Source] = []
    mount = cluster.engine.mount

    async def noted(*, path: str, source: Source) -> None:
        sources.append(source)
        await mount(path=path, source=source)

    cluster.engine.mount = noted  # type: ignore[method-assign]
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    await cluster.until_state("Ready")
    assert {source.reached_options["endpoint"] for source in sources} == {"http://93.184.216.34:9000"}
    hosts.found["store.example"] = ["93.184.216.35", "93.184.216.34"]
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    assert len(sources) == 1
    hosts.found["store.example"] = ["93.184.216.36"]
    await cluster.until(lambda: len(sources) > 1)
    assert sources[-1].reached_options["endpoint"] == "http://93.184.216.36:9000"
    assert cluster.condition("Ready")["status"] == "True"


async def test_a_name_without_an_address_is_said_and_tried_again(cluster: Cluster, hosts: Names) -> None:
    addresses, hosts.found = hosts.found, {}
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    await cluster.until(lambda: "has no address" in cluster.condition("Ready").get("message", ""))
    hosts.found = addresses
    await cluster.until_state("Ready")


async def test_a_name_that_stays_as_it_is_costs_no_pass(
    cluster: Cluster, hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.access.volume_objects.UNSEEN_SECONDS", 0.0)
    await cluster.create_dataset(source={"options": {"endpoint": STORE}})
    await cluster.until_state("Ready")
    await cluster.quiet()
    monkeypatch.setattr("tdcs.control.dataset.access.store_endpoints.FRESH_SECONDS", 0.01)
    lookups, passes = hosts.asked, cluster.passes
    await cluster.until(lambda: hosts.asked > lookups + 40)
    assert cluster.passes - passes < 10  # one or two for other reasons
    hosts.found["store.example"] = ["93.184.216.36"]
    passes = cluster.passes
    await cluster.until(lambda: cluster.passes > passes)


async def test_a_rule_that_is_taken_back_ends_the_use_of_a_source(cluster: Cluster) -> None:
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    await cluster.server.merge(
        CACHE_CLUSTERS,
        name="default",
        namespace=names.SYSTEM_NAMESPACE,
        patch={"spec": {"sources": [{"name": "other", "buckets": ["others"]}]}},
    )
    assert "may use others" in await refused(cluster, "BucketNotAllowed")
    await cluster.until(lambda: not cluster.engine.state.mounts and not cluster.held())
    await cluster.until(lambda: not cluster.server.store(PERSISTENT_VOLUMES))


@pytest.mark.threat("folder-squatting")
async def test_a_folder_is_for_the_namespaces_of_its_rule(cluster: Cluster) -> None:
    rule = {"name": "nfs", "namespaceSelector": {"matchLabels": {"team": "b"}}, "folders": ["/nfs"]}
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"sources": [rule]}}
    )
    await cluster.create_dataset(source={"uri": "file:///nfs/pictures", "secretRef": None})
    assert "of which there is none" in await refused(cluster, "FolderNotAllowed")
    await cluster.server.merge(NAMESPACES, name="n", patch={"metadata": {"labels": {"team": "b"}}})
    await cluster.until_state("Ready")


async def put_stranger(cluster: Cluster, name: str, source: dict[str, Any]) -> None:
    """A Dataset of another tenant."""
    await cluster.server.create(
        DATASETS,
        obj={
            "apiVersion": names.API_VERSION,
            "kind": "Dataset",
            "metadata": {"name": name, "namespace": "stranger"},
            "spec": {"source": source, "preload": {"enabled": False}},
        },
    )


def of_stranger(cluster: Cluster, name: str) -> dict[str, Any]:
    """How it stands with a Dataset of the other tenant, by the Ready condition."""
    status = cluster.server.store(DATASETS)["stranger", name].get("status") or {}
    return next((condition for condition in status.get("conditions", ()) if condition["type"] == "Ready"), {})


@pytest.mark.parametrize(
    "squatted",
    [
        {"uri": "s3://pictures", "options": {"endpoint": "https://203.0.113.9"}},
        {"uri": "s3://pictures", "options": {"region": "eu-west-1"}},
        {"uri": "s3://pictures", "secretRef": {"name": "others"}},
        {"uri": "s3://pictures/train"},
    ],
    ids=["endpoint", "region", "keys", "prefix"],
)
@pytest.mark.threat("bucket-squatting")
async def test_a_bucket_name_that_one_tenant_has_mounted_is_kept_from_no_other(
    cluster: Cluster, squatted: dict[str, Any]
) -> None:
    cluster.engine.sources["s3://pictures/train"] = {"a": MB}
    data = {"accessKeyId": "eW91", "secretAccessKey": "b3RoZXI="}
    for name in ("keys", "others"):
        cluster.server.store(SECRETS)["stranger", name] = {"data": data}
    await put_stranger(cluster, "squatter", {"secretRef": {"name": "keys"}, **squatted})
    await cluster.until(lambda: of_stranger(cluster, "squatter").get("status") == "True")
    await cluster.create_dataset()
    await cluster.until_state("Ready")
    squatter = cluster.server.store(DATASETS)["stranger", "squatter"]["status"]
    assert squatter["mountPath"] != cluster.status()["mountPath"]
    for status, other_name in ((squatter, "n/pictures"), (cluster.status(), "stranger")):
        assert other_name not in str(status)


@pytest.mark.threat("folder-squatting", "names-in-messages")
async def test_of_nested_folders_no_message_names_those_of_another_namespace(cluster: Cluster) -> None:
    cluster.engine.sources["file:///nfs/pictures/train"] = {"a": MB}
    rule = {"name": "nfs", "folders": ["/nfs"]}
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"sources": [rule]}}
    )
    await cluster.create_dataset(source={"uri": "file:///nfs/pictures", "secretRef": None})
    await cluster.until_state("Ready")
    await put_stranger(cluster, "inner", {"uri": "file:///nfs/pictures/train"})
    await cluster.until(lambda: of_stranger(cluster, "inner").get("reason") == "MountConflict")
    text = str(cluster.server.store(DATASETS)["stranger", "inner"]["status"])
    assert "inside a folder around it, which another user has mounted" in text
    assert "n/pictures" not in text
    assert "Dataset n" not in text


@pytest.mark.threat("audit")
async def test_the_log_says_who_mounted_which_source_and_when_it_went_without_keys(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tdcs.audit"):
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        await cluster.server.delete(DATASETS, name="pictures", namespace="n")
        await cluster.until(lambda: not cluster.engine.state.mounts)
        await cluster.until(lambda: len(caplog.messages) >= 4)
    mounted, volume_given, volume_taken, unmounted = caplog.messages
    assert mounted.startswith("Dataset n/pictures mounted s3://pictures at /datasets/")
    assert volume_given.startswith("Dataset n/pictures has a volume of /datasets/")
    assert volume_taken.startswith("Dataset n/pictures has no volume of /datasets/")
    assert unmounted.endswith("it is unmounted")
    assert "s3cr3t" not in caplog.text


@pytest.mark.threat("audit")
async def test_the_log_names_every_dataset_of_a_mount_and_when_each_of_them_went(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tdcs.audit"):
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        await cluster.create_dataset("twin")
        await cluster.until_state("Ready", "twin")
        path = cluster.status()["mountPath"]
        assert path == cluster.status("twin")["mountPath"]
        for name in ("pictures", "twin"):
            volume_line = f"Dataset n/{name} has a volume of {path} in CacheCluster default"
            assert caplog.messages.count(volume_line) == 1
        await cluster.server.delete(DATASETS, name="pictures", namespace="n")
        removal_line = f"Dataset n/pictures has no volume of {path} any more"
        await cluster.until(lambda: removal_line in caplog.messages)
    assert [line for line in caplog.messages if line.startswith("Dataset n/twin has no")] == []
    assert path in cluster.engine.state.mounts
