"""What the pods of a cache look like."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import GIB

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.cachecluster import cache_children, cache_pods, stock_client
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.node.agent.agent_command import command as agent_command


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
