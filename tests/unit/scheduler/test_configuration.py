"""The scheduler's configuration."""

from tests.support.scheduler_configuration import scheduler_configuration

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_score import node_scores


def test_the_extender_is_asked_by_names_and_may_fail() -> None:
    (extender,) = scheduler_configuration()["extenders"]

    assert extender["urlPrefix"] == "http://127.0.0.1:8900"
    assert extender["prioritizeVerb"] == "prioritize"
    assert extender["nodeCacheCapable"] is True
    assert extender["ignorable"] is True
    assert extender["httpTimeout"] == "500ms"


def test_a_node_with_any_data_outweighs_the_default_plugins_if_the_user_states_no_preference() -> None:
    (extender,) = scheduler_configuration()["extenders"]
    spread, resources, balance, images = 200, 100, 100, 100
    least = min(node_scores([CopyOnNodes(total_bytes=10**12, node_bytes={"a": 10**12, "b": 1})]).values())

    assert least * extender["weight"] * 10 > spread + resources + balance + images


def test_it_is_a_scheduler_of_its_own_that_looks_at_all_nodes() -> None:
    configuration = scheduler_configuration()

    assert [profile["schedulerName"] for profile in configuration["profiles"]] == ["tdcs-scheduler"]
    assert configuration["percentageOfNodesToScore"] == 100
