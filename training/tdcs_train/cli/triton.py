"""`tdcs-train triton`: caches of Triton's kernels as artifacts."""

import ctypes
import importlib.metadata
from pathlib import Path

import click

from tdcs_train.artifacts.triton_cache import default_folder, restore_triton_cache
from tdcs_train.artifacts.triton_pack import pack_triton_cache
from tdcs_train.errors import InputError

_MAJOR, _MINOR = 75, 76
"""Of CUDA's driver: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


@click.group()
def command() -> None:
    """Keep the kernels that Triton has compiled, for one GPU and one version of Triton."""


@command.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[CACHE]")
@click.option("--name", required=True, help="What to call it.")
@click.option("--target", required=True, help="The GPU that the kernels are for, such as cuda-90.")
@click.option("--triton", "version", help="The version that made them.  [default: that installed]")
@click.option("-o", "--output", required=True, metavar="DIR|s3://...", help="Where artifacts are kept.")
@click.option("--endpoint", metavar="URL", help="The S3 server, if it is not Amazon's.")
def pack(
    folder: Path | None, name: str, target: str, version: str | None, output: str, endpoint: str | None
) -> None:
    """Make an artifact of the cache that a program has filled: CACHE, or that of TRITON_CACHE_DIR."""
    triton = version or _installed()
    if triton is None:
        raise InputError("Triton is not installed here: say with --triton which version made the kernels")
    manifest, is_new, location = pack_triton_cache(
        folder or default_folder(), name=name, target=target, triton=triton, output=output, endpoint=endpoint
    )
    click.echo(
        f"{'packed' if is_new else 'already there'}: {location}, {manifest.options['kernels']} folders of kernels"
    )


@command.command()
@click.argument("artifacts", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="What it was called.")
@click.option("--into", type=click.Path(path_type=Path), help="Triton's cache.  [default: TRITON_CACHE_DIR]")
def restore(artifacts: Path, name: str, into: Path | None) -> None:
    """Bring the kernels that fit this machine's GPU from the folder ARTIFACTS into Triton's cache."""
    restored = restore_triton_cache(
        artifacts, name=name, capability=_capability(), triton=_installed(), into=into
    )
    click.echo(f"restored {restored.brought} folders of kernels; {restored.present} were there already")


def _installed() -> str | None:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def _capability() -> tuple[int, int] | None:
    """The compute capability of the first GPU, as CUDA's driver says it; None where there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    values = (ctypes.c_int(), ctypes.c_int())
    if driver.cuInit(0) != 0:
        return None
    for value, attribute in zip(values, (_MAJOR, _MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0) != 0:
            return None
    return values[0].value, values[1].value
