"""Reads a model as a user names it: an ONNX file, or `module.py:name` for a model that Python code makes."""

import hashlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdcs_train.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model before TVM has seen it.

    Attributes:
        name: for people; the file's or the object's name.
        source: what the user wrote.
        digest: of graph and weights; names of tools and comments do not count.
        content: an `onnx.ModelProto` or a Relax module (`tvm.IRModule`).
    """

    name: str
    source: str
    digest: str
    content: Any


def read_model(source: str) -> Model:
    """Read a model.

    Raises:
        InputError: it cannot be found or read, or is something else.
    """
    path, separator, attribute = source.rpartition(":")
    if separator and path.endswith(".py"):
        return _from_python(Path(path), attribute, source)
    if source.endswith(".py"):
        raise InputError(f"{source} names no model: write {source}:NAME for the object NAME in it")
    return read_onnx(Path(source))


def read_onnx(path: Path) -> Model:
    """Read an ONNX file, with the weights that it keeps in files beside it.

    Raises:
        InputError: it is missing or damaged, or there is no package that reads it.
    """
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise InputError(f"{path} cannot be read without onnx: pip install 'tdcs-train[compile]'") from error
    try:
        proto = onnx.load(str(path))
        onnx.checker.check_model(proto)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except Exception as error:  # protobuf's and onnx's own kinds
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{path} is no valid ONNX model: {reason}") from error
    return Model(name=path.stem, source=str(path), digest=_onnx_digest(proto), content=proto)


def _from_python(path: Path, attribute: str, source: str) -> Model:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    name = f"tdcs_train_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
        content = getattr(module, attribute, None)
        if content is None:
            raise InputError(f"{path} has no {attribute}")
        if _makes_a_model(content):
            content = _called(content, source)
    except InputError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise InputError(f"{source} fails: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    if _is_relax_module(content):
        return Model(name=attribute, source=source, digest=_relax_digest(content), content=content)
    if _is_onnx(content):
        return Model(name=attribute, source=source, digest=_onnx_digest(content), content=content)
    raise InputError(
        f"{source} is of the type {type(content).__name__}{_framework(content)}: a model is an onnx.ModelProto or a "
        f"tvm.IRModule, or a function that makes one{_remedy(content)}"
    )


EXPORTS = {
    "torch": "export this one with torch.onnx.export(model, example_inputs, 'model.onnx') and compile model.onnx",
    "keras": "export this one with model.export('model.onnx', format='onnx') and compile model.onnx",
    "tensorflow": "convert this one with tf2onnx and compile the ONNX file",
    "jax": "convert this one with jax2onnx and compile the ONNX file",
}
"""How models of other frameworks become ONNX files, by the package that a class of theirs comes from."""


def _makes_a_model(content: Any) -> bool:
    """Whether this is a function or a class. Models of frameworks can be called too, but not to make one."""
    if inspect.isclass(content) or inspect.isroutine(content):
        return True
    return callable(content) and not _is_relax_module(content) and _framework_of(content) is None


def _called(function: Any, source: str) -> Any:
    """What a function without parameters makes."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(
            f"{source} cannot be called without arguments ({error}): name a model, or a function without parameters "
            f"that makes one{_remedy(function)}"
        ) from error
    except ValueError:
        pass  # a built-in function that has no signature
    return function()


def _framework(content: Any) -> str:
    framework = _framework_of(content)
    return f" of {framework}" if framework else ""


def _remedy(content: Any) -> str:
    framework = _framework_of(content)
    return f"; {EXPORTS[framework]}" if framework else "; export models of other frameworks to ONNX"


def _framework_of(content: Any) -> str | None:
    """The known framework that a model's class, or a class that it is derived from, comes from."""
    kind = content if inspect.isclass(content) else type(content)
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return next((name for name in EXPORTS if name in packages), None)


def _onnx_digest(proto: Any) -> str:
    import onnx

    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    for field in ("producer_name", "producer_version", "doc_string", "model_version", "metadata_props"):
        plain.ClearField(field)
    for node in plain.graph.node:
        node.ClearField("doc_string")
    plain.graph.ClearField("doc_string")
    return hashlib.sha256(b"onnx\0" + plain.SerializeToString(deterministic=True)).hexdigest()


def _is_onnx(content: Any) -> bool:
    onnx = sys.modules.get("onnx")  # who made one has imported it
    return onnx is not None and isinstance(content, onnx.ModelProto)


def _is_relax_module(content: Any) -> bool:
    tvm = sys.modules.get("tvm")  # who made one has imported it
    return tvm is not None and isinstance(content, tvm.IRModule)


def _relax_digest(module: Any) -> str:
    from tvm import relax

    digest = hashlib.sha256(b"relax\0" + module.script(show_meta=False).encode())

    def add(expression: Any) -> None:
        value: Any = getattr(expression, "value", None)
        if value is not None and hasattr(value, "numpy"):  # a constant
            array = value.numpy()
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, add)
    return digest.hexdigest()
