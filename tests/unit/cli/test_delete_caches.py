"""Before an uninstall the caches go, while somebody can still free the disks; never with data in use."""

import pytest
from tests.unit.control.server import Server

from tdcs.api import names
from tdcs.cli.delete_caches import StillThereError, delete_caches
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, Resource

HOME = "tdcs-system"


async def server_with(**objects: list[str]) -> Server:
    """An API server with CacheClusters and Datasets of these names; both have finalizers."""
    server = Server()
    kinds: dict[str, Resource] = {"caches": CACHE_CLUSTERS, "datasets": DATASETS}
    for kind, object_names in objects.items():
        for name in object_names:
            namespace = "n" if kinds[kind] is DATASETS else HOME
            metadata: Object = {"name": name, "namespace": namespace, "finalizers": [names.FINALIZER]}
            await server.create(kinds[kind], obj={"kind": kinds[kind].kind, "metadata": metadata, "spec": {}})
    server.writes.clear()
    return server


async def test_the_caches_are_deleted_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    server = await server_with(caches=["default"])
    looks: list[str] = []

    def freed_at_the_third_look(verb: str, resource: Resource) -> None:
        if verb == "get":
            looks.append(verb)
        if len(looks) == 3:
            server.store(resource).clear()

    server.refuse = freed_at_the_third_look
    await delete_caches(api=server, namespace=HOME, clusters=["default"], patience=5, poll=0)
    assert server.writes == ["delete CacheCluster tdcs-system/default"]
    assert looks == ["get"] * 3
    assert "CacheCluster default is gone" in capsys.readouterr().out


async def test_with_datasets_nothing_is_deleted_and_they_are_named() -> None:
    server = await server_with(caches=["default"], datasets=["a", "b"])
    with pytest.raises(StillThereError, match=r"2 Datasets \(n/a, n/b\), which only the running") as refused:
        await delete_caches(api=server, namespace=HOME, clusters=["default"], patience=5)
    assert "kubectl delete trainingjobs,preloads,datasets --all --all-namespaces" in str(refused.value)
    assert "--no-hooks" in str(refused.value)
    assert server.writes == []


async def test_another_cache_stands_in_the_way_as_well() -> None:
    server = await server_with(caches=["default", "mine"])
    with pytest.raises(
        StillThereError,
        match=r"1 CacheCluster \(tdcs-system/mine\).*kubectl delete cacheclusters -n tdcs-system mine",
    ):
        await delete_caches(api=server, namespace=HOME, clusters=["default"], patience=5)
    assert server.writes == []


async def test_a_dataset_being_deleted_is_waited_for_and_named_when_time_is_up() -> None:
    server = await server_with(caches=["default"], datasets=["a"])
    await server.delete(DATASETS, name="a", namespace="n")
    condition = {"type": "Ready", "status": "False", "message": "it is deleted when n/a is gone"}
    server.store(CACHE_CLUSTERS)[HOME, "default"]["status"] = {"conditions": [condition]}
    with pytest.raises(
        StillThereError, match="still being deleted after 0 s: it is deleted when n/a is gone"
    ):
        await delete_caches(api=server, namespace=HOME, clusters=["default"], patience=0, poll=0)
