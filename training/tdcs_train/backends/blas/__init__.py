"""The back end `blas`: matrix products as C source that calls the CBLAS interface of OpenBLAS."""

from collections.abc import Sequence
from pathlib import Path

from tdcs_train.backends.backend import Backend, GeneratedCode, Library, Row
from tdcs_train.backends.blas.source import c_source
from tdcs_train.backends.c_source import c_module
from tdcs_train.backends.graph import Region
from tdcs_train.backends.registry import version_of_sources


def _table() -> Sequence[Row]:
    from tdcs_train.backends.blas.table import rows

    return rows()


def _codegen(region: Region) -> GeneratedCode:
    text = c_source(region)
    return GeneratedCode(module=c_module(region, text), text=text)


BLAS = Backend(
    name="blas",
    version=version_of_sources(Path(__file__).parent),
    table=_table,
    codegen=_codegen,
    libraries=(Library(soname="libopenblas.so.0", link="openblas", package="libopenblas0-pthread"),),
)
