"""`tdcs-train compile`: a model into an artifact for one target."""

import functools
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from tdcs_train.artifacts.manifest import TuningSpec
from tdcs_train.compile.job import Outcome, compile_model
from tdcs_train.compile.onnxruntime_job import optimise_model
from tdcs_train.compile.openvino_job import convert_model
from tdcs_train.errors import InputError

RUNTIMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
"""Those other than TVM, by how they are called."""


@click.command()
@click.argument("model")
@click.option(
    "--target", required=True, help="The processors to compile for; `tdcs-train targets` lists them."
)
@click.option(
    "--runtime",
    type=click.Choice(["tvm", "onnxruntime", "openvino"]),
    default="tvm",
    show_default=True,
    help="What runs the artifact: code that TVM makes, ONNX Runtime with the model that it has optimised, or OpenVINO.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="A back end that takes the parts it is best at; several times, the first has the first choice.",
)
@click.option("-o", "--output", required=True, metavar="DIR|s3://...", help="Where artifacts are kept.")
@click.option("--endpoint", metavar="URL", help="The S3 server, if it is not Amazon's.")
@click.option("--name", help="The model's name in the artifact; by default the file's or the object's.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=N,N,...",
    help="The shape of an input that the model leaves open.",
)
@click.option(
    "--check",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Run what was built with these inputs, arrays by name as numpy.savez writes them, and compare what it gives "
    "with host code: what differs is not written.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    help="With --check: how far an output may be from host code, as a part of its largest value.  [default: 0.001]",
)
@click.option(
    "--tune",
    type=click.FloatRange(0, min_open=True),
    metavar="MINUTES",
    help="Tune TVM's own code for so long: try schedules for the parts of the model, measure them on this node, and "
    "keep the best. Records of trials are kept, and a second tuning begins with them.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --tune: begin with the records of another artifact of this model, its file records-*.json, where this "
    "node has none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(
    model: str,
    target: str,
    runtime: str,
    backends: tuple[str, ...],
    output: str,
    endpoint: str | None,
    name: str | None,
    shapes: tuple[str, ...],
    check: Path | None,
    tolerance: float | None,
    tune: float | None,
    records: Path | None,
    as_json: bool,
) -> None:
    """Compile MODEL (an ONNX file, or module.py:name) into an artifact, unless it is there already."""
    if tolerance is not None and check is None:
        raise InputError("--tolerance without --check has nothing to compare: give both")
    if records is not None and tune is None:
        raise InputError("--records without --tune has nothing to begin with them: give both")
    if runtime != "tvm" and tune is not None:
        raise InputError(f"--tune is for TVM's own code: {RUNTIMES[runtime]} has none to tune, leave it out")
    if runtime != "tvm" and backends:
        raise InputError(f"--backend {backends[0]} is for TVM: {RUNTIMES[runtime]} has its own, leave it out")
    ways: dict[str, Callable[..., Outcome]] = {
        "onnxruntime": optimise_model,
        "openvino": convert_model,
        "tvm": functools.partial(compile_model, backends=backends, tune=tune, records=records),
    }
    make = ways[runtime]
    outcome = make(
        model,
        target=target,
        output=output,
        endpoint=endpoint,
        name=name,
        shapes=_shapes(shapes),
        check=check,
        tolerance=tolerance,
    )
    if as_json:
        summary = {"built": outcome.built, "location": outcome.location, "seconds": round(outcome.seconds, 3)}
        if outcome.built:
            summary["opened"] = outcome.opened
        if outcome.difference is not None:
            summary["difference"] = outcome.difference
        click.echo(msgspec.json.encode({**summary, "manifest": outcome.manifest}).decode())
    else:
        click.echo(_summary(outcome))


LARGEST_SIZE = 2**31 - 1
"""TVM counts in 64 bits, but code that back ends write may count in 32."""


def _shapes(words: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, shape = _shape(word)
        if name in shapes:
            raise InputError(f"--shape {word} gives the input {name} twice: give each input once")
        shapes[name] = shape
    return shapes


def _shape(word: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = word.partition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not (name and equals and shape) or min(shape) < 1 or max(shape) > LARGEST_SIZE:
        raise InputError(
            f"--shape {word} is not INPUT=N,N,... with sizes of at least 1 and at most {LARGEST_SIZE}"
        )
    return name, shape


def _summary(made: Outcome) -> str:
    manifest = made.manifest
    lines = [f"{'built' if made.built else 'already there'}: {made.location} in {made.seconds:.1f} s"]
    if made.built and not made.opened:
        lines.append(
            f"not opened: this node cannot run {manifest.target}; open it on one that can before it is used"
        )
    if manifest.tuning is not msgspec.UNSET:
        lines.append(_tuning(manifest.tuning))
    if made.difference is not None and (
        manifest.backends or manifest.tuning is not msgspec.UNSET or manifest.runtime is not msgspec.UNSET
    ):
        lines.append(f"compared with host code: {made.difference:.2g} of the largest value apart")
    elif made.difference is not None:
        lines.append("run once: it is host code alone, there is nothing to compare it with")
    if manifest.runtime is not msgspec.UNSET:
        return "\n".join([*lines, f"made by {RUNTIMES[manifest.runtime.name]} {manifest.runtime.version}"])
    for backend in manifest.backends:
        regions = [region for region in manifest.regions if region.backend == backend.name]
        nodes = sum(len(region.nodes) for region in regions)
        lines.append(f"{backend.name}: {_count(nodes, 'node')} in {_count(len(regions), 'region')}")
    lines.append(f"host: {_count(len(manifest.host), 'operator')}")
    return "\n".join(lines)


def _tuning(tuning: TuningSpec) -> str:
    earlier = f", and {tuning.earlier_trials} of before" if tuning.earlier_trials else ""
    kept = "" if tuning.gain >= 1 else "; the untuned code is kept"
    return (
        f"tuned: {tuning.untuned_milliseconds:.3g} ms untuned, {tuning.tuned_milliseconds:.3g} ms tuned, "
        f"{tuning.gain:.2f} times as fast{kept} ({_count(tuning.trials, 'trial')} in {tuning.minutes:g} min{earlier})"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
