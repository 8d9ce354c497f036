"""Which nodes have a cache worker, what its pods look like, and when the cache is ready."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import GIB, NOW, worker

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec, CacheClusterStatus, CacheWorker
from tdcs.control.cachecluster import cache_children, cache_pods, stock_client
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.decide.leaving_workers import ScaleInInput, choose_nodes
from tdcs.decide.worker_nodes import (
    AlluxioWorkers,
    FuseView,
    progress,
    readiness,
    starting_nodes,
    status_of,
    unready_pods,
    worker_states,
)
from tdcs.node.agent.agent_command import command as agent_command

NO_SCHEDULE = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}


def node(name: str, *, labels: dict[str, str] | None = None, taints: list[Any] | None = None) -> Any:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}}


def chosen(*nodes: Any, present: tuple[str, ...] = (), **spec: Any) -> list[str]:
    return choose_nodes(
        spec=CacheClusterSpec.model_validate(spec),
        nodes={node["metadata"]["name"]: node for node in nodes},
        present=present,
    )


def test_every_node_that_matches_gets_a_worker() -> None:
    gpu = {"gpu": "yes"}
    assert chosen(node("b", labels=gpu), node("a", labels=gpu), node("c"), nodeSelector=gpu) == ["a", "b"]


def test_tainted_nodes_need_a_toleration() -> None:
    tainted = node("t", taints=[NO_SCHEDULE])
    assert chosen(node("a"), tainted) == ["a"]
    assert chosen(node("a"), tainted, tolerations=[{"key": "dedicated", "operator": "Exists"}]) == ["a", "t"]
    assert chosen(node("a"), tainted, tolerations=[{"key": "dedicated", "value": "y"}]) == ["a"]
    assert chosen(node("a"), tainted, tolerations=[{"operator": "Exists"}]) == ["a", "t"]


def test_a_node_that_is_away_for_a_moment_keeps_its_worker_but_gets_no_new_one() -> None:
    away = node("b", taints=[NOT_READY])
    assert chosen(node("a"), away, present=("b",)) == ["a", "b"]
    assert chosen(node("a"), away) == ["a"]


def test_fewer_replicas_keep_workers_that_are_there() -> None:
    nodes = [node(name) for name in "abcd"]
    assert chosen(*nodes, present=("c", "d"), replicas=3) == ["a", "c", "d"]
    assert chosen(*nodes, present=("c", "d"), replicas=1) == ["d"]


def test_new_workers_go_where_gpus_are() -> None:
    nodes = {name: node(name) for name in "abcd"}
    nodes["d"]["status"] = {"allocatable": {"nvidia.com/gpu": "8"}}
    assert choose_nodes(spec=CacheClusterSpec(replicas=2), nodes=nodes, present=("a",)) == ["a", "d"]


def test_new_workers_go_to_the_zones_with_the_fewest() -> None:
    nodes = {name: node(name) for name in "abcdef"}
    zones = dict(zip("abcdef", [("x",), ("x",), ("x",), ("y",), ("y",), ("z",)], strict=True))
    nodes_by_count = {
        count: choose_nodes(
            spec=CacheClusterSpec(replicas=count),
            nodes=nodes,
            present=("a",),
            holdings=ScaleInInput(zones=zones),
        )
        for count in (2, 3, 4)
    }
    assert nodes_by_count == {2: ["a", "d"], 3: ["a", "d", "f"], 4: ["a", "b", "d", "f"]}


def test_a_worker_that_is_asked_for_again_starts_though_the_master_lists_the_old_one_as_lost() -> None:
    now, before = "2026-01-01T00:00:10Z", "2025-12-31T00:00:00Z"
    status = CacheClusterStatus(
        workers=[CacheWorker(node="a", state="Ready"), CacheWorker(node="b", state="Lost")]
    )
    created = {"a": NOW, "b": NOW, "c": NOW, "old": before}
    starting = starting_nodes(wanted=["a", "b", "c", "d", "old"], made=created, known=status, now=now)
    assert starting == {"c", "d"}
    # By a clock that is a year behind the API server's, no worker starts for a year.
    behind = "2025-01-01T00:00:10Z"
    assert starting_nodes(wanted=["c", "d"], made=created, known=status, now=behind) == {"d"}
    states = worker_states(
        wanted=["a", "c"], workers=[worker("a"), worker("c", live=False)], starting=starting
    )
    assert [(state.node, state.state) for state in states] == [("a", "Ready"), ("c", "Pending")]
    condition = readiness(workers=states, fuse=FuseView(), namespace="n")
    assert (condition.reason, condition.message) == ("WorkersStarting", "1 of 2 cache workers are registered")


def test_a_worker_is_pending_ready_or_lost() -> None:
    workers = [worker("a", capacity=100, used=25), worker("b", live=False), worker("stranger")]
    states = worker_states(wanted=["a", "b", "c"], workers=workers)
    assert [(state.node, state.state) for state in states] == [
        ("a", "Ready"),
        ("b", "Lost"),
        ("c", "Pending"),
    ]
    status = status_of(cluster="default", pods=2, workers=states)
    assert (status.replicas, status.desired_replicas, status.ready_replicas) == (2, 3, 1)
    assert (status.capacity_bytes, status.used_bytes, status.used_ratio) == (100, 25, 0.25)
    assert status.selector == "tdcs.io/cache-cluster=default,tdcs.io/component=worker"


def test_a_cache_that_has_never_answered_starts() -> None:
    states = worker_states(wanted=["a"], workers=[])
    condition = readiness(workers=states, fuse=FuseView(), namespace="n", failure="no route", starting=True)
    assert (condition.status, condition.reason) == ("False", "CacheStarting")
    assert condition.message.endswith("does not answer yet: no route")


READINESS = {
    "AllReady": ([worker("a")], FuseView(wanted=1, ready=1), ""),
    "ClientsStarting": ([worker("a")], FuseView(wanted=1, ready=0), ""),
    "WorkersStarting": ([], FuseView(), ""),
    "WorkerLost": ([worker("a", live=False)], FuseView(), ""),
    "CacheUnavailable": ([], FuseView(), "the master is away"),
}


@pytest.mark.parametrize("reason", READINESS)
def test_the_cache_is_ready_when_master_workers_and_clients_are(reason: str) -> None:
    workers, fuse, failure = READINESS[reason]
    states = worker_states(wanted=["a"], workers=workers)
    condition = readiness(workers=states, fuse=fuse, namespace="cache-home", failure=failure)
    assert (condition.reason, condition.status) == (reason, "True" if reason == "AllReady" else "False")


def test_workers_that_start_keep_a_cache_unready_that_is_read_through_them() -> None:
    sets = [{"status": {"replicas": 1}}, {"status": {"replicas": 1, "readyReplicas": 1}}, {}]
    assert unready_pods(sets) == 1
    states = worker_states(wanted=["a", "b"], workers=[worker("a"), worker("b")])
    for needed, was_ready, status in (
        (False, False, "True"),
        (True, False, "False"),
        (True, True, "True"),  # one that restarts
    ):
        condition = readiness(
            workers=states,
            fuse=FuseView(),
            namespace="n",
            was_ready=was_ready,
            alluxio=AlluxioWorkers(starting=1, needed=needed),
        )
        assert condition.status == status, (needed, was_ready)
        assert "Alluxio's worker next to 1 of them is not ready yet" in condition.message
    well = readiness(
        workers=states, fuse=FuseView(), namespace="n", alluxio=AlluxioWorkers(starting=0, needed=True)
    )
    assert (well.status, well.message) == ("True", "2 of 2 cache workers are registered")


def test_a_cache_that_serves_stays_ready_while_a_worker_starts_leaves_or_is_lost() -> None:
    one_of_two = worker_states(wanted=["a", "b"], workers=[worker("a")])
    condition = readiness(workers=one_of_two, fuse=FuseView(), namespace="n", was_ready=True)
    assert (condition.status, condition.reason) == ("True", "WorkersStarting")
    going_on = progress(workers=one_of_two, fuse=FuseView(), namespace="n")
    assert (going_on.type, going_on.status, going_on.reason) == ("Progressing", "True", "WorkersStarting")

    lost = worker_states(wanted=["a", "b"], workers=[worker("a"), worker("b", live=False)])
    condition = readiness(workers=lost, fuse=FuseView(), namespace="n", was_ready=True)
    assert (condition.status, condition.reason) == ("True", "WorkerLost")
    going_on = progress(workers=lost, fuse=FuseView(), namespace="n")
    assert (going_on.status, going_on.reason) == ("False", "WorkerLost")
    assert "lost: b" in going_on.message

    ready = worker_states(wanted=["a"], workers=[worker("a")])
    leaving = [CacheWorker(node="b", state="Draining")]
    condition = readiness(workers=ready, fuse=FuseView(), namespace="n", draining=leaving)
    assert (condition.status, condition.reason) == ("True", "AllReady")
    going_on = progress(workers=ready, fuse=FuseView(), namespace="n", draining=leaving)
    assert (going_on.status, going_on.reason) == ("True", "WorkersLeaving")
    assert "draining: b" in going_on.message


def test_a_cache_without_any_worker_serves_nobody_whatever_it_was_before() -> None:
    none_left = worker_states(wanted=["a"], workers=[worker("a", live=False)])
    condition = readiness(workers=none_left, fuse=FuseView(), namespace="n", was_ready=True)
    assert (condition.status, condition.reason) == ("False", "WorkerLost")


def test_who_lost_a_worker_is_sent_to_the_namespace_of_its_pods() -> None:
    states = worker_states(wanted=["a"], workers=[worker("a", live=False)])
    assert (
        "pods of namespace cache-home"
        in readiness(workers=states, fuse=FuseView(), namespace="cache-home").message
    )


def test_a_cache_without_a_node_says_what_to_change() -> None:
    condition = readiness(workers=[], fuse=FuseView(), namespace="cache-home")
    assert condition.reason == "NoCacheNode"
    assert "spec.nodeSelector" in condition.message


def blueprint(**spec: Any) -> Blueprint:
    return Blueprint(
        owner={
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "CacheCluster",
            "metadata": {"name": "default", "uid": "u"},
        },
        spec=CacheClusterSpec.model_validate(spec),
        namespace="tdcs-system",
        image="alluxio:1",
        agent_image="tdcs:1",
    )


def container(obj: Any) -> Any:
    return obj["spec"]["template"]["spec"]["containers"][0]


def env(obj: Any) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container(obj)["env"]}


def test_the_agent_in_a_workers_pod_sees_what_the_worker_sees_as_the_same_user() -> None:
    plan = blueprint(
        storage={"tiers": [{"path": "/mnt/nvme", "capacity": "2Gi"}]}, sourceFolders=["/data/nfs"]
    )
    pod = cache_children.worker(plan, node="n1")["spec"]["template"]["spec"]
    worker, agent = pod["containers"]
    (preparation,) = pod["initContainers"]

    shared = {(mount["name"], mount["mountPath"]) for mount in worker["volumeMounts"]} - {
        ("config", "/etc/alluxio")
    }
    # The agent alone sees the sources.
    assert {(mount["name"], mount["mountPath"]) for mount in agent["volumeMounts"]} == (
        shared - {("tmp", "/tmp")} | {("source-0", "/data/nfs")}
    )
    assert agent["image"] == preparation["image"] == "tdcs:1"
    for container in (agent, preparation):
        values = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert values["TDCS_TIER"] == "/mnt/nvme"
    assert agent["securityContext"] == worker["securityContext"]
    assert {entry["name"]: entry.get("value") for entry in agent["env"]}["TDCS_CAPACITY"] == str(2 << 30)
    assert pod["automountServiceAccountToken"] is False


def test_the_agents_command_line_is_one_that_it_takes() -> None:
    plan = blueprint()
    pod = cache_children.worker(plan, node="n1")["spec"]["template"]["spec"]
    for container_spec in (pod["containers"][1], pod["initContainers"][0]):
        assert container_spec["args"][0] == "agent"
        command = agent_command.commands[container_spec["args"][1]]
        variables = {entry["name"] for entry in container_spec["env"]}
        required = [option for option in command.params if option.required]
        assert required
        assert all(isinstance(option.envvar, str) and option.envvar in variables for option in required)
        options = {option.envvar for option in command.params if isinstance(option.envvar, str)}
        assert variables <= {*options, "NODE_NAME"}


def test_resources_of_the_agents_can_be_set() -> None:
    plan = blueprint(agent={"resources": {"requests": {"cpu": "2"}}})
    assert cache_children.worker(plan, node="n1")["spec"]["template"]["spec"]["containers"][1][
        "resources"
    ] == {"requests": {"cpu": "2"}}


def test_blocks_are_at_the_same_path_in_worker_and_client() -> None:
    plan = blueprint(storage={"tiers": [{"path": "/mnt/nvme", "capacity": "2Gi"}]})
    for obj in (cache_children.worker(plan, node="n1"), stock_client.daemon_set(plan)):
        volumes = {volume["name"]: volume for volume in obj["spec"]["template"]["spec"]["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container(obj)["volumeMounts"]}
        assert volumes["blocks"]["hostPath"]["path"] == mounts["blocks"] == "/mnt/nvme"
    (text,) = cache_pods.config_map(plan)["data"].values()
    assert f"{2 * GIB}B" in text
    assert "/mnt/nvme" in text


def test_everyone_knows_the_master_by_the_name_of_its_pod() -> None:
    plan = blueprint()
    expected = "default-master-0.default-master.tdcs-system.svc"
    for obj in (
        cache_children.master(plan),
        cache_children.worker(plan, node="n1"),
        stock_client.daemon_set(plan),
    ):
        assert env(obj)["ALLUXIO_MASTER_HOSTNAME"] == expected
    assert names.master_address(cluster="default", namespace="tdcs-system") == f"{expected}:19998"
    assert {service["metadata"]["name"] for service in cache_children.services(plan)} == {
        "default-master",
        "default-workers",
    }


def test_a_worker_is_pinned_to_its_node_and_named_after_it() -> None:
    worker = cache_children.worker(blueprint(), node="n1")
    assert worker["metadata"]["name"] == "default-worker-n1"
    affinity = worker["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]


def test_a_change_of_properties_restarts_every_process() -> None:
    before, after = blueprint(), blueprint(properties={"alluxio.user.x": "1"})
    for make in (
        cache_children.master,
        stock_client.daemon_set,
        lambda plan: cache_children.worker(plan, node="n1"),
    ):
        hashes = {
            workload["spec"]["template"]["metadata"]["annotations"]["tdcs.io/config-hash"]
            for workload in (make(before), make(after))
        }
        assert len(hashes) == 2


def test_the_users_jvm_options_come_last_so_that_they_win() -> None:
    worker = cache_children.worker(blueprint(worker={"jvmOptions": ["-Xmx4g"]}), node="n1")
    assert env(worker)["ALLUXIO_JAVA_OPTS"].endswith(" -Xmx4g")


def test_every_pod_pulls_its_image_with_the_secrets_it_is_given() -> None:
    open_, closed = blueprint(), replace(blueprint(), pull_secrets=("registry", "mirror"))
    for make in (
        cache_children.master,
        stock_client.daemon_set,
        lambda plan: cache_children.worker(plan, node="n1"),
    ):
        assert "imagePullSecrets" not in make(open_)["spec"]["template"]["spec"]
        pod = make(closed)["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]


def test_every_pod_of_the_cache_has_its_priority_class_and_tolerations() -> None:
    taints = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    plan = blueprint(priorityClassName="system-node-critical", tolerations=taints)
    for workload in (
        cache_children.master(plan),
        cache_children.worker(plan, node="n1"),
        stock_client.daemon_set(plan),
    ):
        pod = workload["spec"]["template"]["spec"]
        assert (pod["priorityClassName"], pod["tolerations"]) == ("system-node-critical", taints)
    assert "priorityClassName" not in cache_children.master(blueprint())["spec"]["template"]["spec"]


@pytest.mark.threat("shared-folders-of-cache-pod")
def test_a_cache_is_root_only_to_read_whatever_a_shared_folder_has_and_the_disk_is_its_users() -> None:
    for folders, as_root, user in (
        (["/data/nfs"], True, 0),
        (["/data/nfs"], False, 65532),
        ([], True, 65532),
    ):
        plan = blueprint(sourceFolders=folders, folderAccess={"asRoot": as_root})
        pod = cache_children.worker(plan, node="n1")["spec"]["template"]["spec"]
        containers = [*pod["containers"], container(cache_children.master(plan))]
        assert {entry["securityContext"]["runAsUser"] for entry in containers} == {user}
        variables = {entry["name"]: entry.get("value") for entry in pod["initContainers"][0]["env"]}
        assert variables["TDCS_USER"] == str(user)
        (owner,) = cache_children.master(plan)["spec"]["template"]["spec"]["initContainers"]
        assert owner["command"][:4] == ["/bin/chown", "-R", "-h", f"{user}:{user}"]


@pytest.mark.threat("shared-folders-of-cache-pod")
def test_a_cache_is_in_the_groups_that_may_read_its_shared_folders() -> None:
    access = {"groups": [2000, 1500]}
    for folders, groups in ((["/data/nfs"], [1500, 2000]), ([], None)):
        plan = blueprint(sourceFolders=folders, folderAccess=access)
        for workload in (cache_children.master(plan), cache_children.worker(plan, node="n1")):
            context = workload["spec"]["template"]["spec"]["securityContext"]
            assert context.get("supplementalGroups") == groups
            assert context["fsGroup"] == 65532


def test_people_see_what_is_used_in_the_units_of_capacities() -> None:
    states = worker_states(wanted=["a"], workers=[worker("a", capacity=24 * GIB, used=int(6.4 * GIB))])
    assert status_of(cluster="default", pods=2, workers=states).used == "6.4 GiB of 24 GiB"


def requests(obj: Any) -> dict[str, str]:
    return dict(container(obj)["resources"]["requests"])


def test_pods_ask_for_the_memory_that_their_jvm_may_take() -> None:
    plan = blueprint(worker={"jvmOptions": ["-Xmx1g", "-XX:MaxDirectMemorySize=2g"]})
    assert requests(cache_children.worker(plan, node="n"))["memory"] == f"{3 * 1024 + 192}Mi"
    assert requests(cache_children.master(plan))["memory"] == f"{384 + 128 + 192}Mi"
    in_memory = blueprint(storage={"tiers": [{"medium": "MEM", "capacity": "4Gi"}]})
    assert requests(cache_children.worker(in_memory, node="n"))["memory"] == f"{4096 + 192 + 512 + 192}Mi"
    resources = {"limits": {"memory": "9Gi"}}
    assert (
        container(stock_client.daemon_set(blueprint(fuse={"resources": resources})))["resources"] == resources
    )


def test_the_journal_is_where_it_is_asked_for() -> None:
    (claim,) = cache_children.master(blueprint(journal={"storageClassName": "fast", "size": "9Gi"}))["spec"][
        "volumeClaimTemplates"
    ]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "9Gi"
    (default,) = cache_children.master(blueprint())["spec"]["volumeClaimTemplates"]
    assert "storageClassName" not in default["spec"]


def test_source_folders_are_seen_read_only_and_by_agents_alone() -> None:
    plan = blueprint(sourceFolders=["/mnt/nfs"], nodeSelector={"gpu": "yes"})
    worker = cache_children.worker(plan, node="n")["spec"]["template"]["spec"]
    master = cache_children.master(plan)["spec"]["template"]["spec"]
    (volume,) = [entry for entry in worker["volumes"] if entry["name"] == "source-0"]
    mounts = [
        (entry["name"], mount)
        for pod in (worker, master)
        for entry in (*pod["initContainers"], *pod["containers"])
        for mount in entry["volumeMounts"]
        if mount["name"] == "source-0"
    ]
    ((name, mount),) = mounts
    assert name == "agent"
    assert volume["hostPath"]["path"] == mount["mountPath"] == "/mnt/nfs"
    assert mount["readOnly"] is True
    assert not [entry for entry in master["volumes"] if entry["name"] == "source-0"]
    assert "nodeSelector" not in master


def test_stock_leaves_alluxios_own_settings_of_reading() -> None:
    (tuned,) = cache_pods.config_map(blueprint())["data"].values()
    (stock,) = cache_pods.config_map(blueprint(profile="Stock"))["data"].values()
    key = "alluxio.user.file.passive.cache.enabled"
    assert key in tuned
    assert key not in stock
    assert "alluxio.master.journal.type" in stock
    assert env(stock_client.daemon_set(blueprint(profile="Stock")))["FUSE_OPTIONS"] == "allow_other,ro"


@pytest.mark.threat("alluxio-rpc")
@pytest.mark.parametrize("profile_name", ["Tuned", "Stock"])
def test_processes_that_read_sources_themselves_alone_take_the_calls_for_that(profile_name: str) -> None:
    made = blueprint(profile=profile_name)
    for child in (cache_children.master(made), cache_children.worker(made, node="a")):
        container = child["spec"]["template"]["spec"]["containers"][0]
        (options,) = [each["value"] for each in container["env"] if each["name"] == "ALLUXIO_JAVA_OPTS"]
        assert ("-Dtdcs.stock=true" in options.split()) is (profile_name == "Stock")
