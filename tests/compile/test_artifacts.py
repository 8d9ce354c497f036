"""Artifacts: written whole or not at all, refused when damaged or for another node, and loaded without the compiler."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.compile.conftest import Compile
from tests.compile.models import Network, mlp, random_inputs

from tdcs_train import artifacts
from tdcs_train.artifacts.node import LIMIT_VARIABLE, Node
from tdcs_train.artifacts.targets import find_target
from tdcs_train.compile.job import compile_model
from tdcs_train.errors import InputError

INPUTS = random_inputs(mlp())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the MLP for two targets, by both back ends."""
    folder = tmp_path_factory.mktemp("made")
    onnx.save(mlp(), folder / "mlp.onnx")
    for target in ("x86-64", "x86-64-v2"):
        compile_model(
            str(folder / "mlp.onnx"),
            target=target,
            backends=["onednn", "blas"],
            output=str(folder / "artifacts"),
        )
    return folder


def node(target: str = "x86-64-v2", *, tvm: str | None = "", libraries: bool = True) -> Node:
    local_node = artifacts.this_node()
    return Node(
        machine="x86_64",
        features=find_target(target).features,
        tvm=local_node.tvm if tvm == "" else tvm,
        has_library=lambda _: libraries,
    )


def only(folder: Path, tmp_path: Path, target: str) -> Path:
    """A copy of the one artifact of a target."""
    copy = tmp_path / "copy"
    for place in (folder / "artifacts").iterdir():
        if json.loads((place / "manifest.json").read_text())["target"] == target:
            shutil.copytree(place, copy / place.name)
    for path in copy.rglob("*"):
        path.chmod(0o755)
    return copy


def test_the_same_key_builds_nothing(made: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in (made / "artifacts").rglob("*")}
    again = compile_model(
        str(made / "mlp.onnx"),
        target="x86-64-v2",
        backends=["onednn", "blas"],
        output=str(made / "artifacts"),
    )
    assert not again.built
    assert {path: path.stat().st_mtime_ns for path in (made / "artifacts").rglob("*")} == files


def test_the_key_changes_with_weights_target_backends_tools_and_shapes(made: Path, tmp_path: Path) -> None:
    from tdcs_train.artifacts.key import artifact_key
    from tdcs_train.artifacts.manifest import BackendSpec
    from tdcs_train.compile.model_file import read_onnx

    zeroed = mlp()
    zeroed.graph.initializer[0].raw_data = bytes(len(zeroed.graph.initializer[0].raw_data))
    onnx.save(zeroed, tmp_path / "other.onnx")
    digest = read_onnx(made / "mlp.onnx").digest
    assert read_onnx(tmp_path / "other.onnx").digest != digest
    first, second = BackendSpec(name="a", version="1"), BackendSpec(name="b", version="1")
    base: dict[str, Any] = {
        "model": digest,
        "target": "x86-64",
        "backends": [first, second],
        "tvm": "1",
        "tools": {"g++": "12"},
        "options": {"shapes": {}},
    }
    changed = [
        base,
        {**base, "model": "0" * 64},
        {**base, "target": "x86-64-v2"},
        {**base, "backends": [second, first]},
        {**base, "backends": [BackendSpec(name="a", version="2"), second]},
        {**base, "tvm": "2"},
        {**base, "tools": {"g++": "13"}},
        {**base, "options": {"shapes": {"x": [1]}}},
    ]
    assert len({artifact_key(**arguments) for arguments in changed}) == len(changed)


def test_the_best_target_and_the_preferred_backend_are_taken(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "both"
    shutil.copytree(made / "artifacts", folder)
    for backend in ("onednn", "blas"):
        compile_model(str(made / "mlp.onnx"), target="x86-64", backends=[backend], output=str(folder))
    best = artifacts.load(folder, model="mlp", prefer=["onednn", "blas"], node=node("x86-64-v4"))
    assert best.manifest.target == "x86-64-v2"
    blas = artifacts.load(folder, model="mlp", prefer=["blas", "onednn"], node=node("x86-64-v4"))
    assert {region.backend for region in blas.manifest.regions} == {"blas"}
    old = artifacts.load(folder, model="mlp", prefer=["onednn"], node=node("x86-64"))
    assert old.manifest.target == "x86-64"
    results = [model.run(INPUTS) for model in (best, blas, old)]
    for result in results[1:]:
        for name in result:
            np.testing.assert_allclose(result[name], results[0][name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (node("x86-64"), "lacks cx16, lahf_lm, pni, popcnt, sse4_1, sse4_2, ssse3"),
        (node(tvm="0.1"), "this node has 0.1"),
        (node(tvm=None), "which is not installed: pip install apache-tvm=="),
        (
            node(libraries=False),
            "libdnnl.so.2, which is not on this node: install the Debian package libdnnl2",
        ),
        (Node(machine="aarch64", features=frozenset(), tvm=None), "this node is aarch64"),
    ],
)
def test_a_node_that_cannot_run_it_says_why(where: Node, reason: str, made: Path, tmp_path: Path) -> None:
    with pytest.raises(artifacts.ArtifactError, match=reason) as refused:
        artifacts.load(only(made, tmp_path, "x86-64-v2"), model="mlp", node=where)
    if where.targets:
        named = f"--name mlp --target {where.targets[0].name} --backend onednn --backend blas"
        assert f"tdcs-train compile {made}/mlp.onnx {named}" in str(refused.value)


def test_a_node_can_be_limited_to_an_older_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "x86-64-v2")
    assert artifacts.this_node().targets[0].name == "x86-64-v2"
    monkeypatch.setenv(LIMIT_VARIABLE, "pentium")
    with pytest.raises(InputError, match=f"{LIMIT_VARIABLE} is wrong: unknown target pentium"):
        artifacts.this_node()


def damaged_copies(source: Path, folder: Path, count: int) -> Iterator[tuple[str, Path]]:
    """Copies of an artifact, each with one random fault in one random file."""
    choose = random.Random(5)
    names = sorted(path.name for path in source.iterdir() if path.suffix != ".txt")  # which nothing runs
    for number in range(count):
        copy = folder / str(number)
        shutil.copytree(source, copy)
        name = choose.choice(names)
        path = copy / name
        path.chmod(0o644)
        content = bytearray(path.read_bytes())
        fault = choose.choice(["flip", "cut", "grow", "zero", "swap", "remove", "empty"])
        place = choose.randrange(len(content))
        if fault == "flip":
            content[place] ^= 1 << choose.randrange(8)
        elif fault == "cut":
            del content[place:]
        elif fault == "grow":
            content[place:place] = choose.randbytes(choose.randrange(1, 100))
        elif fault == "zero":
            content[place : place + 64] = bytes(b ^ 0xFF for b in content[place : place + 64])
        elif fault == "swap":
            content = bytearray(choose.randbytes(len(content)))
        elif fault == "empty":
            content.clear()
        path.unlink()
        if fault != "remove":
            path.write_bytes(content)
        yield f"{fault} {name}", copy


def test_200_random_corruptions_are_refused_without_a_crash(made: Path, tmp_path: Path) -> None:
    source = next(iter(only(made, tmp_path, "x86-64-v2").iterdir()))
    for fault, copy in damaged_copies(source, tmp_path / "damaged", 200):
        with pytest.raises(artifacts.ArtifactError) as refused:
            artifacts.load(copy.parent if not (copy / "manifest.json").exists() else copy, model="mlp")
        assert str(refused.value), fault
        shutil.rmtree(copy)
    assert artifacts.load(source, model="mlp").run(INPUTS)


def test_a_damaged_artifact_next_to_a_good_one_does_no_harm(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    shutil.copytree(made / "artifacts", folder)
    for place in folder.iterdir():
        manifest = json.loads((place / "manifest.json").read_text())
        if manifest["target"] == "x86-64-v2":
            (place / manifest["parameters"]["name"]).unlink()
    (folder / "notes").mkdir()
    assert artifacts.load(folder, model="mlp").manifest.target == "x86-64"


def test_a_manifest_that_is_no_json_is_refused_with_a_sentence(made: Path, tmp_path: Path) -> None:
    folder = only(made, tmp_path, "x86-64-v2")
    (next(iter(folder.iterdir())) / "manifest.json").write_text("key: value\n")
    with pytest.raises(artifacts.ArtifactError, match=r"manifest.json is no JSON"):
        artifacts.load(folder, model="mlp")


def test_an_edited_manifest_is_refused(made: Path, tmp_path: Path) -> None:
    folder = only(made, tmp_path, "x86-64-v2")
    path = next(iter(folder.iterdir())) / "manifest.json"
    path.write_text(path.read_text().replace("x86-64-v2", "x86-64-v1"))
    with pytest.raises(artifacts.ArtifactError, match="damaged or edited"):
        artifacts.load(folder, model="mlp")


def test_loading_does_not_load_the_compiler(made: Path) -> None:
    code = (
        "import sys\nfrom tdcs_train import artifacts\nimport numpy as np\n"
        f"model = artifacts.load({str(made / 'artifacts')!r}, model='mlp')\n"
        "model.run({'x': np.zeros((4, 64), np.float32)})\n"
        "assert not model.compiled_here\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert 'libtvm_runtime' in maps and 'libtvm_compiler' not in maps\n"
        "assert not {'tvm', 'onnx', 'tdcs_train.compile'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_missing_artifact_is_compiled_here_only_when_asked(made: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    source = str(made / "mlp.onnx")
    with pytest.raises(artifacts.ArtifactError, match="there is none of this model"):
        artifacts.load(tmp_path / "none", model=source)
    model = artifacts.load(tmp_path / "none", model=source, compile_missing=True)
    assert model.compiled_here
    assert list((tmp_path / "none").iterdir()) == []
    expected = artifacts.load(made / "artifacts", model=source).run(INPUTS)
    for name, result in model.run(INPUTS).items():
        np.testing.assert_allclose(result, expected[name], rtol=1e-4, atol=1e-4)


def test_a_name_that_the_folder_lacks_is_refused_with_the_names_that_it_has(made: Path) -> None:
    with pytest.raises(artifacts.ArtifactError) as caught:
        artifacts.load(made / "artifacts", model="resnet", node=node())
    assert "(there is none of this model; the folder has mlp)" in str(caught.value)
    command = "tdcs-train compile MODEL.onnx --name resnet --target x86-64-v2 --backend onednn --backend blas"
    assert command in str(caught.value)


def test_a_model_is_compiled_here_also_where_the_folder_is_missing(made: Path, tmp_path: Path) -> None:
    missing, source = tmp_path / "missing", str(made / "mlp.onnx")
    with pytest.raises(artifacts.ArtifactError, match="cannot be listed: No such file or directory"):
        artifacts.load(missing, model=source)
    model = artifacts.load(missing, model=source, prefer=(), compile_missing=True)
    assert model.compiled_here
    assert not missing.exists()
    for folder in (missing, made / "artifacts"):
        with pytest.raises(
            artifacts.ArtifactError, match=r"no artifact of resnet to load.*give the path of its \.onnx"
        ) as caught:
            artifacts.load(folder, model="resnet", compile_missing=True)
        is_missing = "cannot be listed: No such file or directory; is the Dataset mounted?" in str(
            caught.value
        )
        assert is_missing is (folder == missing)


def test_a_bucket_and_a_preference_that_is_no_list_are_refused(made: Path) -> None:
    with pytest.raises(InputError, match=r"s3://compiled/x is a bucket.*mount the bucket as a Dataset"):
        artifacts.load("s3://compiled/x", model="mlp")
    with pytest.raises(InputError, match=r"prefer is a list of back ends: write prefer=\['toy'\]"):
        artifacts.load(made / "artifacts", model="mlp", prefer="toy")
    assert artifacts.load(made / "artifacts", model="mlp", prefer=["absent"])


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({}, "the model mlp has the inputs x: the call lacks x"),
        (
            {"x": np.zeros((4, 64), np.float32), "y": np.zeros(1, np.float32)},
            "the model mlp has the inputs x: the model does not know y",
        ),
        ({"z": np.zeros(1)}, "the call lacks x; the model does not know z"),
        (np.zeros((4, 64), np.float32), "the inputs are a ndarray: give a mapping of names to arrays"),
        ({"x": [[0.0] * 64] * 4}, "the input x is a list: give a numpy array of float32"),
        ({"x": np.zeros((4, 64))}, "is float64, the model takes float32"),
        ({"x": np.zeros((3, 64), np.float32)}, r"has the shape \(3, 64\), the model takes \(4, 64\)"),
    ],
)
def test_wrong_inputs_are_refused_before_the_library_sees_them(inputs: Any, reason: str, made: Path) -> None:
    with pytest.raises(InputError, match=reason):
        artifacts.load(made / "artifacts", model="mlp").run(inputs)


def test_open_dimensions_that_do_not_fit_are_refused(compiled: Compile, tmp_path: Path) -> None:
    net = Network()
    shapes: dict[str, list[int | str]] = {"a": ["n", 8], "b": ["n", 8]}
    compiled(net.model(shapes, [net.op("Add", "a", "b")]), backends=())
    model = artifacts.load(tmp_path / "artifacts", model="model", prefer=())
    three, four, none = (np.ones((size, 8), np.float32) for size in (3, 4, 0))
    (result,) = model.run({"a": three, "b": three}).values()
    np.testing.assert_array_equal(result, three + three)
    with pytest.raises(InputError, match=r"the input b has the shape \(0, 8\): give at least one element"):
        model.run({"a": three, "b": none})
    with pytest.raises(InputError, match=r"the model model fails with the inputs a \(3, 8\), b \(4, 8\): "):
        model.run({"a": three, "b": four})
    (result,) = model.run({"a": four, "b": four}).values()
    np.testing.assert_array_equal(result, four + four)


COMPILE = "import sys; from tdcs_train.cli.main import main; main(prog_name='tdcs-train')"


def start(made: Path, output: Path) -> "subprocess.Popen[str]":
    command = [
        "compile",
        str(made / "mlp.onnx"),
        "--target",
        "x86-64",
        "--backend",
        "onednn",
        "-o",
        str(output),
    ]
    return subprocess.Popen(
        [sys.executable, "-c", COMPILE, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_writers_at_once_end_well(made: Path, tmp_path: Path) -> None:
    writers = [start(made, tmp_path / "out") for _ in range(2)]
    outputs = [writer.communicate(timeout=120) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], outputs
    (place,) = (tmp_path / "out").iterdir()
    assert artifacts.load(tmp_path / "out", model="mlp").run(INPUTS)
    assert len(list(place.iterdir())) == 4  # manifest, library, weights, generated source


def test_a_writer_that_is_killed_leaves_no_artifact_and_the_next_one_makes_it(
    made: Path, tmp_path: Path
) -> None:
    writer = start(made, tmp_path / "out")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/*")) and writer.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    whole = [path for path in tmp_path.glob("out/*") if not path.name.startswith(".")]
    for path in whole:  # the rename was faster than the signal
        assert artifacts.load(path, model="mlp").run(INPUTS)
    compile_model(str(made / "mlp.onnx"), target="x86-64", backends=["onednn"], output=str(tmp_path / "out"))
    assert artifacts.load(tmp_path / "out", model="mlp").run(INPUTS)


def test_an_old_scratch_folder_of_a_killed_writer_is_removed(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, age in ((".writing-old", 2 * 86400), (".writing-new", 60)):
        (out / name).mkdir(parents=True)
        os.utime(out / name, (time.time() - age,) * 2)
    compile_model(str(made / "mlp.onnx"), target="x86-64", backends=["onednn"], output=str(out))
    assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == [".writing-new"]


def test_a_damaged_artifact_in_the_store_is_replaced(made: Path, tmp_path: Path) -> None:
    folder = only(made, tmp_path, "x86-64-v2")
    place = next(iter(folder.iterdir()))
    library = next(place.glob("*.so"))
    library.write_bytes(library.read_bytes()[:100])
    again = compile_model(
        str(made / "mlp.onnx"), target="x86-64-v2", backends=["onednn", "blas"], output=str(folder)
    )
    assert again.built
    assert artifacts.load(folder, model="mlp").run(INPUTS)
    assert [path.name for path in folder.iterdir()] == [place.name]


def test_two_models_in_one_process_do_not_disturb_each_other(
    compiled: Compile, made: Path, tmp_path: Path
) -> None:
    from tests.compile.models import lenet

    compiled(lenet(), name="lenet", backends=["onednn"])
    first = artifacts.load(made / "artifacts", model="mlp")
    expected = first.run(INPUTS)
    second = artifacts.load(tmp_path / "artifacts", model="lenet")
    second.run(random_inputs(lenet()))
    for name, result in first.run(INPUTS).items():
        np.testing.assert_array_equal(result, expected[name])
