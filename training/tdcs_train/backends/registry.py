"""The one registry of back ends: those of this package, and those of other packages by entry point.

A package adds a back end with an entry point of the group `tdcs_train.backends`, named like the back end, that points
to a `Backend`.
"""

import importlib.metadata
import re
from collections.abc import Sequence

from tdcs_train.backends.backend import Backend
from tdcs_train.errors import InputError

GROUP = "tdcs_train.backends"
BUILT_IN = ("onednn", "blas")


def names() -> tuple[str, ...]:
    """Every back end that can be asked for, the built-in ones first."""
    plugins = {point.name for point in importlib.metadata.entry_points(group=GROUP)}
    return (*BUILT_IN, *sorted(plugins - set(BUILT_IN)))


def find(name: str) -> Backend:
    """The back end of this name.

    Raises:
        InputError: there is none, or the package that offers it is broken.
    """
    if name in BUILT_IN:
        return _built_in(name)
    for point in importlib.metadata.entry_points(group=GROUP, name=name):
        origin = f"the package {point.dist.name}" if point.dist else "a package"
        try:
            backend = point.load()
        except Exception as error:  # whatever another package's code raises
            raise InputError(
                f"the back end {name} of {origin} cannot be loaded: {type(error).__name__}: {error}; "
                "repair or remove that package"
            ) from error
        if not isinstance(backend, Backend) or backend.name != name or not re.fullmatch(r"\w+", name):
            raise InputError(
                f"the entry point {name} of {origin} is no back end of that name; "
                f"it must point to a tdcs_train.backends.Backend(name={name!r}, ...)"
            )
        return backend
    raise InputError(f"unknown back end {name}: choose from {', '.join(names())}")


def find_all(wanted: Sequence[str]) -> tuple[Backend, ...]:
    """The back ends of these names, in the order given: the first has the first choice.

    Raises:
        InputError: one is unknown, or named twice.
    """
    if twice := {name for name in wanted if wanted.count(name) > 1}:
        raise InputError(f"the back end {', '.join(sorted(twice))} is named twice; name each once")
    return tuple(find(name) for name in wanted)


def _built_in(name: str) -> Backend:
    if name == "blas":
        from tdcs_train.backends.blas import BLAS

        return BLAS
    from tdcs_train.backends.onednn import ONEDNN

    return ONEDNN
