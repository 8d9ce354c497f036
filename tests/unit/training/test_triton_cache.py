"""Caches of Triton's kernels: packed for one GPU and one version, restored where both fit, whole or not at all.

Triton compiles for GPUs only and none is at hand: the folder here has the files and names that Triton's own has.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tdcs_train import artifacts
from tdcs_train.artifacts import triton_cache
from tdcs_train.artifacts.manifest import ArtifactError, Manifest
from tdcs_train.artifacts.triton_pack import pack_triton_cache
from tdcs_train.cli.triton import command
from tdcs_train.errors import InputError

KERNEL, LAUNCHER = (
    "QBJ5W6CKWR6PWMSSFMMYKTZOSFTH2FWGTRAT2WBQW5Z43ZPDLZ4Q",
    "T5JUVJHOBJ66ASTA7QZZA3UZJTKMQUDSFDEB5U3IW7LEPWVPBPGQ",
)
TRITON = "3.4.0"
HOPPER = (9, 0)


def fill(cache: Path, *, arch: int = 90, version: str = TRITON) -> Path:
    """A cache as Triton leaves it: a kernel with its group, a launcher, and what a killed process left."""
    kernel = cache / KERNEL
    kernel.mkdir(parents=True)
    described = {
        "hash": "8053d",
        "target": {"backend": "cuda", "arch": arch, "warp_size": 32},
        "num_warps": 4,
        "triton_version": version,
        "name": "add_kernel",
    }
    texts = {f"add_kernel.{kind}": kind * 50 for kind in ("ttir", "ttgir", "llir", "ptx", "cubin")}
    texts["add_kernel.json"] = json.dumps(described)
    for name, text in texts.items():
        (kernel / name).write_text(text)
    group = {"child_paths": {name: str(kernel / name) for name in texts}}
    (kernel / "__grp__add_kernel.json").write_text(json.dumps(group))
    launcher = cache / LAUNCHER
    (launcher / "tmp.pid_7_0f").mkdir(parents=True)
    (launcher / "__triton_launcher.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    return cache


def packed(cache: Path, store: Path, **changes: Any) -> tuple[Manifest, bool, str]:
    options = {"name": "add", "target": "cuda-90", "triton": TRITON, "output": str(store)}
    return pack_triton_cache(cache, **{**options, **changes})


def restored(store: Path, into: Path, **changes: Any) -> triton_cache.Restored:
    options: dict[str, Any] = {"name": "add", "capability": HOPPER, "triton": TRITON, "into": into}
    return artifacts.restore_triton_cache(store, **{**options, **changes})


def files(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def test_a_cache_is_restored_elsewhere_with_the_paths_of_there(tmp_path: Path) -> None:
    cache, other = fill(tmp_path / "cache"), tmp_path / "other" / "cache"
    manifest, is_new, _ = packed(cache, tmp_path / "store")
    assert is_new
    assert (manifest.target, manifest.tools["triton"]) == ("cuda-90", TRITON)
    outcome = restored(tmp_path / "store", other)
    assert (outcome.brought, outcome.present) == (2, 0)
    before, after = files(cache), files(other)
    group = f"{KERNEL}/__grp__add_kernel.json"
    children = json.loads(after.pop(group))["child_paths"]
    assert children.keys() == json.loads(before.pop(group))["child_paths"].keys()
    for name, path in children.items():  # as Triton looks a kernel up
        assert Path(path) == other / KERNEL / name
        assert Path(path).exists()
    assert after == before
    assert not list(other.glob(".restoring-*"))


def test_the_same_kernels_make_the_same_artifact_wherever_they_were(tmp_path: Path) -> None:
    first, _, _ = packed(fill(tmp_path / "a"), tmp_path / "store")
    again, is_new, _ = packed(fill(tmp_path / "b"), tmp_path / "store")
    assert not is_new
    assert again.key == first.key


def test_what_is_in_the_cache_already_stays_as_it_is(tmp_path: Path) -> None:
    packed(fill(tmp_path / "cache"), tmp_path / "store")
    own = tmp_path / "own" / KERNEL / "own.cubin"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    (tmp_path / "own" / LAUNCHER).mkdir()  # Triton makes the folder before it compiles
    outcome = restored(tmp_path / "store", tmp_path / "own")
    assert (outcome.brought, outcome.present) == (1, 1)
    assert [path.name for path in own.parent.iterdir()] == ["own.cubin"]


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ({"capability": None}, "it is for cuda-90, and this machine has no GPU"),
        ({"capability": (8, 0)}, "it is for cuda-90, and this machine's GPU is cuda-80"),
        ({"triton": None}, r"it needs Triton 3\.4\.0, which is not installed: pip install triton==3\.4\.0"),
        ({"triton": "3.5.0"}, r"it was made with Triton 3\.4\.0, and this machine has 3\.5\.0"),
        ({"name": "other"}, "there is none of this name"),
    ],
)
def test_kernels_for_another_machine_are_refused(
    machine: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    packed(fill(tmp_path / "cache"), tmp_path / "store")
    with pytest.raises(ArtifactError, match=reason):
        restored(tmp_path / "store", tmp_path / "other", **machine)
    assert not (tmp_path / "other").exists()


def test_a_damaged_artifact_brings_nothing(tmp_path: Path) -> None:
    manifest, _, place = packed(fill(tmp_path / "cache"), tmp_path / "store")
    archive = Path(place, manifest.library.name)
    content = bytearray(archive.read_bytes())
    content[700] ^= 1
    archive.chmod(0o644)
    archive.write_bytes(content)
    with pytest.raises(ArtifactError, match="is damaged"):
        restored(tmp_path / "store", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["../evil/x", f"{KERNEL}/../x", "/etc/passwd", KERNEL, f"{KERNEL}/a/b"])
def test_an_archive_with_other_paths_is_refused(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(ArtifactError, match="which no cache of Triton has"):
        triton_cache.unpacked((tmp_path / "bad.tar").read_bytes())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": 80}, "is for cuda-80, not for cuda-90"),
        ({"version": "3.1.0"}, r"was made with Triton 3\.1\.0, not 3\.4\.0"),
    ],
)
def test_kernels_of_another_kind_are_not_packed(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        packed(fill(tmp_path / "cache", **change), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_what_is_no_cache_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with pytest.raises(InputError, match="has no kernel that Triton has compiled"):
        packed(tmp_path / "cache", tmp_path / "store")
    (tmp_path / "cache" / "a").mkdir()
    with pytest.raises(InputError, match="is no cache of Triton: it has the folder a"):
        packed(tmp_path / "cache", tmp_path / "store")
    with pytest.raises(InputError, match="the target x86-64-v3 is no GPU"):
        packed(tmp_path / "cache", tmp_path / "store", target="x86-64-v3")


def test_a_cache_is_no_model(tmp_path: Path) -> None:
    packed(fill(tmp_path / "cache"), tmp_path / "store")
    with pytest.raises(ArtifactError, match="it is a cache of Triton's kernels, and no model"):
        artifacts.load(tmp_path / "store", model="add")


def test_the_commands_pack_and_refuse_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(fill(tmp_path / "cache")))
    words = [
        "pack",
        "--name",
        "add",
        "--target",
        "cuda-90",
        "--triton",
        TRITON,
        "-o",
        str(tmp_path / "store"),
    ]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("packed: ")
    monkeypatch.setattr("ctypes.CDLL", _no_driver)
    refused = CliRunner().invoke(command, ["restore", str(tmp_path / "store"), "--name", "add"])
    assert "this machine has no GPU" in str(refused.exception)


def _no_driver(name: str) -> None:
    raise OSError(name)
