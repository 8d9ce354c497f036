"""Which nodes get which part of a Dataset, and what is said of what finds no place."""

import asyncio

from tests.unit.control.cluster import Cluster
from tests.unit.control.dataset.conftest import MB, TOTAL, ZONES, slow

from tdcs.model.kube_resources import DATASETS


async def test_datasets_of_one_source_each_have_their_placement_and_share_blocks(cluster: Cluster) -> None:
    await cluster.create_dataset("one", placement={"mode": "Replicate", "nodeCount": 1})
    await cluster.until_state("Ready", "one")
    await cluster.create_dataset("three", placement={"mode": "Replicate", "nodeCount": 3})
    await cluster.until_state("Ready", "three")
    assert len(cluster.nodes("one")) == 1
    assert len(cluster.nodes("three")) == 3
    assert cluster.status("one")["mountPath"] == cluster.status("three")["mountPath"]
    assert sum(cluster.held().values()) == 3 * TOTAL
    assert cluster.engine.source_bytes_read == TOTAL  # nodes give each other what one of them has

    await cluster.server.delete(DATASETS, name="three", namespace="n")
    await cluster.until(lambda: cluster.held() == cluster.nodes("one") != {})
    assert cluster.status("one")["state"] == "Ready"
    await cluster.server.delete(DATASETS, name="one", namespace="n")
    await cluster.until(lambda: not cluster.server.store(DATASETS))
    assert cluster.held() == {}


async def test_deleting_the_oldest_does_not_move_the_blocks_of_the_others(cluster: Cluster) -> None:
    await cluster.create_dataset("old", placement={"nodeSelector": {"zone": "1"}})
    await cluster.until_state("Ready", "old")
    await cluster.create_dataset("young", placement={"nodeSelector": {"zone": "2"}})
    await cluster.until_state("Ready", "young")
    mine = cluster.nodes("young")
    assert set(mine) <= {"c", "d"}
    read = cluster.engine.source_bytes_read
    await cluster.server.delete(DATASETS, name="old", namespace="n")
    await cluster.until(lambda: cluster.held() == mine)
    assert cluster.engine.source_bytes_read == read


async def test_more_nodes_than_there_are_is_said(cluster: Cluster) -> None:
    await cluster.create_dataset(
        placement={"mode": "Replicate", "nodeCount": 3, "nodeSelector": {"zone": "2"}}
    )
    await cluster.until(lambda: cluster.condition("Placed").get("reason") == "TooFewNodes")
    await cluster.until_state("Degraded")
    condition = cluster.condition("Ready")
    assert condition["status"] == "True"
    assert (
        "on 2 nodes, and spec.placement asks for 3 nodes: only 2 live cache nodes have room"
        in condition["message"]
    )
    assert len(cluster.events("TooFewNodes")) == 1, "one cause, though several conditions have it"


async def test_the_loaded_ratio_counts_every_copy(cluster: Cluster) -> None:
    slow(cluster, 0.03)
    partial: set[tuple[bool, bool]] = set()
    await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 2})

    def done() -> bool:
        status = cluster.status()
        if status.get("wantedBytes"):
            assert status["wantedBytes"] == 2 * TOTAL
            assert status["loadedBytes"] <= status["physicalBytes"] + 1
            partial.add((status["loadedRatio"] < 1, status["cachedRatio"] < 1))
        return bool(status.get("state") == "Ready")

    await cluster.until(done)
    assert (True, True) in partial
    assert (cluster.status()["loadedRatio"], cluster.status()["loaded"]) == (1.0, "100%")


async def test_nodes_that_data_is_on_its_way_to_are_listed_from_the_start(cluster: Cluster) -> None:
    slow(cluster, 0.03)
    node_states: list[list[tuple[int, int]]] = []
    await cluster.create_dataset(placement={"mode": "Replicate", "nodeCount": 2})

    def done() -> bool:
        nodes = [node for copy in cluster.status().get("copies", ()) for node in copy["nodes"]]
        node_states.append([(node["bytes"], node.get("arriving", 0)) for node in nodes])
        return bool(cluster.status().get("state") == "Ready")

    await cluster.until(done)
    loading = [nodes for nodes in node_states if any(coming for _, coming in nodes)]
    assert loading
    assert all(len(nodes) == 2 and held + coming == TOTAL for nodes in loading for held, coming in nodes)
    assert node_states[-1] == [(TOTAL, 0)] * 2


async def test_copies_have_nodes_of_their_own(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"mode": "Partition", "nodeCount": 2, "copies": 2})
    await cluster.until_state("Ready")
    copies = cluster.status()["copies"]
    assert [copy["id"] for copy in copies] == ["0", "1"]
    first, second = ({node["name"] for node in copy["nodes"]} for copy in copies)
    assert not first & second
    assert all(sum(node["bytes"] for node in copy["nodes"]) == TOTAL for copy in copies)


async def test_a_fraction_of_some_folders_is_held_and_no_more(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"paths": ["train"], "percent": 50}, placement={"nodeCount": 1})
    await cluster.until_state("Ready")
    assert list(cluster.held().values()) == [5 * MB]
    assert (cluster.status()["cachedRatio"], cluster.status()["loadedRatio"]) == (0.25, 1.0)
    await cluster.change(DATASETS, "pictures", preload={"percent": None, "amount": "2M"})
    await cluster.until(lambda: list(cluster.held().values()) == [2 * MB])
    await cluster.until_state("Ready")
    assert cluster.engine.source_bytes_read == 5 * MB  # the smaller part is among the larger one


async def test_a_path_without_files_is_named(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"paths": ["train", "tset"]})
    await cluster.until(lambda: cluster.condition("Placed").get("reason") == "PathNotFound")
    assert "no file under 'tset'" in cluster.condition("Placed")["message"]
    await cluster.until_state("Degraded")
    await cluster.until(lambda: sum(cluster.held().values()) == TOTAL // 2)
    assert cluster.condition("Loaded")["reason"] == "PathNotFound"


async def test_where_no_path_has_a_file_nothing_is_called_loaded(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"paths": ["tarin"]})
    await cluster.until_state("Degraded")
    loaded = cluster.condition("Loaded")
    assert (loaded["status"], loaded["reason"]) == ("False", "PathNotFound")
    assert cluster.status()["loadedRatio"] == 0.0, "a job that waits for its data would begin"
    assert "loaded" not in cluster.status()


async def test_an_amount_below_one_file_is_reported(cluster: Cluster) -> None:
    await cluster.create_dataset(preload={"amount": "1k"})
    await cluster.until(lambda: cluster.condition("Placed").get("reason") == "AmountTooSmall")


async def test_what_does_not_fit_is_left_out_with_numbers(cluster: Cluster) -> None:
    await cluster.set_capacity(TOTAL // 4, *ZONES)
    await cluster.create_dataset(placement={"mode": "Partition", "nodeCount": 2})
    await cluster.until(lambda: cluster.condition("Loaded").get("status") == "True")
    await cluster.until_state("Degraded")
    placed = cluster.condition("Placed")
    assert (placed["reason"], placed["status"]) == ("NotAllFits", "False")
    assert placed["message"].startswith("7.6 MiB of 19.1 MiB is all that the chosen nodes have room for")
    assert (cluster.condition("Loaded")["status"], cluster.status()["loadedRatio"]) == ("True", 1.0)
    held = cluster.held()
    await asyncio.sleep(0)
    await cluster.annotate("pictures", refresh="now")
    await cluster.until(lambda: cluster.status().get("refreshed") == "now")
    assert cluster.held() == held  # the same subset stays


async def test_a_cache_smaller_than_a_block_says_so(cluster: Cluster) -> None:
    await cluster.set_capacity(MB // 2, *ZONES)
    await cluster.create_dataset()
    await cluster.until_state("Degraded")
    assert "smaller than a block" in cluster.condition("Ready")["message"]
    assert "loaded" not in cluster.status(), "nothing is there, so it is not all of it"


async def test_no_node_with_the_labels_is_an_error_that_names_them(cluster: Cluster) -> None:
    await cluster.create_dataset(placement={"nodeSelector": {"zone": "9"}})
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "NoCacheNode")
    assert "spec.placement.nodeSelector (zone=9)" in cluster.condition("Ready")["message"]
