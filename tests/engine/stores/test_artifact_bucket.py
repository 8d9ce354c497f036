"""Artifacts of compiled models in a real S3 bucket: whole or not at all, two writers at once, and sentences."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.engine.servers import S3Server

from tdcs_local import programs
from tdcs_train.artifacts.bucket import BucketStore
from tdcs_train.artifacts.manifest import FORMAT, FileSpec, Manifest, ModelSpec, encode
from tdcs_train.artifacts.store import open_store
from tdcs_train.errors import InputError


@pytest.fixture(autouse=True)
def account(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's key pair, where the store looks for one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.credentials.secret_access_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def artifact(folder: Path, content: bytes, *, key: str = "a" * 40) -> tuple[Manifest, Mapping[str, Path]]:
    """A manifest with two files of this content."""
    folder.mkdir(parents=True)
    files: dict[str, Path] = {}
    specs = []
    for stem, suffix in (("model", ".so"), ("weights", ".safetensors")):
        data = stem.encode() + content
        digest = hashlib.sha256(data).hexdigest()
        name = f"{stem}-{digest[:16]}{suffix}"
        files[name] = folder / name
        files[name].write_bytes(data)
        specs.append(FileSpec(name=name, bytes=len(data), sha256=digest))
    manifest = Manifest(
        format=FORMAT,
        key=key,
        model=ModelSpec(name="m", source="m.onnx", digest="0" * 64),
        target="x86-64",
        features=(),
        tvm="1",
        tools={},
        backends=(),
        options={},
        libraries=(),
        inputs=(),
        outputs=(),
        weights=(),
        regions=(),
        host=(),
        refusals=(),
        library=specs[0],
        parameters=specs[1],
        seconds={},
    )
    return manifest, files


def store(s3: S3Server, bucket: str) -> BucketStore:
    s3.make_bucket(bucket)
    store = open_store(f"s3://{bucket}/models", endpoint=s3.endpoint)
    assert isinstance(store, BucketStore)
    return store


def test_an_artifact_in_a_bucket_is_found_once_it_is_whole(s3: S3Server, tmp_path: Path) -> None:
    bucket = store(s3, "artifacts-whole")
    manifest, files = artifact(tmp_path / "a", b"1")
    assert bucket.find(manifest.key) is None
    assert bucket.publish(manifest, files)
    artifact_found = bucket.find(manifest.key)
    assert artifact_found is not None
    assert artifact_found.library == manifest.library
    folder = s3.folder_of("artifacts-whole") / "models" / manifest.key
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "manifest.json"])
    (folder / manifest.parameters.name).unlink()
    assert bucket.find(manifest.key) is None


def test_two_writers_of_one_key_leave_one_whole_artifact(s3: S3Server, tmp_path: Path) -> None:
    bucket = store(s3, "artifacts-race")
    artifacts = [artifact(tmp_path / str(number), str(number).encode()) for number in range(6)]
    threads = [threading.Thread(target=bucket.publish, args=arguments) for arguments in artifacts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    artifact_found = bucket.find("a" * 40)
    assert artifact_found is not None
    folder = s3.folder_of("artifacts-race") / "models" / artifact_found.key
    for spec in (artifact_found.library, artifact_found.parameters):
        assert hashlib.sha256((folder / spec.name).read_bytes()).hexdigest() == spec.sha256


def test_a_damaged_manifest_in_the_bucket_is_replaced(s3: S3Server, tmp_path: Path) -> None:
    bucket = store(s3, "artifacts-damaged")
    manifest, files = artifact(tmp_path / "a", b"1")
    folder = s3.folder_of("artifacts-damaged") / "models" / manifest.key
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    assert bucket.publish(manifest, files)
    assert bucket.find(manifest.key) is not None


def test_a_bucket_that_may_only_be_read_is_named_and_stays_as_it_is(
    s3: S3Server, network: str, tmp_path: Path
) -> None:
    s3.make_bucket("artifacts-read-only")
    folder = s3.folder_of("artifacts-read-only")
    server = S3Server(
        program=programs.ensure("versitygw") / "versitygw",
        folder=tmp_path / "server",
        root=folder.parent,
        address=f"{network}.3",
        options=("--readonly",),
    )
    (tmp_path / "server").mkdir()
    server.process.start()
    try:
        bucket = open_store("s3://artifacts-read-only/models", endpoint=server.endpoint)
        manifest, files = artifact(tmp_path / "a", b"1")
        assert bucket.find(manifest.key) is None
        with pytest.raises(
            InputError, match="s3://artifacts-read-only/models cannot be written: "
        ) as refused:
            bucket.publish(manifest, files)
        assert "check the bucket's name, --endpoint and the AWS_* variables" in str(refused.value)
        assert server.credentials.secret_access_key not in str(refused.value)
    finally:
        server.process.kill()
    assert list(folder.iterdir()) == []


PUBLISH = """
import sys
from pathlib import Path
from tdcs_train.artifacts.manifest import decode
from tdcs_train.artifacts.store import open_store
folder, endpoint = Path(sys.argv[1]), sys.argv[2]
manifest = decode((folder / "manifest.json").read_bytes())
files = {spec.name: folder / spec.name for spec in (manifest.library, manifest.parameters)}
open_store("s3://artifacts-killed/models", endpoint=endpoint).publish(manifest, files)
"""


def test_a_writer_killed_while_it_uploads_leaves_no_artifact(s3: S3Server, tmp_path: Path) -> None:
    bucket = store(s3, "artifacts-killed")
    manifest, files = artifact(tmp_path / "a", bytes(40_000_000))
    (tmp_path / "a" / "manifest.json").write_bytes(encode(manifest))
    command = [sys.executable, "-c", PUBLISH, str(tmp_path / "a"), s3.endpoint]
    writer = subprocess.Popen(command)
    folder = s3.folder_of("artifacts-killed") / "models" / manifest.key
    # The first file is there, the second one is on its way.
    wait_for(lambda: (folder / manifest.library.name).exists(), what="the first file was not written")
    writer.kill()
    writer.wait()
    assert bucket.find(manifest.key) is None
    assert bucket.publish(manifest, files)
    assert bucket.find(manifest.key) is not None
    for name, path in files.items():
        assert (folder / name).read_bytes() == path.read_bytes()


def wait_for(ready: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def test_a_bucket_that_is_not_there_is_named(s3: S3Server, tmp_path: Path) -> None:
    manifest, files = artifact(tmp_path / "a", b"1")
    bucket = open_store("s3://artifacts-absent/models", endpoint=s3.endpoint)
    with pytest.raises(InputError, match="s3://artifacts-absent/models cannot be"):
        bucket.publish(manifest, files)


def test_keys_that_the_server_refuses_are_no_secret_in_the_message(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket("artifacts-denied")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-51c2")
    bucket = open_store("s3://artifacts-denied/models", endpoint=s3.endpoint)
    with pytest.raises(InputError, match="check the bucket's name, --endpoint and the AWS_") as refused:
        bucket.publish(*artifact(tmp_path / "a", b"1"))
    assert "wrong-secret-51c2" not in str(refused.value)
