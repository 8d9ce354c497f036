"""Artifacts under faults: what is refused is never opened, writers die at any moment, and tools change."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import onnx
import pytest
from tests.compile.models import mlp, random_inputs

from tdcs_train import artifacts
from tdcs_train.artifacts.manifest import FILE, FileSpec, Manifest, decode, encode
from tdcs_train.artifacts.node import Node
from tdcs_train.artifacts.store import FolderStore
from tdcs_train.artifacts.targets import find_target
from tdcs_train.backends import find_all
from tdcs_train.compile.job import Outcome, compile_model
from tdcs_train.compile.toolchain import tool_versions
from tdcs_train.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The MLP for x86-64-v2."""
    folder = tmp_path_factory.mktemp("made")
    onnx.save(mlp(), folder / "mlp.onnx")
    return compile_again(folder / "mlp.onnx", folder / "artifacts")


def compile_again(source: Path, output: Path, name: str | None = None) -> Outcome:
    return compile_model(
        str(source), target="x86-64-v2", backends=["onednn", "blas"], output=str(output), name=name
    )


def with_library(made: Outcome, library: Path, folder: Path) -> tuple[Path, Manifest]:
    """A copy of the artifact with another library, of which the manifest names the right digest."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    spec = FileSpec(name="model-other.so", bytes=library.stat().st_size, sha256=digest)
    shutil.copytree(made.location, folder)
    folder.chmod(0o755)
    (folder / FILE).unlink()
    shutil.copyfile(library, folder / spec.name)
    manifest = msgspec.structs.replace(made.manifest, library=spec)
    (folder / FILE).write_bytes(encode(manifest))
    return folder, manifest


@pytest.fixture
def marking(tmp_path: Path) -> tuple[Path, Path]:
    """A shared library that leaves a file behind when it is opened, and that file."""
    marker, source, library = tmp_path / "opened", tmp_path / "marking.c", tmp_path / "marking.so"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void mark(void) {\n"
        f'  FILE* file = fopen("{marker}", "w");\n  if (file) fclose(file);\n}}\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library, marker


def test_what_is_refused_is_never_opened(made: Outcome, marking: tuple[Path, Path], tmp_path: Path) -> None:
    library, marker = marking
    place, manifest = with_library(made, library, tmp_path / "other")
    local_node = artifacts.this_node()
    features = find_target("x86-64").features
    weaker_node = Node(machine="x86_64", features=features, tvm=local_node.tvm)
    with pytest.raises(artifacts.ArtifactError, match="this node lacks cx16"):
        artifacts.load(place, model="mlp", node=weaker_node)
    assert not marker.exists()
    with pytest.raises(artifacts.ArtifactError, match=r"was made with TVM .*, this node has 0\.1"):
        artifacts.load(
            place, model="mlp", node=Node(machine="x86_64", features=local_node.features, tvm="0.1")
        )
    assert not marker.exists()
    (place / FILE).write_bytes(encode(msgspec.structs.replace(manifest, library=made.manifest.library)))
    shutil.copyfile(library, place / "swapped")
    os.replace(place / "swapped", place / made.manifest.library.name)
    with pytest.raises(artifacts.ArtifactError, match="the manifest names"):
        artifacts.load(place, model="mlp")
    assert not marker.exists()
    # The file shows itself when the digest is right and the node has all features.
    (place / FILE).write_bytes(encode(manifest))
    with pytest.raises(artifacts.ArtifactError, match="cannot be opened"):
        artifacts.load(place, model="mlp")
    assert marker.exists()


def test_an_artifact_that_cannot_be_opened_is_passed_over(made: Outcome, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library\n")
    folder = tmp_path / "both"
    with_library(made, text, folder / "0-broken")
    with pytest.raises(artifacts.ArtifactError, match=r"0-broken: the artifact .* cannot be opened: "):
        artifacts.load(folder, model="mlp")
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    compile_model(str(tmp_path / "mlp.onnx"), target="x86-64", backends=["blas"], output=str(folder))
    model = artifacts.load(folder, model="mlp", prefer=["onednn", "blas"])
    assert model.manifest.target == "x86-64"
    assert model.run(random_inputs(mlp()))


PUBLISH = """
import sys
from pathlib import Path
from tdcs_train.artifacts.manifest import FILE, decode
from tdcs_train.artifacts.store import FolderStore
source, output = map(Path, sys.argv[1:])
manifest = decode((source / FILE).read_bytes())
files = {path.name: path for path in source.iterdir() if path.name != FILE}
print("begins", flush=True)
FolderStore(output).publish(manifest, files)
print("ends", flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_the_whole_artifact_or_none(
    made: Outcome, tmp_path: Path
) -> None:
    large = tmp_path / "large.so"
    large.write_bytes(random.Random(1).randbytes(30_000_000))  # long enough to be caught at it
    source, manifest = with_library(made, large, tmp_path / "source")
    (source / made.manifest.library.name).unlink()
    moments, outcomes = random.Random(2), set()
    for number in range(12):
        output = tmp_path / "out"
        writer = subprocess.Popen(
            [sys.executable, "-c", PUBLISH, str(source), str(output)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begins\n"
        time.sleep(moments.uniform(0, 0.12) if number else 0)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        entry = FolderStore(output).find(manifest.key)
        outcomes.add(entry is not None)
        if entry is not None:
            for spec in (entry.library, entry.parameters):
                content = (output / manifest.key / spec.name).read_bytes()
                assert hashlib.sha256(content).hexdigest() == spec.sha256
        else:
            assert not (output / manifest.key).exists()
        shutil.rmtree(output, ignore_errors=True)
    assert False in outcomes, "no writer was killed in time"


def test_two_writers_with_different_bytes_never_mix_their_files(made: Outcome, tmp_path: Path) -> None:
    sources = []
    for number in range(4):
        library = tmp_path / f"{number}.so"
        library.write_bytes(random.Random(number).randbytes(3_000_000))
        place, _ = with_library(made, library, tmp_path / str(number))
        manifest = decode((place / FILE).read_bytes())
        renamed = msgspec.structs.replace(manifest.library, name=f"model-{manifest.library.sha256[:16]}.so")
        (place / manifest.library.name).rename(place / renamed.name)
        (place / FILE).write_bytes(encode(msgspec.structs.replace(manifest, library=renamed)))
        sources.append(place)
    for _ in range(3):
        output = tmp_path / "out"
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", PUBLISH, str(source), str(output)], stdout=subprocess.DEVNULL
            )
            for source in sources
        ]
        assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
        artifact = FolderStore(output).find(made.manifest.key)
        assert artifact is not None
        content = (output / artifact.key / artifact.library.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == artifact.library.sha256
        assert [path.name for path in output.iterdir()] == [artifact.key]
        shutil.rmtree(output)


def test_another_name_for_a_model_makes_an_artifact_of_that_name(made: Outcome, tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    output = tmp_path / "out"
    first = compile_again(tmp_path / "mlp.onnx", output)
    second = compile_again(tmp_path / "mlp.onnx", output, name="classifier")
    assert (first.built, second.built) == (True, True)
    assert first.manifest.key == made.manifest.key  # where the file is does not matter
    assert artifacts.load(output, model="classifier").manifest.key == second.manifest.key
    assert not compile_again(tmp_path / "mlp.onnx", output, name="classifier").built


def test_another_version_of_the_compiler_builds_again(
    made: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made.manifest.tools["g++"].startswith("g++ ")
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    output = tmp_path / "out"
    assert compile_again(tmp_path / "mlp.onnx", output).built
    real = shutil.which("g++")
    newer = tmp_path / "bin" / "g++"
    newer.parent.mkdir()
    newer.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "g++ (Debian) 99.1" && exit 0\nexec {real} "$@"\n'
    )
    newer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{newer.parent}:{os.environ['PATH']}")
    command = [sys.executable, "-m", "tdcs_train.cli", "compile", str(tmp_path / "mlp.onnx")]
    command += [
        "--target",
        "x86-64-v2",
        "--backend",
        "onednn",
        "--backend",
        "blas",
        "-o",
        str(output),
        "--json",
    ]
    documents = [
        msgspec.json.decode(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
        for _ in range(2)
    ]
    assert [document["built"] for document in documents] == [True, False]
    assert documents[0]["manifest"]["tools"]["g++"] == "g++ (Debian) 99.1"
    assert documents[0]["manifest"]["key"] != made.manifest.key
    assert len(list(output.iterdir())) == 2


LIBRARIES = {
    "libdnnl.so.2": "int version[] = {9, 8, 7}; int* dnnl_version(void) { return version; }",
    "libopenblas.so.0": 'const char* openblas_get_config(void) { return "OpenBLAS 9.8.7 DYNAMIC_ARCH Zen"; }',
}


def test_the_versions_of_the_libraries_are_those_that_the_node_has(tmp_path: Path) -> None:
    installed = tool_versions(find_all(["onednn", "blas"]))
    assert installed["libdnnl.so.2"].startswith("oneDNN 2.")
    assert installed["libopenblas.so.0"].startswith("OpenBLAS 0.")
    for soname, code in LIBRARIES.items():
        (tmp_path / "library.c").write_text(code)
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", str(tmp_path / "library.c")]
        subprocess.run([*command, "-o", str(tmp_path / soname)], check=True)
    script = (
        "import json\nfrom tdcs_train.backends import find_all\n"
        "from tdcs_train.compile.toolchain import tool_versions\n"
        "print(json.dumps(tool_versions(find_all(['onednn', 'blas']))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
    )
    changed = {"libdnnl.so.2": "oneDNN 9.8.7", "libopenblas.so.0": "OpenBLAS 9.8.7"}
    assert msgspec.json.decode(done.stdout) == {**installed, **changed}


def test_a_library_that_is_missing_is_named_with_its_package() -> None:
    from dataclasses import replace

    (onednn,) = find_all(["onednn"])
    absent = replace(onednn.libraries[0], soname="libabsent.so.7", package="libabsent7")
    with pytest.raises(
        InputError, match=r"onednn needs libabsent\.so\.7: install the Debian package libabsent7"
    ):
        tool_versions([replace(onednn, libraries=(absent,))])
