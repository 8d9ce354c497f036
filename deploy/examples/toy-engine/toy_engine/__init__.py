"""A back end whose regions run in a runtime module of its own: an engine that is given a program in text."""

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tvm_ffi

from tdcs_train.backends import Backend, GeneratedCode, Match, Region, Row
from tdcs_train.compile.toolchain import include_folders, run_compiler

SOURCE = Path(__file__).with_name("runtime.cc")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")


def _fits(match: Match) -> str | None:
    """The check of the row: None takes a match, a sentence leaves it to others."""
    (step,) = match.steps
    for tensor in (*step.inputs, step.output):
        if tensor.dtype != "float32" or not tensor.static or tensor.dims != step.output.dims:
            return "the engine has only products of float32 of one known size"
    return None


def _table() -> Sequence[Row]:
    from tvm.relax.dpl import is_op, wildcard

    return (Row(name="mul", pattern=is_op("relax.multiply")(wildcard(), wildcard()), check=_fits),)


def _program(region: Region) -> str:
    """What the module is made from, here and again when the artifact is loaded."""
    lines = [f"symbol {region.symbol}", f"inputs {len(region.inputs)}"]
    for node in region.nodes:
        left, right = node.inputs
        lines.append(f"mul {node.id} {left} {right} {node.output.elements}")
    return "\n".join([*lines, *(f"output {tensor}" for tensor in region.outputs)])


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """The compiled runtime module, until this process ends: an object for artifacts, and a library for the compiler."""
    folder = tempfile.TemporaryDirectory(prefix="toy-engine-")
    made, library = Path(folder.name, "runtime.o"), Path(folder.name, "libruntime.so")
    headers = [f"-I{include}" for include in include_folders()]
    run_compiler([*FLAGS, *headers, "-c", str(SOURCE), "-o", str(made)])
    run_compiler(["-shared", "-Wl,-z,nodelete", str(made), "-o", str(library)])
    tvm_ffi.load_module(str(library))  # registers toy_engine.create
    return folder


def _codegen(region: Region) -> GeneratedCode:
    folder, text = _folder(), _program(region)
    module = tvm_ffi.get_global_func("toy_engine.create")(text)
    return GeneratedCode(module=module, text=text, objects=(Path(folder.name, "runtime.o"),))


TOY_ENGINE = Backend(name="toy_engine", version="1", table=_table, codegen=_codegen)
