"""Makes an artifact of a model for a runtime other than TVM, unless the store has it already: the same for all."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tdcs_train.artifacts.key import artifact_key
from tdcs_train.artifacts.manifest import (
    FORMAT,
    FileSpec,
    Manifest,
    ModelSpec,
    RuntimeSpec,
    TensorSpec,
    sealed,
)
from tdcs_train.artifacts.session import CompiledModel
from tdcs_train.artifacts.store import open_store
from tdcs_train.artifacts.targets import find_target
from tdcs_train.compile import opening
from tdcs_train.compile.job import Outcome, file_spec, inputs_for
from tdcs_train.compile.model_file import Model, read_model
from tdcs_train.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a runtime has made of a model: its files, each with its suffix in the artifact, and its inputs and outputs.

    Attributes:
        parameters: the weights; None where `library` has them, too.
    """

    library: tuple[Path, str]
    parameters: tuple[Path, str] | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, kw_only=True)
class Maker:
    """How a runtime makes artifacts.

    Attributes:
        spec: the runtime and its version.
        level: what is done to the model, as an option of the artifact.
        build: writes the files below a folder, given the shapes of open inputs.
        plain: the model as it is, to compare with.
    """

    spec: RuntimeSpec
    level: str
    build: Callable[[Model, Path, Mapping[str, tuple[int, ...]]], Built]
    plain: Callable[[Model, Manifest], CompiledModel]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a user asked for, as of `compile_model`."""

    source: str
    target: str
    output: str
    endpoint: str | None = None
    shapes: Mapping[str, tuple[int, ...]] | None = None
    name: str | None = None
    check: Path | None = None
    tolerance: float | None = None


def make_artifact(wish: Wish, maker: Callable[[], Maker]) -> Outcome:
    """The artifact of a model for a runtime.

    Raises:
        InputError: something given cannot be used; the message says what.
    """
    begin = time.monotonic()
    if wish.name is not None and not wish.name.strip():
        raise InputError("the name is empty: give --name some text, or leave it out for the file's name")
    processor = find_target(wish.target)
    store = open_store(wish.output, endpoint=wish.endpoint)
    model, ways = read_model(wish.source), maker()
    title, shapes = wish.name or model.name, wish.shapes or {}
    options = {
        "level": ways.level,
        "name": title,
        "shapes": {key: list(shape) for key, shape in sorted(shapes.items())},
    }
    tools = {ways.spec.name: ways.spec.version}
    key = artifact_key(
        model=model.digest, target=wish.target, backends=(), tvm="", tools=tools, options=options
    )
    inputs = inputs_for(wish.check, processor) if wish.check is not None else None
    if inputs is None and (existing_manifest := store.find(key)) is not None:
        return Outcome(
            manifest=existing_manifest,
            location=store.location(key),
            built=False,
            seconds=time.monotonic() - begin,
        )
    with tempfile.TemporaryDirectory(prefix="tdcs-train-") as scratch:
        built = ways.build(model, Path(scratch), shapes)
        library = _spec(built.library, "model")
        parameters = _spec(built.parameters, "weights") if built.parameters is not None else library
        files = {library.name: built.library[0]}
        if built.parameters is not None:
            files[parameters.name] = built.parameters[0]
        manifest = sealed(
            Manifest(
                format=FORMAT,
                key=key,
                model=ModelSpec(name=title, source=model.source, digest=model.digest),
                target=processor.name,
                features=tuple(sorted(processor.features)),
                tvm="",
                tools=tools,
                backends=(),
                options=options,
                libraries=(),
                inputs=built.inputs,
                outputs=built.outputs,
                weights=(),
                regions=(),
                host=(),
                refusals=(),
                seconds={"optimise": round(time.monotonic() - begin, 3)},
                library=library,
                parameters=parameters,
                runtime=ways.spec,
            )
        )
        opened, difference = opening.open_built(manifest, files), None
        if opened is not None and inputs is not None:
            limit = opening.TOLERANCE if wish.tolerance is None else wish.tolerance
            difference = opening.compare(opened, ways.plain(model, manifest), inputs, tolerance=limit)
        is_published = store.publish(manifest, files)
        stored_manifest = manifest if is_published else store.find(key)
    if stored_manifest is None:
        raise InputError(
            f"the artifact {key} in {wish.output} was removed while it was written: run the command again"
        )
    return Outcome(
        manifest=stored_manifest,
        location=store.location(key),
        built=is_published,
        seconds=time.monotonic() - begin,
        opened=opened is not None,
        difference=difference,
    )


def _spec(file: tuple[Path, str], stem: str) -> FileSpec:
    return file_spec(file[0], stem, file[1])
