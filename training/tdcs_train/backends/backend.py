"""What a hardware back end is: a table of patterns, a code generator, and what it needs at run time."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdcs_train.backends.graph import Match, Region

Check = Callable[[Match], str | None]
"""Judges a match: None takes it, a sentence says why the host computes it instead. A pure function."""


def accept(_: Match) -> None:
    """Take every match."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a back end's table.

    `pattern` is a TVM dataflow pattern. Rows that stand earlier win, so longer patterns come first. `attributes` names
    the operator attributes that the code generator wants to see at the node.
    """

    name: str
    pattern: Any
    check: Check = accept
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Library:
    """A shared library that the generated code calls.

    Attributes:
        soname: its name at run time.
        link: its name for the linker.
        package: the Debian package that has it.
        version: asks the opened library for its version, which is part of an artifact's key: the code that was made for
            one version is made again for another. None if the library cannot say.
    """

    soname: str
    link: str
    package: str
    version: Callable[[ctypes.CDLL], str] | None = None


@dataclass(frozen=True, kw_only=True)
class GeneratedCode:
    """What a code generator made of one region.

    `module` is a TVM runtime module that has the region's symbol as a function. `text` is its readable form. `objects`
    are object files that the module needs in the artifact's library.
    """

    module: Any
    text: str
    objects: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A hardware back end.

    Attributes:
        name: what `--backend` calls it; letters, digits and `_`.
        version: changes whenever the same region could give other code; it is part of an artifact's key.
        table: makes the pattern table; called only to compile, so that loading does not import TVM's compiler.
        codegen: makes code for one region.
        targets: the targets that it knows; None for all.
        libraries: what must be on the node that runs the code.
        binds_weights: the module has a function `<symbol>__bind` that takes a region's weights once at load.
    """

    name: str
    version: str
    table: Callable[[], Sequence[Row]]
    codegen: Callable[[Region], GeneratedCode]
    targets: frozenset[str] | None = None
    libraries: tuple[Library, ...] = ()
    binds_weights: bool = False
