"""Makes an artifact of a cache of Triton's kernels, unless the store already has it."""

import hashlib
import os
import tempfile
import time
from pathlib import Path

from tdcs_train.artifacts.key import artifact_key
from tdcs_train.artifacts.manifest import (
    FORMAT,
    ArtifactError,
    FileSpec,
    Manifest,
    ModelSpec,
    RuntimeSpec,
    sealed,
)
from tdcs_train.artifacts.store import open_store
from tdcs_train.artifacts.triton_cache import RUNTIME, read_kernels, unpacked
from tdcs_train.errors import InputError


def pack_triton_cache(
    folder: Path, *, name: str, target: str, triton: str, output: str, endpoint: str | None = None
) -> tuple[Manifest, bool, str]:
    """Pack a cache that a program has filled: the manifest, whether this call wrote it, and where it is.

    Args:
        folder: Triton's cache.
        name: what to call it.
        target: the GPU that its kernels are for, such as `cuda-90`: each is checked for it.
        triton: the version of Triton that made them, which is checked where a kernel names it.
        output: a folder or `s3://bucket/prefix`.

    Raises:
        InputError: something given cannot be used; the message says what.
    """
    begin = time.monotonic()
    if not name.strip():
        raise InputError("the name is empty: give --name some text")
    if not target.startswith("cuda-"):
        raise InputError(
            f"the target {target} is no GPU: write cuda- and its compute capability, such as cuda-90"
        )
    store = open_store(output, endpoint=endpoint)
    content = read_kernels(folder, target=target, triton=triton)
    try:
        kernels = len(unpacked(content))  # opened once before it is called made
    except ArtifactError as error:
        raise InputError(f"the cache {folder} was packed, but {error}; nothing was written") from error
    digest = hashlib.sha256(content).hexdigest()
    tools = {RUNTIME: triton, "machine": os.uname().machine}
    options = {"kernels": kernels, "name": name}
    key = artifact_key(model=digest, target=target, backends=(), tvm="", tools=tools, options=options)
    if (existing := store.find(key)) is not None:
        return existing, False, store.location(key)
    spec = FileSpec(name=f"kernels-{digest[:16]}.tar", bytes=len(content), sha256=digest)
    manifest = sealed(
        Manifest(
            format=FORMAT,
            key=key,
            model=ModelSpec(name=name, source=str(folder), digest=digest),
            target=target,
            features=(),
            tvm="",
            tools=tools,
            backends=(),
            options=options,
            libraries=(),
            inputs=(),
            outputs=(),
            weights=(),
            regions=(),
            host=(),
            refusals=(),
            seconds={"pack": round(time.monotonic() - begin, 3)},
            library=spec,
            parameters=spec,
            runtime=RuntimeSpec(name=RUNTIME, version=triton),
        )
    )
    with tempfile.TemporaryDirectory(prefix="tdcs-train-") as scratch:
        path = Path(scratch, spec.name)
        path.write_bytes(content)
        is_published = store.publish(manifest, {spec.name: path})
    return manifest, is_published, store.location(key)
