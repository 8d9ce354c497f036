"""Images written without an engine."""

import hashlib
import json
import tarfile
from pathlib import Path

from tdcs_local.containers.image_archive import Entry, Image, write_archive, write_delta, write_layer
from tdcs_local.containers.root_tar import RootTar


def test_equal_content_is_an_equal_layer_whatever_the_files_times(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"x" * 1000)
    first = write_layer(tmp_path / "1.tar", [Entry(path="usr/bin/program", source=program)])
    program.touch()
    second = write_layer(tmp_path / "2.tar", [Entry(path="usr/bin/program", source=program)])
    assert first.sha256 == second.sha256 == hashlib.sha256(first.file.read_bytes()).hexdigest()


def test_a_layer_has_folders_files_and_links(tmp_path: Path) -> None:
    layer = write_layer(
        tmp_path / "l.tar",
        [
            Entry(path="bin", link="usr/bin"),
            Entry(path="usr/bin/tool", content=b"hello"),
            Entry(path="usr/bin/alias", link="tool"),
            Entry(path="tmp/.keep", mode=0o644),
        ],
    )
    with tarfile.open(layer.file) as tar:
        assert [(m.name, m.type, m.mode) for m in tar] == [
            ("bin", tarfile.SYMTYPE, 0o755),
            ("usr", tarfile.DIRTYPE, 0o755),
            ("usr/bin", tarfile.DIRTYPE, 0o755),
            ("usr/bin/tool", tarfile.REGTYPE, 0o755),
            ("usr/bin/alias", tarfile.SYMTYPE, 0o755),
            ("tmp", tarfile.DIRTYPE, 0o1777),
            ("tmp/.keep", tarfile.REGTYPE, 0o644),
        ]


def test_images_share_a_layer_and_keep_their_names_and_programs(tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "l.tar", [Entry(path="all", content=b"x")])
    images = [Image(reference=f"example/{n}:1", layers=[layer], entrypoint=[n]) for n in ("one", "two")]
    write_archive(tmp_path / "a.tar", images, architecture="amd64")
    with tarfile.open(tmp_path / "a.tar") as tar:
        names = tar.getnames()
        assert names.count(f"{layer.sha256}/layer.tar") == 1
        listed = tar.extractfile("manifest.json")
        assert listed is not None
        manifest = json.load(listed)
        assert [entry["RepoTags"] for entry in manifest] == [["example/one:1"], ["example/two:1"]]
        for entry, name in zip(manifest, ("one", "two"), strict=True):
            file = tar.extractfile(entry["Config"])
            assert file is not None
            raw = file.read()
            assert entry["Config"] == f"{hashlib.sha256(raw).hexdigest()}.json"
            config = json.loads(raw)
            assert config["config"]["Entrypoint"] == [name]
            assert config["rootfs"]["diff_ids"] == [f"sha256:{layer.sha256}"]


def test_a_link_in_a_root_brings_what_it_names(tmp_path: Path) -> None:
    layer = write_layer(
        tmp_path / "root.tar",
        [
            Entry(path="usr/lib/libx.so.1.2", content=b"library", mode=0o644),
            Entry(path="usr/lib/libx.so.1", link="libx.so.1.2"),
            Entry(path="usr/lib/abs.so", link="/usr/lib/libx.so.1"),
        ],
    )
    with RootTar(layer.file) as root:
        entries = {entry.path: entry for entry in root.entries(["usr/lib/abs.so"])}
        assert set(entries) == {"usr/lib/abs.so", "usr/lib/libx.so.1", "usr/lib/libx.so.1.2"}
        assert entries["usr/lib/libx.so.1.2"].content == b"library"
        assert entries["usr/lib/libx.so.1"].link == "libx.so.1.2"
        assert root.below("usr/lib", pattern=r"\.so\.1$") == ["usr/lib/libx.so.1"]


def test_a_delta_names_all_layers_but_carries_only_those_that_are_missing(tmp_path: Path) -> None:
    base = write_layer(tmp_path / "base.tar", [Entry(path="base", content=b"b" * 5000)])
    top = write_layer(tmp_path / "top.tar", [Entry(path="top", content=b"t")])
    write_archive(tmp_path / "s.tar", [Image(reference="tdcs/x:1", layers=[base, top])], architecture="amd64")
    write_delta(
        tmp_path / "s.tar", tmp_path / "d.tar", name="docker.io/tdcs/x:1", present={f"sha256:{base.sha256}"}
    )
    with tarfile.open(tmp_path / "d.tar") as tar:
        blobs = {}
        for member in tar:
            data = tar.extractfile(member)
            assert data is not None
            blobs[member.name] = data.read()
    assert f"blobs/sha256/{base.sha256}" not in blobs
    assert blobs[f"blobs/sha256/{top.sha256}"] == top.file.read_bytes()
    for name, content in blobs.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    (described,) = json.loads(blobs["index.json"])["manifests"]
    assert described["annotations"] == {"io.containerd.image.name": "docker.io/tdcs/x:1"}
    manifest = json.loads(blobs[f"blobs/{described['digest'].replace(':', '/')}"])
    assert [(layer["digest"], layer["size"]) for layer in manifest["layers"]] == [
        (f"sha256:{layer.sha256}", layer.file.stat().st_size) for layer in (base, top)
    ]
    config = json.loads(blobs[f"blobs/{manifest['config']['digest'].replace(':', '/')}"])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{base.sha256}", f"sha256:{top.sha256}"]
