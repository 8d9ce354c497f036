"""What passes look up instead of looking through everything: the same answers, whatever has changed meanwhile."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.builders import candidate, totals_of

from tdcs.api import names
from tdcs.api.dataset import USERS_NAMED
from tdcs.control.cache_observer import CacheObserver
from tdcs.control.context import DatasetPaths
from tdcs.control.dataset import cache_manager as manager_module
from tdcs.control.dataset.cache_manager import CacheManager
from tdcs.control.node_usage import Usage, trimmed
from tdcs.control.node_view import NodeDirectory
from tdcs.decide.cache.grants import GrantInput, Grants, MountDemand, grant
from tdcs.decide.cache.node_room import NodeSpace
from tdcs.decide.cache.wants import Want
from tdcs.model.agent_state import AgentState

Objects = dict[tuple[str, str], dict[str, Any]]


def dataset(*, cluster: str, path: str) -> dict[str, Any]:
    status = {"mountPath": path} if path else {}
    return {"spec": {"cacheClusterRef": {"name": cluster}}, "status": status}


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.sampled_from(["", "/1", "/2"]), st.sampled_from(["x", "y", "gone"])
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(CHANGES)
def test_the_datasets_of_a_mount_are_those_that_name_it_after_any_changes(
    changes: list[tuple[str, str, str]],
) -> None:
    store: Objects = {}
    paths = DatasetPaths()
    for name, path, cluster in changes:
        if cluster == "gone":
            store.pop(("n", name), None)
        else:
            store["n", name] = dataset(cluster=cluster, path=path)
        expected = {
            place: {
                key
                for key, obj in store.items()
                if (names.cache_cluster_of(obj), obj["status"].get("mountPath")) == place
            }
            for place in [(cluster, at) for cluster in "xy" for at in ("/1", "/2")]
        }
        for (place_cluster, at), users in expected.items():
            assert set(paths.users(store, cluster=place_cluster, path=at)) == users
        assert set(paths.places(store)) == {place for place, users in expected.items() if users}


def test_the_first_pods_that_no_job_made_are_known_as_users_of_a_claim() -> None:
    claims: list[tuple[str, str]] = []
    usage, claim = Usage(on_claim=claims.append), ("n", "pictures")

    def pod(*, foreign: bool = True, node: str = "a") -> Mapping[str, Any]:
        return {"node": node, "takes": {}, "foreign": foreign, "claims": ["pictures"]}

    for name in ("d", "b", "c", "e"):
        usage.seen(("n", name), dict(pod()))
    assert usage.users_of(claim) == ("b", "c", "d")
    claims.clear()
    usage.seen(("n", "f"), dict(pod()))  # behind those that are named, and on the same node
    assert claims == []
    usage.seen(("n", "a"), dict(pod(foreign=False)))
    usage.seen(("n", "waits"), dict(pod(node="")))
    assert usage.users_of(claim) == ("b", "c", "d")
    usage.seen(("n", "b"), None)
    assert claims == [claim]
    assert usage.users_of(claim) == ("c", "d", "e")
    assert usage.users_of(("m", "pictures")) == ()


def test_a_deleted_pod_is_no_user_of_a_claim_unless_a_controller_makes_it_again() -> None:
    usage, claim = Usage(), ("n", "pictures")

    def show_pod(name: str, *, owned: bool, deleted: bool) -> None:
        owners = [{"uid": "web", "controller": True}] if owned else []
        metadata: dict[str, Any] = {"name": name, "namespace": "n", "ownerReferences": owners}
        if deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "pictures"}}
        pod = {"metadata": metadata, "spec": {"nodeName": "a", "containers": [], "volumes": [volume]}}
        usage.seen(("n", name), trimmed(pod))

    for name, owned in (("reader", False), ("web-1", True)):
        show_pod(name, owned=owned, deleted=False)
    assert usage.users_of(claim) == ("reader", "web-1")
    show_pod("reader", owned=False, deleted=True)
    show_pod("web-1", owned=True, deleted=True)  # while a Deployment rolls over
    assert usage.users_of(claim) == ("web-1",)
    assert usage.is_mounted(claim)
    for name in ("reader", "web-1"):
        usage.seen(("n", name), None)
    show_pod("reader", owned=False, deleted=False)  # another pod of that name
    assert usage.users_of(claim) == ("reader",)


def node(gpus: int = 0, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels},
        "status": {"allocatable": {names.GPU_RESOURCE: str(gpus)}},
    }


def test_views_of_nodes_stay_the_same_objects_until_something_that_counts_changes() -> None:
    usage, directory = Usage(), NodeDirectory()
    nodes: Objects = {("", "a"): node(4, zone="1"), ("", "b"): node()}

    def views() -> Mapping[str, Any]:
        return directory.of(nodes=nodes, usage=usage)

    first, labelled = views(), directory.labelled(nodes=nodes, usage=usage)
    nodes["", "a"] = node(4, zone="1")  # a heartbeat
    assert views() is first
    pod = {"node": "a", "takes": {names.GPU_RESOURCE: 3}, "foreign": True}
    usage.seen(("n", "pod"), pod)
    second = views()
    assert (second["a"].free_gpus, second["b"] is first["b"]) == (1, True)
    assert directory.labelled(nodes=nodes, usage=usage) == labelled
    usage.seen(("n", "pod"), None)
    assert views()["a"].free_gpus == 4
    nodes["", "a"] = node(4, zone="2")
    assert views()["a"].labels == {"zone": "2"}
    assert directory.labelled(nodes=nodes, usage=usage) > labelled
    del nodes["", "b"]
    assert set(views()) == {"a"}


def demand(number: int) -> MountDemand:
    totals = totals_of([10] * 10)
    return MountDemand(
        path=f"/{number}",
        manifest=f"{number}",
        wants=(Want(key=f"Dataset n/{number}", mode="Partition"),),
        totals={(): totals},
        candidates=tuple(map(candidate, "ab")),
    )


def space(name: str, **held: int) -> NodeSpace:
    state = AgentState(node=name, instance="i", revision=1, capacity_bytes=1 << 20)
    return NodeSpace(capacity=1 << 20, state=state)


async def test_mounts_that_ask_at_once_are_served_by_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []

    def counted(grant_input: GrantInput, *, before: Grants) -> Grants:
        passes.append(len(grant_input.mounts))
        return grant(grant_input, before=before)

    monkeypatch.setattr(manager_module, "grant", counted)
    manager = CacheManager(on_change=lambda cluster, path: None)
    nodes = {name: space(name) for name in "ab"}
    requests = [
        manager.grant(cluster="c", demand=demand(number), nodes=nodes, quotas={}) for number in range(50)
    ]
    granted = await asyncio.gather(*requests)
    assert all(sum(grant.node_bytes.values()) == 100 for grant in granted)
    assert len(passes) <= 2
    assert passes[-1] == 50
    await manager.grant(cluster="c", demand=demand(7), nodes=nodes, quotas={})
    assert len(passes) <= 2
    manager.drop_mount(cluster="c", path="/3")
    await manager.grant(cluster="c", demand=demand(7), nodes=nodes, quotas={})
    assert passes[-1] == 49


async def test_what_changed_before_a_pass_that_failed_is_granted_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = CacheManager(on_change=lambda cluster, path: None)
    nodes = {name: space(name) for name in "ab"}
    await manager.grant(cluster="c", demand=demand(1), nodes=nodes, quotas={})

    def fails(grant_input: GrantInput, *, before: Grants) -> Grants:
        raise MemoryError

    monkeypatch.setattr(manager_module, "grant", fails)
    with pytest.raises(MemoryError):
        await manager.grant(cluster="c", demand=demand(1), nodes={"a": space("a")}, quotas={})
    monkeypatch.undo()
    granted = await manager.grant(cluster="c", demand=demand(1), nodes={"a": space("a")}, quotas={})
    assert set(granted.node_bytes) == {"a"}


class SlowCaches:
    """A cache with a master that takes its time; counts how often it is looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.engine = self

    def get(self, *, cluster: str) -> "SlowCaches":
        return self

    async def mounts(self) -> Mapping[str, str]:
        self.looks += 1
        await asyncio.sleep(0.01 * random.random())
        return {f"/{self.looks}": "s3://x"}

    async def stores(self) -> Mapping[str, str]:
        return {}

    async def workers(self) -> list[Any]:
        return []

    async def versions(self) -> Mapping[str, str]:
        return {}

    def connect(self, workers: object) -> None:
        pass

    @property
    def agents(self) -> "SlowCaches":
        return self

    def states(self) -> Mapping[str, AgentState]:
        return {}


async def test_looks_at_a_master_that_are_asked_for_together_are_one_that_begins_afterwards() -> None:
    caches = SlowCaches()
    observer = CacheObserver(
        caches=caches,  # type: ignore[arg-type]
        poll_seconds=60.0,
        on_cache=lambda cluster, paths: None,
        on_agents=lambda cluster, paths: None,
    )
    try:
        await observer.look("c")
        before = caches.looks
        await asyncio.gather(*(observer.look("c") for _ in range(100)))
        assert caches.looks <= before + 2
        before = caches.looks
        await observer.look("c")
        assert caches.looks == before + 1
        assert f"/{caches.looks}" in observer.view("c").mounts
    finally:
        await observer.close()


class CountedText(str):
    """A text that counts how often anybody has to look at it."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        CountedText.looks += 1
        return super().__hash__()


def test_one_more_pod_of_a_claim_costs_no_look_at_those_that_are_there() -> None:
    usage = Usage()

    def looks_of(number: int) -> int:
        CountedText.looks = 0
        pod = {"node": CountedText(f"node-{number}"), "takes": {}, "foreign": True, "claims": ["pictures"]}
        usage.seen(("n", f"pod-{number:04}"), pod)
        return CountedText.looks

    costs = [looks_of(number) for number in range(500)]
    assert costs[-1] == costs[10]
    assert len(usage.nodes_of(("n", "pictures"))) == 500


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.sampled_from(["", "x", "y"]), st.booleans(), st.sets(st.sampled_from("cd"))
        ),
        max_size=15,
    )
)
def test_who_mounts_a_claim_is_as_its_pods_say_after_any_changes(
    changes: list[tuple[int, str, bool, set[str]]],
) -> None:
    changed_claims: list[tuple[str, str]] = []
    usage = Usage(on_claim=changed_claims.append)
    pods: Objects = {}
    for number, node, leaves, claims in changes:
        key = ("n", f"pod-{number}")
        before = {claim: (usage.nodes_of(("n", claim)), usage.users_of(("n", claim))) for claim in "cd"}
        pod = {"node": node, "takes": {}, "foreign": True, "claims": sorted(claims)}
        pods[key] = {**pod, "leaves": True} if leaves else pod
        changed_claims.clear()
        usage.seen(key, pods[key])
        for claim in "cd":
            mounting = {at: pod for at, pod in pods.items() if claim in pod["claims"] and pod["node"]}
            assert usage.nodes_of(("n", claim)) == {pod["node"] for pod in mounting.values()}
            users = sorted(name for (_, name), pod in mounting.items() if not pod.get("leaves"))
            assert usage.users_of(("n", claim)) == tuple(users[:USERS_NAMED])
            assert usage.is_mounted(("n", claim)) == bool(mounting)
            now = (usage.nodes_of(("n", claim)), usage.users_of(("n", claim)))
            assert (("n", claim) in changed_claims) == (now != before[claim])
