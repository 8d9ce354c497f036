"""Each mount of a bucket has a scheme of its own, and no one but Alluxio sees it."""

from tdcs.alluxio.mount_properties import explain
from tdcs.alluxio.mount_uri import mount_uri, source_uri


def test_two_mounts_of_a_bucket_differ_and_lead_back_to_it() -> None:
    one, other = (mount_uri("s3://pictures/train", path=f"/datasets/{name}") for name in ("1f", "2a"))
    assert one != other
    assert one == mount_uri("s3://pictures/train", path="/datasets/1f")
    assert {source_uri(one), source_uri(other)} == {"s3://pictures/train"}


def test_folders_and_uris_without_a_scheme_of_their_own_stay_as_they_are() -> None:
    assert mount_uri("file:///nfs/a", path="/datasets/1f") == "file:///nfs/a"
    assert source_uri("s3://pictures") == "s3://pictures"


def test_no_message_shows_the_scheme() -> None:
    complaint = f"Failed to read {mount_uri('s3://pictures/train', path='/datasets/1f')}/a.jpg: status 599"
    reason, _ = explain(complaint)
    assert "s3://pictures/train/a.jpg" in reason
    assert "s3-" not in reason
