"""The commands `tdcs-train compile` and `tdcs-train targets`: what they print, and one sentence for what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from tests.compile.models import FLOAT, Network, mlp

from tdcs_train.artifacts.targets import TARGETS


def run(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tdcs_train.cli", *words], capture_output=True, text=True, timeout=300, cwd=cwd
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def refused(done: "subprocess.CompletedProcess[str]", *parts: str) -> None:
    """The command ended with exit code 2 and one sentence that has these parts."""
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    for part in parts:
        assert part in done.stderr


def test_a_model_is_built_once_and_then_found(model: Path, tmp_path: Path) -> None:
    words = [
        "compile",
        str(model),
        "--target",
        "x86-64-v2",
        "--backend",
        "onednn",
        "-o",
        str(tmp_path / "out"),
        "--json",
    ]
    first, second = (run(*words) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    first_document, second_document = (json.loads(done.stdout) for done in (first, second))
    assert (first_document["built"], second_document["built"]) == (True, False)
    assert first_document["manifest"] == second_document["manifest"]
    assert second_document["seconds"] < first_document["seconds"]


def test_targets_says_what_this_node_is() -> None:
    done = run("targets", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    flags = set(Path("/proc/cpuinfo").read_text().split("flags\t\t:")[1].splitlines()[0].split())
    best = next(target for target in reversed(TARGETS) if target.features <= flags)
    assert document["best"] == best.name
    assert {"onednn", "blas"} <= set(document["backends"])
    assert f"this node: {best.name}" in run("targets").stdout


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_refused(name: str, model: Path, tmp_path: Path) -> None:
    words = ["compile", str(model), "--target", "x86-64", "-o", str(tmp_path / "out"), "--name", name]
    refused(run(*words), "the name is empty: give --name some text")


def test_an_unknown_backend_or_target_is_named(model: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "out")]
    refused(
        run("compile", str(model), "--target", "x86-64", "--backend", "npu", *out),
        "unknown back end npu",
        "onednn, blas",
    )
    refused(run("compile", str(model), "--target", "sparc", *out), "unknown target sparc", "x86-64-v3")
    twice = ["--backend", "blas", "--backend", "blas"]
    refused(run("compile", str(model), "--target", "x86-64", *twice, *out), "named twice")


def test_an_operator_that_nothing_knows_is_named(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Bessel", ["x"], ["y"], domain="custom")
    values = [onnx.helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("custom", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    done = run("compile", str(tmp_path / "m.onnx"), "--target", "x86-64", "-o", str(tmp_path / "out"))
    refused(done, "m.onnx has the operator Bessel (node y), which TVM cannot compile")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("missing.onnx", "there is no file missing.onnx"),
        ("text.onnx", "text.onnx is no valid ONNX model"),
        ("code.py", "write code.py:NAME"),
        ("code.py:absent", "code.py has no absent"),
        ("code.py:number", "is of the type int: a model is an onnx.ModelProto"),
        ("code.py:fails", "ZeroDivisionError"),
        ("gone.py:model", "there is no file gone.py"),
        ("code.py:needs", "cannot be called without arguments (missing a required argument: 'size')"),
        ("code.py:Callable", "is of the type Callable: a model is an onnx.ModelProto"),
    ],
)
def test_a_model_that_cannot_be_read_is_named(source: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    (tmp_path / "code.py").write_text(
        "number = 3\ndef fails():\n    return 1 / 0\ndef needs(size):\n    return size\nclass Callable:\n    pass\n"
    )
    refused(run("compile", source, "--target", "x86-64", "-o", "out", cwd=tmp_path), reason)


@pytest.mark.parametrize("shape", ["x", "x=", "x=a", "x=0", "=1", "x=1,2147483648"])
def test_a_shape_that_is_none_is_refused(shape: str, model: Path, tmp_path: Path) -> None:
    done = run("compile", str(model), "--target", "x86-64", "-o", str(tmp_path), "--shape", shape)
    refused(done, f"--shape {shape} is not INPUT=N,N")


def test_a_shape_of_an_unknown_input_is_refused(model: Path, tmp_path: Path) -> None:
    done = run("compile", str(model), "--target", "x86-64", "-o", str(tmp_path), "--shape", "z=1,2")
    refused(done, "no input z", "its inputs are x")


def test_a_shape_given_twice_is_refused(model: Path, tmp_path: Path) -> None:
    shapes = ["--shape", "x=4,64", "--shape", "x=5,64"]
    done = run("compile", str(model), "--target", "x86-64", "-o", str(tmp_path / "out"), *shapes)
    refused(done, "--shape x=5,64 gives the input x twice")


@pytest.mark.parametrize("shape", ["4,17", "4", "4,16,1"])
def test_a_shape_that_contradicts_the_model_is_refused(shape: str, tmp_path: Path) -> None:
    net = Network()
    onnx.save(net.model({"x": ["N", 16]}, [net.dense("x", 16, 4)]), tmp_path / "mlp.onnx")
    words = ["compile", str(tmp_path / "mlp.onnx"), "--target", "x86-64", "-o", str(tmp_path / "out")]
    message = (
        f"--shape x={shape} does not fit mlp.onnx, which declares x as (N, 16): give the open sizes only"
    )
    refused(run(*words, "--shape", f"x={shape}"), message)


def test_one_name_of_an_open_size_takes_one_size(tmp_path: Path) -> None:
    net = Network()
    onnx.save(net.model({"x": ["N", "N"]}, [net.op("Relu", "x")]), tmp_path / "m.onnx")
    words = ["compile", str(tmp_path / "m.onnx"), "--target", "x86-64", "-o", str(tmp_path / "out")]
    refused(run(*words, "--shape", "x=2,3"), "--shape x=2,3 does not fit m.onnx, which declares x as (N, N)")
    done = run(*words, "--shape", "x=2,2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["host: 1 operator"]


def test_an_open_shape_can_be_given(tmp_path: Path) -> None:
    net = Network()
    onnx.save(net.model({"x": ["batch", 8]}, [net.dense("x", 8, 4)]), tmp_path / "m.onnx")
    words = [
        "compile",
        str(tmp_path / "m.onnx"),
        "--target",
        "x86-64",
        "--backend",
        "blas",
        "-o",
        str(tmp_path / "out"),
    ]
    done = run(*words, "--shape", "x=3,8", "--json")
    assert done.returncode == 0, done.stderr
    assert [region["nodes"] for region in json.loads(done.stdout)["manifest"]["regions"]] == [["matmul_bias"]]


def test_a_folder_that_cannot_be_written_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ["compile", str(model), "--target", "x86-64", "-o"]
    refused(run(*words, str(tmp_path / "file" / "out")), "cannot be written to", "Not a directory")
    refused(run(*words, "ftp://host/x"), "folder or to s3://bucket/prefix")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ([""], "the output is empty: give -o a folder or s3://bucket/prefix"),
        (["s3:/x"], "the output s3:/x is no bucket: write s3://bucket/prefix"),
        (["s3:x"], "the output s3:x is no bucket: write s3://bucket/prefix"),
        (["s3:///x"], "the output s3:///x names no bucket: write s3://bucket/prefix"),
        (["out", "--endpoint", "http://host:7070"], "the output out is a folder, which has no endpoint"),
    ],
)
def test_an_output_that_is_neither_folder_nor_bucket_is_refused(
    output: list[str], reason: str, model: Path, tmp_path: Path
) -> None:
    done = run("compile", str(model), "--target", "x86-64", "-o", *output, cwd=tmp_path)
    refused(done, reason)
    assert [path.name for path in tmp_path.iterdir()] == ["mlp.onnx"]


@pytest.mark.parametrize(
    "endpoint", ["nonsense", "", "http://", "host:7070", "ftp://host", "http://[", "http://h:x", "http://a b"]
)
def test_an_endpoint_that_is_no_address_is_refused(
    endpoint: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compile", str(model), "--target", "x86-64", "-o", "s3://compiled/"]
    remedy = "write --endpoint http://HOST:PORT or https://HOST"
    refused(run(*words, "--endpoint", endpoint), "the endpoint ", "is no address of a server", remedy)
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        refused(run(*words), f"the endpoint {endpoint} in the environment variable AWS_ENDPOINT_URL", remedy)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_named_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        done = run("compile", str(model), "--target", "x86-64", "-o", str(small))
        refused(done, f"{small} is full, nothing was written")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("variable", ["TMPDIR", "XDG_CACHE_HOME"])
def test_a_full_scratch_folder_is_named(
    variable: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=True)
    monkeypatch.setenv(variable, str(small))
    backend = [] if variable == "TMPDIR" else ["--backend", "onednn"]
    try:
        done = run("compile", str(model), "--target", "x86-64", *backend, "-o", str(tmp_path / "out"))
        refused(done, "o space left on device")
        assert not list(tmp_path.glob("out/*"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_cache_folder_that_cannot_be_made_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done = run(
        "compile", str(model), "--target", "x86-64", "--backend", "onednn", "-o", str(tmp_path / "out")
    )
    refused(done, "the runtime module of onednn cannot be kept in", "set XDG_CACHE_HOME")


def test_a_package_that_is_missing_is_named_with_its_extra(model: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['onnx'] = None\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    words = ["compile", str(model), "--target", "x86-64", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "tdcs_train.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )
    refused(done, "mlp.onnx cannot be read without onnx: pip install 'tdcs-train[compile]'")


def test_a_bucket_that_does_not_answer_is_named_with_no_secret_in_the_message(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "account")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-9c1f")
    words = ["-o", "s3://artifacts/models", "--endpoint", "http://127.0.0.1:1"]
    done = run("compile", str(model), "--target", "x86-64", *words)
    refused(
        done,
        "s3://artifacts/models cannot be read",
        "check the bucket's name, --endpoint and the AWS_* variables",
    )
    assert "secret-9c1f" not in done.stderr
