"""How fast a compiled ResNet-18 is, and how soon its first result is there; one line of JSON.

    PYTHONPATH=deploy/local OMP_NUM_THREADS=1 TVM_NUM_THREADS=1 .venv/bin/python -m tdcs_local compile-python -- \\
        -m bench.compiled_models --results bench/results/compiled_models.jsonl

Rates: batch 1 of 224 x 224 on one thread, by TVM's own untuned code, by the artifact with onednn and by onnxruntime.
The three take turns in one process, so that other work on the machine slows all of them; a ratio is the median of the
rounds' ratios.

First result: from the start of a Python process until the first result, from an artifact, with the compilation in
that process as a new pod has it (an empty cache folder), and with a cache that has the runtime module of onednn
already; taking turns as well.

With `--tune MINUTES` instead: a MobileNet-like net of 64 x 64 by TVM's own code untuned and tuned for so long, by
onednn and by onnxruntime, in turns as above. Tuning begins without records.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
from tests.compile.models import mobilenet, random_inputs, resnet18

from tdcs_train import artifacts
from tdcs_train.compile.job import compile_model

Run = Callable[[], Mapping[str, Any]]

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
    parser.add_argument("--tune", type=float, metavar="MINUTES", help="measure tuning instead")
    options = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        parser.error(f"set {' and '.join(ONE_THREAD)} to 1: the libraries read them when they are loaded")
    target = artifacts.this_node().targets[0].name
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        name, model = ("resnet18", resnet18()) if options.tune is None else ("mobilenet", mobilenet())
        onnx.save(model, folder / f"{name}.onnx")
        line: dict[str, Any] = {"bench": "compiled_models", "model": name, "batch": 1, "threads": 1}
        line |= {"target": target, "processor": _processor(), "load": round(os.getloadavg()[0], 1)}
        if options.tune is None:
            line |= _rates(folder, target, options.rounds) | _first_results(folder, options.starts)
        else:
            line |= _tuned(folder, target, options.rounds, minutes=options.tune)
    text = json.dumps(line)
    print(text)
    if options.results:
        with options.results.open("a") as file:
            file.write(text + "\n")


def _rates(folder: Path, target: str, rounds: int) -> dict[str, Any]:
    source = str(folder / "resnet18.onnx")
    runs: dict[str, Run] = {}
    inputs = random_inputs(resnet18())
    for name, backends in (("plain", []), ("onednn", ["onednn"])):
        runs[name] = _run_of(folder, source, inputs, name=name, target=target, backends=backends)
    runs["onnxruntime"] = _onnxruntime(source, inputs)
    worst, times = _in_turns(runs, rounds)
    return {
        "milliseconds": _milliseconds(times),
        "onednn_over_plain": _ratio(times, "plain", "onednn"),
        "onednn_over_onnxruntime": _ratio(times, "onnxruntime", "onednn"),
        "largest_relative_difference": worst,
    }


def _tuned(folder: Path, target: str, rounds: int, *, minutes: float) -> dict[str, Any]:
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    source, inputs = str(folder / "mobilenet.onnx"), random_inputs(mobilenet())
    runs: dict[str, Run] = {}
    place = functools.partial(_run_of, folder, source, inputs, target=target)
    runs["plain"] = place(name="plain")
    runs["tuned"] = place(name="tuned", tune=minutes)
    tuning = artifacts.load(folder / "artifacts-tuned", model=source).manifest.tuning
    assert tuning is not msgspec.UNSET
    runs["onednn"] = place(name="onednn", backends=["onednn"])
    runs["onnxruntime"] = _onnxruntime(source, inputs)
    worst, times = _in_turns(runs, rounds)
    return {
        "minutes": minutes,
        "trials": tuning.trials,
        "parts": tuning.parts,
        "milliseconds": _milliseconds(times),
        "tuned_over_plain": _ratio(times, "plain", "tuned"),
        "tuned_over_onednn": _ratio(times, "onednn", "tuned"),
        "tuned_over_onnxruntime": _ratio(times, "onnxruntime", "tuned"),
        "largest_relative_difference": worst,
    }


def _run_of(
    folder: Path,
    source: str,
    inputs: Mapping[str, Any],
    *,
    name: str,
    target: str,
    backends: Sequence[str] = (),
    tune: float | None = None,
) -> Run:
    output = folder / f"artifacts-{name}"
    compile_model(source, target=target, backends=backends, output=str(output), tune=tune)
    model = artifacts.load(output, model=source, prefer=backends)
    return lambda: model.run(inputs)


def _onnxruntime(source: str, inputs: Mapping[str, Any]) -> Run:
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = session_options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(source, session_options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, inputs), strict=True))


def _in_turns(runs: Mapping[str, Run], rounds: int) -> tuple[float, dict[str, list[float]]]:
    """The largest difference of an output from that of plain code, and the seconds of every round."""
    results = {name: run() for name, run in runs.items()}
    worst = max(
        float(np.abs(result[key] - expected).max() / np.abs(expected).max())
        for result in results.values()
        for key, expected in results["plain"].items()
    )
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            repeats = 1 if name == "plain" else 10
            begin = time.perf_counter()
            for _ in range(repeats):
                run()
            times[name].append((time.perf_counter() - begin) / repeats)
    return worst, times


def _ratio(times: Mapping[str, list[float]], slow: str, fast: str) -> float:
    pairs = zip(times[slow], times[fast], strict=True)
    return round(statistics.median(baseline / ours for baseline, ours in pairs), 2)


def _milliseconds(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: round(1000 * statistics.median(laps), 2) for name, laps in times.items()}


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
