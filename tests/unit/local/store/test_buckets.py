"""Buckets of the store: filled whole or not at all, with a manifest that tells the truth."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from deploy.images.store.tdcs_store.buckets import BucketError, Buckets, Manifest


@pytest.fixture
def buckets(tmp_path: Path) -> Buckets:
    return Buckets(root=tmp_path)


def _tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def _send(buckets: Buckets, archive: bytes, *, sent: bytes | None = None) -> Manifest:
    sha256 = hashlib.sha256(archive).hexdigest()
    stream = io.BytesIO(archive if sent is None else sent)
    return buckets.fill_from_archive("pics", parameters={"kind": "test"}, sha256=sha256, archive=stream)


def test_the_manifest_has_path_size_and_checksum_of_what_is_in_the_bucket(buckets: Buckets) -> None:
    made = buckets.fill_from_seed("small", files=20, sizes=(0, 5000), seed="1")
    lying = {
        str(path.relative_to(buckets.folder / "small")): path.read_bytes()
        for path in (buckets.folder / "small").rglob("*.bin")
    }
    assert {file["path"]: (file["size"], file["sha256"]) for file in made["files"]} == {
        path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in lying.items()
    }
    assert made["totalFiles"] == 20
    assert made["totalBytes"] == sum(map(len, lying.values()))
    assert buckets.manifest("small") == made


def test_s3_sees_the_md5_of_a_file_as_its_etag(buckets: Buckets) -> None:
    buckets.fill_from_seed("small", files=1, sizes=(100, 100), seed="1")
    path = buckets.folder / "small" / "000" / "000000.bin"
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    assert os.getxattr(path, "user.etag") == f'"{md5}"'.encode()


def test_filling_again_with_the_same_parameters_writes_nothing(buckets: Buckets) -> None:
    first = buckets.fill_from_seed("small", files=5, sizes=(10, 10), seed="1")
    inode = (buckets.folder / "small").stat().st_ino
    assert buckets.fill_from_seed("small", files=5, sizes=(10, 10), seed="1") == first
    assert (buckets.folder / "small").stat().st_ino == inode


def test_other_parameters_replace_the_bucket(buckets: Buckets) -> None:
    buckets.fill_from_seed("small", files=5, sizes=(10, 10), seed="1")
    buckets.fill_from_seed("small", files=2, sizes=(10, 10), seed="2")
    assert len(list((buckets.folder / "small").rglob("*.bin"))) == 2


@pytest.mark.parametrize("harm", ["removed", "cut"])
def test_a_bucket_that_lost_something_is_filled_again(buckets: Buckets, harm: str) -> None:
    first = buckets.fill_from_seed("small", files=5, sizes=(10, 10), seed="1")
    victim = buckets.folder / "small" / "000" / "000003.bin"
    if harm == "removed":
        victim.unlink()
    else:
        victim.write_bytes(b"short")
    assert buckets.fill_from_seed("small", files=5, sizes=(10, 10), seed="1") == first
    assert victim.stat().st_size == 10


def test_an_archive_becomes_a_bucket(buckets: Buckets) -> None:
    made = _send(buckets, _tar({"0/a.jpg": b"one", "1/b.jpg": b"three"}))
    assert (buckets.folder / "pics" / "1" / "b.jpg").read_bytes() == b"three"
    assert [file["path"] for file in made["files"]] == ["0/a.jpg", "1/b.jpg"]
    assert buckets.holds("pics", {"kind": "test"}) == made


@pytest.mark.parametrize("keep", [0, 700, 1024, 1700])
def test_an_archive_that_came_in_part_leaves_the_bucket_as_it_was(buckets: Buckets, keep: int) -> None:
    before = _send(buckets, _tar({"old.jpg": b"old"}))
    archive = _tar({"0/a.jpg": b"a" * 600, "1/b.jpg": b"b"})
    with pytest.raises(BucketError, match="pics"):
        _send(buckets, archive, sent=archive[:keep])
    assert buckets.holds("pics", {"kind": "test"}) == before


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b"])
def test_an_archive_cannot_write_outside_of_its_bucket(buckets: Buckets, path: str) -> None:
    with pytest.raises(BucketError, match="outside of the bucket"):
        _send(buckets, _tar({path: b"x"}))
    assert not (buckets.folder / "pics").exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "UPPER", "ab", "-abc", "x" * 64])
def test_a_name_that_is_no_bucket_name_is_refused(buckets: Buckets, name: str) -> None:
    with pytest.raises(BucketError, match="bucket name"):
        buckets.fill_from_seed(name, files=1, sizes=(1, 1), seed="1")


def test_a_dataset_larger_than_the_volume_is_refused_before_anything_is_written(buckets: Buckets) -> None:
    with pytest.raises(BucketError, match="free"):
        buckets.fill_from_seed("huge", files=1000, sizes=(1, 10**15), seed="1")
    assert not (buckets.folder / "huge").exists()
