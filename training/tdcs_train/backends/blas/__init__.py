"""The back end `blas`: matrix products as C source that calls the CBLAS interface of OpenBLAS."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from tdcs_train.backends.backend import Backend, GeneratedCode, Library, Row
from tdcs_train.backends.blas.source import c_source
from tdcs_train.backends.c_source import c_module
from tdcs_train.backends.graph import Region
from tdcs_train.backends.source_version import version_of_sources


def _table() -> Sequence[Row]:
    from tdcs_train.backends.blas.table import rows

    return rows()


def _codegen(region: Region) -> GeneratedCode:
    text = c_source(region)
    return GeneratedCode(module=c_module(region, text), text=text)


def _version(library: ctypes.CDLL) -> str:
    """Such as `OpenBLAS 0.3.21`; the rest of what it says depends on the processor that it runs on."""
    library.openblas_get_config.restype = ctypes.c_char_p
    configuration: bytes = library.openblas_get_config()
    return " ".join(configuration.decode().split()[:2])


BLAS = Backend(
    name="blas",
    version=version_of_sources(Path(__file__).parent),
    table=_table,
    codegen=_codegen,
    libraries=(
        Library(soname="libopenblas.so.0", link="openblas", package="libopenblas0-pthread", version=_version),
    ),
)
