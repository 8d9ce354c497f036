"""Opens what was just built, before it is called built: and compares it with host code, where a user gives inputs."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdcs_train.artifacts.choice import refusal
from tdcs_train.artifacts.manifest import ArtifactError, Manifest
from tdcs_train.artifacts.node import this_node
from tdcs_train.artifacts.session import CompiledModel, open_model
from tdcs_train.errors import InputError

TOLERANCE = 1e-3
"""Back ends add up in another order: so much of the largest value of an output may differ."""

Arrays = Mapping[str, NDArray[Any]]


def open_built(manifest: Manifest, files: Mapping[str, Path]) -> CompiledModel | None:
    """Open an artifact that was just built; None where this node cannot run its target, which says nothing of it.

    Raises:
        InputError: it cannot be opened: it would not have run anywhere.
    """
    if refusal(manifest, this_node()) is not None:
        return None
    library, parameters = (files[spec.name].read_bytes() for spec in (manifest.library, manifest.parameters))
    try:
        return open_model(
            manifest, library=library, parameters=parameters, compiled_here=True, begin=time.monotonic()
        )
    except ArtifactError as error:
        raise InputError(
            f"{manifest.model.source} was compiled, but {error}; nothing was written. Try it without the back end, or "
            "report it to its authors"
        ) from error


def read_inputs(path: Path) -> Arrays:
    """The arrays of a file that `numpy.savez` wrote, by name.

    Raises:
        InputError: it is missing, or is no such file.
    """
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            raise InputError(f"{path} has one array without a name: write numpy.savez('{path}', INPUT=array)")
        with content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except InputError:
        raise
    except Exception as error:  # numpy's and zipfile's own kinds
        raise InputError(
            f"{path} holds no arrays by name ({error}): write numpy.savez('{path}', INPUT=array, ...)"
        ) from error


def compare(model: CompiledModel, host: CompiledModel, inputs: Arrays, *, tolerance: float) -> float:
    """The largest difference between a model and the same one in host code alone, as a part of the output's largest
    value.

    Raises:
        InputError: they differ by more than the tolerance, whole numbers at all, or in what is no number; or the
            inputs do not fit the model.
    """
    expected = host.run(inputs)
    largest = 0.0
    for name, value in model.run(inputs).items():
        gap = _difference(value, expected[name])
        if gap > tolerance:
            backends = ", ".join(backend.name for backend in model.manifest.backends) or "this runtime"
            raise InputError(
                f"the output {name} of {model.manifest.model.source} differs from that of host code by {gap:.3g} of "
                f"its largest value, and {tolerance:g} is allowed: nothing was written. Compile it without {backends}, "
                "or allow more with --tolerance if that is enough for this model"
            )
        largest = max(largest, gap)
    return largest


def _difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """How far two arrays are apart, as a part of the largest finite value; infinite where only one has a number."""
    if found.shape != wanted.shape:
        return float("inf")
    if found.dtype.kind not in "fc":
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    gap = float(np.abs(a[finite] - b[finite]).max())
    return gap / max(float(np.abs(b[finite]).max()), float(np.finfo(wanted.dtype).tiny)) if gap else 0.0
