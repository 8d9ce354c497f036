"""Builds the shared library of an artifact: TVM's code for the host and the code of all back ends."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import tvm
from tvm import relax

from tdcs_train.artifacts.targets import Target
from tdcs_train.backends.backend import Backend
from tdcs_train.compile.partition import Partition
from tdcs_train.compile.source_text import source_text
from tdcs_train.compile.toolchain import COMPILER, compiler_version
from tdcs_train.errors import InputError

TRIPLE = "x86_64-linux-gnu"


def compiler_target(processor: Target, *, cores: int | None = None) -> tvm.target.Target:
    """What TVM compiles for; tuning asks for the number of cores, too."""
    words: dict[str, object] = {"kind": "llvm", "mtriple": TRIPLE, "mcpu": processor.compiler_name}
    return tvm.target.Target(words if cores is None else {**words, "num-cores": cores})


def write_library(
    path: Path,
    *,
    partition: Partition,
    processor: Target,
    backends: Sequence[Backend],
    tuned: AbstractContextManager[object] | None = None,
) -> str:
    """Compile a partitioned module into one shared library; its source as TVM and the back ends wrote it.

    Args:
        tuned: a database of tuned schedules, which are used for the parts that it has.

    Raises:
        InputError: TVM cannot compile an operator, or the linker fails; the message says why.
    """
    compiler_version()
    backend_names = {region.backend for region in partition.regions}
    libraries = [
        library for backend in backends if backend.name in backend_names for library in backend.libraries
    ]
    objects = dict.fromkeys(str(path) for code in partition.codes for path in code.objects)
    target = compiler_target(processor)
    try:
        with target, tuned or nullcontext():
            module = relax.get_pipeline("zero")(partition.module)
        built = relax.build(module, target)
    except Exception as error:  # of many kinds, from TVM's Python and C++ code
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise InputError(f"TVM cannot compile the model: {reason[:400]}") from error
    # With nodelete a library whose code TVM's registry points to stays, even when its module is dropped.
    # With now a symbol that is missing on the node is an error of opening, not the end of the process at a call.
    options = [
        "-O3",
        f"-march={processor.compiler_name}",
        "-Wl,-z,nodelete",
        "-Wl,-z,now",
        "-Wl,--no-as-needed",
    ]
    options += [f"-l{library.link}" for library in libraries]
    try:
        built.export_library(str(path), addons=list(objects), options=options, cc=COMPILER)
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "cannot find" in line or "error" in line.lower()]
        packages = ", ".join(library.package for library in libraries)
        remedy = f"; the development package of {packages} may be missing" if packages else ""
        origin = f", with code of {', '.join(sorted(backend_names))}," if backend_names else ""
        raise InputError(
            f"the library{origin} cannot be compiled or linked: {(lines or [str(error)])[-1][:300]}{remedy}"
        ) from error
    return source_text(built, partition)
