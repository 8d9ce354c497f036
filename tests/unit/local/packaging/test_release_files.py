"""Images of a release as OCI layouts, and the sums and signature of all files."""

import base64
import gzip
import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from tdcs_local.containers.image_archive import Entry, Image, write_archive, write_layer
from tdcs_local.errors import LocalError
from tdcs_local.packaging.image_layout import write_image_layout
from tdcs_local.packaging.signature import sign, write_sums


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    layers = [
        write_layer(tmp_path / f"{name}.tar", [Entry(path=f"bin/{name}", content=name.encode())])
        for name in ("first", "second")
    ]
    file = tmp_path / "image.tar"
    image = Image(reference="tdcs/thing:dev", layers=layers, entrypoint=["/bin/first"])
    write_archive(file, [image], architecture="amd64")
    return file


def test_an_image_keeps_its_configuration_and_layers_as_an_oci_layout(archive: Path, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    digest = write_image_layout(archive=archive, tag="0.1.0", folder=layout)

    def blob(descriptor: dict[str, str]) -> bytes:
        content = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert len(content) == int(descriptor["size"])
        return content

    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "0.1.0"}
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/bin/first"]
    # Engines compare the layers that they unpack with the ids in the configuration.
    unpacked = [hashlib.sha256(gzip.decompress(blob(layer))).hexdigest() for layer in manifest["layers"]]
    assert [f"sha256:{each}" for each in unpacked] == config["rootfs"]["diff_ids"]
    assert len(unpacked) == 2
    assert {path.name for path in (layout / "blobs" / "sha256").iterdir()} == {
        each["digest"].removeprefix("sha256:") for each in (entry, manifest["config"], *manifest["layers"])
    }


def test_equal_images_are_equal_layouts(archive: Path, tmp_path: Path) -> None:
    digests = {
        write_image_layout(archive=archive, tag="0.1.0", folder=tmp_path / name) for name in ("one", "two")
    }
    assert len(digests) == 1


def key(path: Path, curve: str) -> Path:
    subprocess.run(["openssl", "ecparam", "-name", curve, "-genkey", "-noout", "-out", str(path)], check=True)
    return path


def test_openssl_verifies_the_signature_until_a_file_changes(tmp_path: Path) -> None:
    release = tmp_path / "release"
    (release / "images").mkdir(parents=True)
    (release / "chart.tgz").write_bytes(b"chart")
    (release / "images" / "blob").write_bytes(b"layer")
    sums = write_sums(release)
    signature, public = sign(sums, key_file=key(tmp_path / "release.key", "prime256v1"))
    (tmp_path / "raw").write_bytes(base64.b64decode(signature.read_bytes()))
    verify = [
        *("openssl", "dgst", "-sha256", "-verify", str(public)),
        *("-signature", str(tmp_path / "raw"), str(sums)),
    ]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    check = ["sha256sum", "--check", "--strict", sums.name]
    assert subprocess.run(check, cwd=release, capture_output=True, check=False).returncode == 0
    (release / "images" / "blob").write_bytes(b"other")
    assert subprocess.run(check, cwd=release, capture_output=True, check=False).returncode == 1
    write_sums(release)
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 1


def test_a_key_that_cosign_would_not_take_is_refused_with_the_way_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    sums = write_sums(tmp_path / "files")
    text = tmp_path / "text.key"
    text.write_text("no key")
    for file in (text, tmp_path / "absent.key", key(tmp_path / "other.key", "secp384r1")):
        with pytest.raises(LocalError) as refused:
            sign(sums, key_file=file)
        assert "openssl ecparam -name prime256v1" in str(refused.value.remedy)
