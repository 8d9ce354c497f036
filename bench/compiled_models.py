"""How fast a compiled ResNet-18 is, and how soon its first result is there; one line of JSON.

    PYTHONPATH=deploy/local OMP_NUM_THREADS=1 TVM_NUM_THREADS=1 .venv/bin/python -m tdcs_local compile-python -- \\
        -m bench.compiled_models --results bench/results/compiled_models.jsonl

Rates: batch 1 of 224 x 224 on one thread, by TVM's own untuned code, by the artifact with onednn and by onnxruntime.
The three take turns in one process, so that other work on the machine slows all of them; a ratio is the median of the
rounds' ratios.

First result: from the start of a Python process until the first result, from an artifact, with the compilation in
that process as a new pod has it (an empty cache folder), and with a cache that has the runtime module of onednn
already; taking turns as well.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from tests.compile.models import random_inputs, resnet18

from tdcs_train import artifacts
from tdcs_train.compile.job import compile_model

ONE_THREAD = ("OMP_NUM_THREADS", "TVM_NUM_THREADS")

FIRST_RESULT = """
import sys, time
begin = float(sys.argv[1])
import numpy as np
from tdcs_train import artifacts
model = artifacts.load(sys.argv[2], model=sys.argv[3], compile_missing=True)
model.run({spec.name: np.zeros(spec.shape, spec.dtype) for spec in model.manifest.inputs})
print(time.time() - begin, model.compiled_here)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, help="a file to append the line to")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3, help="processes that compile, and as many that load")
    options = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        parser.error(f"set {' and '.join(ONE_THREAD)} to 1: the libraries read them when they are loaded")
    target = artifacts.this_node().targets[0].name
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        onnx.save(resnet18(), folder / "resnet18.onnx")
        line: dict[str, Any] = {"bench": "compiled_models", "model": "resnet18", "batch": 1, "threads": 1}
        line |= {"target": target, "processor": _processor(), "load": round(os.getloadavg()[0], 1)}
        line |= _rates(folder, target, options.rounds) | _first_results(folder, options.starts)
    text = json.dumps(line)
    print(text)
    if options.results:
        with options.results.open("a") as file:
            file.write(text + "\n")


def _rates(folder: Path, target: str, rounds: int) -> dict[str, Any]:
    source = str(folder / "resnet18.onnx")
    runs: dict[str, Callable[[], Mapping[str, Any]]] = {}
    inputs = random_inputs(resnet18())
    for name, backends in (("plain", []), ("onednn", ["onednn"])):
        output = folder / f"artifacts-{name}"
        compile_model(source, target=target, backends=backends, output=str(output))
        model = artifacts.load(output, model=source, prefer=backends)
        runs[name] = lambda model=model: model.run(inputs)  # type: ignore[misc]
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = session_options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(source, session_options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    runs["onnxruntime"] = lambda: dict(zip(names, session.run(names, inputs), strict=True))
    results = {name: run() for name, run in runs.items()}
    worst = max(
        float(np.abs(results[name][key] - results["plain"][key]).max() / np.abs(results["plain"][key]).max())
        for name in ("onednn", "onnxruntime")
        for key in results["plain"]
    )
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            repeats = 1 if name == "plain" else 10
            begin = time.perf_counter()
            for _ in range(repeats):
                run()
            times[name].append((time.perf_counter() - begin) / repeats)

    def ratio(over: str) -> float:
        pairs = zip(times[over], times["onednn"], strict=True)
        return round(statistics.median(baseline / ours for baseline, ours in pairs), 2)

    return {
        "milliseconds": {name: round(1000 * statistics.median(laps), 2) for name, laps in times.items()},
        "onednn_over_plain": ratio("plain"),
        "onednn_over_onnxruntime": ratio("onnxruntime"),
        "largest_relative_difference": worst,
    }


def _first_results(folder: Path, starts: int) -> dict[str, Any]:
    empty = folder / "empty"
    empty.mkdir()
    source = str(folder / "resnet18.onnx")
    cases = {
        "artifact": (folder / "artifacts-onednn", "resnet18"),
        "compiling": (empty, source),
        "compiling_with_cache": (empty, source),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(starts):
        for name, (place, model) in cases.items():
            command = [sys.executable, "-c", FIRST_RESULT, repr(time.time()), str(place), model]
            new = {"XDG_CACHE_HOME": str(folder / f"cache-{number}")} if name == "compiling" else {}
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env={**os.environ, **new}
            )
            first_seconds, compiled = done.stdout.split()
            if compiled != str(name != "artifact"):
                raise SystemExit(f"{name}: compiled here: {compiled}")
            seconds[name].append(float(first_seconds))

    def ratio(over: str) -> float:
        pairs = zip(seconds["artifact"], seconds[over], strict=True)
        return round(statistics.median(ours / baseline for ours, baseline in pairs), 3)

    return {
        "seconds_to_first_result": {
            name: round(statistics.median(laps), 2) for name, laps in seconds.items()
        },
        "first_result_ratio": ratio("compiling"),
        "first_result_ratio_with_cache": ratio("compiling_with_cache"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


if __name__ == "__main__":
    main()
