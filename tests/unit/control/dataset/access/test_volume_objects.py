"""Volume and claim of a Dataset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.builders import dataset_object

from tdcs.control.dataset.access import volume_objects
from tdcs.kube.apply import belongs
from tdcs.node.csi.volume import parse_volume


def test_volume_and_claim_find_each_other_and_belong_to_the_dataset() -> None:
    owner = dataset_object()
    attributes = volume_objects.attributes(cluster="default", path="/datasets/1")
    volume = volume_objects.volume(dataset=owner, storage="1Gi", attributes=attributes)
    claim = volume_objects.claim(dataset=owner, storage="1Gi")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "tdcs.n.pictures"
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("n", "pictures")
    assert volume_objects.mounted_path(volume) == "/datasets/1"
    assert belongs(volume, owner)
    assert belongs(claim, owner)
    assert not belongs(volume, dataset_object(namespace="other"))


def test_a_volume_names_the_tiers_that_are_not_at_the_default_place() -> None:
    attributes = volume_objects.attributes(
        cluster="c", path="/datasets/1", tiers=["/mnt/nvme", "/mnt/memory"]
    )
    assert attributes == {"cluster": "c", "path": "/datasets/1", "tiers": "/mnt/nvme,/mnt/memory"}
    assert parse_volume(attributes=attributes).tiers == ("/mnt/nvme", "/mnt/memory")
    for default in ([], ["/var/lib/tdcs/cache/c"]):
        attributes = volume_objects.attributes(cluster="c", path="/datasets/1", tiers=default)
        assert attributes == {"cluster": "c", "path": "/datasets/1"}


LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)


@given(first=st.tuples(LABEL, LABEL), second=st.tuples(LABEL, LABEL))
def test_two_datasets_never_claim_one_volume(first: tuple[str, str], second: tuple[str, str]) -> None:
    names = {
        volume_objects.volume(
            dataset=dataset_object(name, namespace=namespace), storage="1Mi", attributes={}
        )["metadata"]["name"]
        for namespace, name in (first, second)
    }
    assert len(names) == len({first, second})


def test_a_claim_waits_until_the_volume_was_taken_in_but_not_forever() -> None:
    fresh = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Pending"}}
    assert volume_objects.is_unseen(fresh, now="2026-01-01T00:00:01Z")
    assert not volume_objects.is_unseen(fresh, now="2026-01-01T00:00:09Z")
    # By a clock that is behind the API server's.
    assert not volume_objects.is_unseen(fresh, now="2025-01-01T00:00:00Z")
    assert not volume_objects.is_unseen(
        {**fresh, "status": {"phase": "Available"}}, now="2026-01-01T00:00:01Z"
    )


@pytest.mark.parametrize(
    ("claimed", "bound", "nudged"),
    [
        ("Pending", "Bound", True),
        ("Pending", "Available", False),
        ("Bound", "Bound", False),
        ("", "Bound", False),
    ],
)
def test_a_claim_that_was_left_behind_its_volume_is_changed_once(
    claimed: str, bound: str, nudged: bool
) -> None:
    volume = {"metadata": {}, "status": {"phase": bound}}
    live = {"metadata": {}, "status": {"phase": claimed}} if claimed else None
    assert volume_objects.needs_nudge(claimed=live, bound=volume) is nudged
    claim = volume_objects.claim(dataset=dataset_object(), storage="1Gi", nudged=nudged)
    assert ("annotations" in claim["metadata"]) is nudged
    if nudged:
        after = {**claim, "status": {"phase": "Bound"}}
        assert volume_objects.needs_nudge(claimed=after, bound=volume)
