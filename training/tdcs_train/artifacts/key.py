"""The key of an artifact: a digest of everything that decides what compiling gives."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tdcs_train.artifacts.manifest import FORMAT, BackendSpec


def artifact_key(
    *,
    model: str,
    target: str,
    backends: Sequence[BackendSpec],
    tvm: str,
    tools: Mapping[str, str],
    options: Mapping[str, Any],
) -> str:
    """The key: 40 hexadecimal digits.

    Args:
        model: the digest of graph and weights.
        target: the target's name.
        backends: in order of preference, with their versions.
        tvm: TVM's version.
        tools: what else makes the code, by name with its version: the C++ compiler and the libraries of the back ends.
        options: what else was asked for, as values that JSON has.
    """
    parts = {
        "backends": [[backend.name, backend.version] for backend in backends],
        "format": FORMAT,
        "model": model,
        "options": dict(options),
        "target": target,
        "tools": dict(tools),
        "tvm": tvm,
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:40]
