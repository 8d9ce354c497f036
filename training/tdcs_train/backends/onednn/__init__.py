"""The back end `onednn`: a region as a graph in text, run by a TVM runtime module on the primitives of oneDNN."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from tdcs_train.backends.backend import Backend, GeneratedCode, Library, Row
from tdcs_train.backends.graph import Region
from tdcs_train.backends.onednn.graph_text import graph_text
from tdcs_train.backends.source_version import version_of_sources

MODULE_KIND = "tdcs_onednn"


def _table() -> Sequence[Row]:
    from tdcs_train.backends.onednn.table import rows

    return rows()


def _codegen(region: Region) -> GeneratedCode:
    import tvm_ffi

    from tdcs_train.backends.onednn.runtime_build import runtime_object

    built = runtime_object()
    text = graph_text(region)
    tvm_ffi.load_module(built.library)  # registers the module's kind
    module = tvm_ffi.get_global_func(f"{MODULE_KIND}.create")(text)
    return GeneratedCode(module=module, text=text, objects=(built.object,))


class _Version(ctypes.Structure):
    """The head of `dnnl_version_t`."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def _version(library: ctypes.CDLL) -> str:
    """Such as `oneDNN 2.6.2`."""
    library.dnnl_version.restype = ctypes.POINTER(_Version)
    version = library.dnnl_version().contents
    return f"oneDNN {version.major}.{version.minor}.{version.patch}"


ONEDNN = Backend(
    name="onednn",
    version=version_of_sources(Path(__file__).parent),
    table=_table,
    codegen=_codegen,
    libraries=(Library(soname="libdnnl.so.2", link="dnnl", package="libdnnl2", version=_version),),
    binds_weights=True,
)
