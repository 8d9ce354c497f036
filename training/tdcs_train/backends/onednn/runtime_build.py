"""Compiles the runtime module of `onednn` once and keeps it in the user's cache, by the digest of all it is made from.

The module's code is the same for every model and target: it is compiled for the oldest processors (oneDNN itself picks
the instructions of the node) and linked into each artifact, so that an artifact needs nothing of this package.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tdcs_train.compile.toolchain import cache_folder, compiler_version, include_folders, run_compiler
from tdcs_train.errors import InputError

SOURCE = Path(__file__).with_name("runtime.cc")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-march=x86-64", "-fvisibility=hidden")


@dataclass(frozen=True, kw_only=True)
class BuiltRuntime:
    """The module's object file, for artifacts, and a shared library of it, for the process that compiles."""

    object: Path
    library: Path


def runtime_object() -> BuiltRuntime:
    """The compiled runtime module; the first call takes some seconds.

    Raises:
        InputError: the compiler or the headers of oneDNN are missing, or the cache cannot be written.
    """
    includes = include_folders()
    digest = hashlib.sha256(SOURCE.read_bytes())
    for part in (*FLAGS, *map(str, includes), compiler_version()):
        digest.update(b"\0" + part.encode())
    folder = cache_folder() / f"onednn-{digest.hexdigest()[:16]}"
    built = BuiltRuntime(object=folder / "runtime.o", library=folder / "libruntime.so")
    if built.object.exists() and built.library.exists():
        return built
    try:
        _build(folder, built, includes)
    except OSError as error:
        raise InputError(
            f"the runtime module of onednn cannot be kept in {folder}: {error.strerror}; set XDG_CACHE_HOME to a "
            "folder that can be written and has space"
        ) from error
    return built


def _build(folder: Path, built: BuiltRuntime, includes: Sequence[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        object_file, linked = Path(scratch, "runtime.o"), Path(scratch, "libruntime.so")
        headers = [f"-I{include}" for include in includes]
        run_compiler([*FLAGS, *headers, "-c", str(SOURCE), "-o", str(object_file)], hint="libdnnl-dev")
        run_compiler(
            ["-shared", "-Wl,-z,nodelete", str(object_file), "-ldnnl", "-o", str(linked)], hint="libdnnl-dev"
        )
        os.replace(object_file, built.object)
        os.replace(linked, built.library)  # last, since it says that both are there
