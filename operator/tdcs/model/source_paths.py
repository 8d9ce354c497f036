"""Engine paths and source URIs: canonical forms, and which of two is inside the other. Shared by all
engines.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping

from tdcs.api.source_uri import canonical_source_uri, is_folder
from tdcs.model.cache_engine import MountConflictError, NoSuchPathError, SourceError


@functools.lru_cache(maxsize=8192)  # each pass over a Dataset compares its source with every mounted one
def canonical_uri(uri: str) -> str:
    """`uri` without a trailing slash, its scheme in lower case: two spellings of one source become equal.

    Raises:
        SourceError: It is no plain URI of a bucket or a folder (`tdcs.api.source_uri`).
    """
    try:
        return canonical_source_uri(uri)
    except ValueError as error:
        raise SourceError(
            attempted=f"read the source {uri!r}",
            reason=str(error),
            remedy="Correct spec.source.uri",
        ) from error


def checked_path(path: str) -> str:
    """`path` if it is absolute and plain, such as `/datasets/1f`.

    Raises:
        NoSuchPathError: It is the root, relative, or holds empty or dot components.
    """
    pieces = path.split("/")[1:]
    if not path.startswith("/") or any(piece in {"", ".", ".."} for piece in pieces):
        raise NoSuchPathError(
            attempted=f"use the engine path {path!r}",
            reason="an engine path is absolute and plain, and is not the root",
            remedy="Use a path such as /datasets/NAME",
            path=path,
        )
    return path


def inside(*, inner: str, outer: str) -> bool:
    return inner.startswith(outer) and (inner == outer or inner.startswith(f"{outer.rstrip('/')}/"))


def related(first: str, second: str) -> bool:
    """Whether one of the two is the other, or is below it."""
    return inside(inner=first, outer=second) or inside(inner=second, outer=first)


def check_mountable(*, path: str, uri: str, mounts: Mapping[str, str]) -> None:
    """Refuse a mount that an engine cannot hold next to those it has.

    Buckets are never in each other's way: what one tenant mounts must not keep another one from a name.

    Args:
        uri: The source, canonical.
        mounts: What is mounted already: path to canonical URI. The same pair is no conflict.

    Raises:
        MountConflictError: The path, a parent or child of it, or of a folder that is the source, is taken.
    """
    if mounts.get(path) == uri:
        return
    for other_path, other_uri in mounts.items():
        if related(path, other_path) or (is_folder(uri) and related(uri, other_uri)):
            raise _conflict(path=path, uri=uri, relation=_relation(uri, other_uri))


def check_same_store(*, path: str, uri: str, mounted: str, store: str) -> None:
    """Refuse to make a mount one of the same bucket's name at another store: who reads it would read other bytes.

    Args:
        path: What is mounted.
        uri: The source of the one that shall be mounted.
        mounted: What tells the mounted one's store from others (`store_of`); empty where it is not known.
        store: The same of the one that shall be mounted.

    Raises:
        MountConflictError: They are not the same.
    """
    if mounted and mounted != store:
        raise _conflict(path=path, uri=uri, relation="another source at the path")


def store_of(options: Mapping[str, str]) -> str:
    """What tells the store of a source's options from others, whatever keys and address it is asked with."""
    return hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()[:16]


def _conflict(*, path: str, uri: str, relation: str) -> MountConflictError:
    return MountConflictError(
        attempted=f"mount {uri} at {path}",
        # Without the other's URI: it may be of another tenant.
        reason=(
            f"{relation} is mounted already, and a cache holds a path or a folder, its parents and its children only "
            "once"
        ),
        remedy=(
            "Let the datasets name the same folder, then they share its cached bytes, or use another "
            "CacheCluster"
        ),
        path=path,
    )


def _relation(uri: str, other_uri: str) -> str:
    if uri == other_uri:
        return "the same source"
    if inside(inner=uri, outer=other_uri):
        return "a folder around it"
    return "a folder in it" if inside(inner=other_uri, outer=uri) else "another source at the path"
