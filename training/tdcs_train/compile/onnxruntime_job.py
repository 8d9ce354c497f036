"""Optimises a model by ONNX Runtime into an artifact, unless the store already has it."""

from collections.abc import Mapping
from pathlib import Path

from tdcs_train.artifacts.manifest import Manifest
from tdcs_train.artifacts.onnxruntime_session import OptimisedModel, session_of
from tdcs_train.artifacts.session import CompiledModel
from tdcs_train.compile import onnxruntime_build
from tdcs_train.compile.job import Outcome
from tdcs_train.compile.model_file import Model
from tdcs_train.compile.runtime_job import Built, Maker, Wish, make_artifact


def optimise_model(
    source: str,
    *,
    target: str,
    output: str,
    endpoint: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    name: str | None = None,
    check: Path | None = None,
    tolerance: float | None = None,
) -> Outcome:
    """As `compile_model`, for ONNX Runtime. `check` compares with the model as it is, without optimisation.

    Raises:
        InputError: something given cannot be used; the message says what.
    """
    wish = Wish(
        source=source,
        target=target,
        output=output,
        endpoint=endpoint,
        shapes=shapes,
        name=name,
        check=check,
        tolerance=tolerance,
    )
    return make_artifact(wish, _maker)


def _maker() -> Maker:
    return Maker(
        spec=onnxruntime_build.runtime_spec(), level=onnxruntime_build.LEVEL, build=_build, plain=_plain
    )


def _build(model: Model, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Built:
    path = folder / "model.onnx"
    session = onnxruntime_build.optimise(model, path, shapes=shapes)
    return Built(
        library=(path, ".onnx"),
        parameters=None,
        inputs=onnxruntime_build.tensor_specs(session.get_inputs(), source=model.source),
        outputs=onnxruntime_build.tensor_specs(session.get_outputs(), source=model.source),
    )


def _plain(model: Model, manifest: Manifest) -> CompiledModel:
    plain = session_of(model.content.SerializeToString(), level="ORT_DISABLE_ALL")
    return OptimisedModel(manifest, main=plain, weights=[], compiled_here=True, seconds_to_load=0.0)
