"""The C++ compiler and TVM's headers on the machine that compiles models."""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from tdcs_train.backends.backend import Backend, Library
from tdcs_train.errors import InputError

COMPILER = "g++"


def cache_folder() -> Path:
    """Where compiled parts are kept between runs: `$XDG_CACHE_HOME/tdcs-train`, by default in `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tdcs-train"


def include_folders() -> tuple[Path, ...]:
    """The header folders of TVM and its FFI, without importing TVM.

    Raises:
        InputError: TVM is not installed.
    """
    folders = []
    for package, part in (("tvm", "include"), ("tvm_ffi", "include"), ("tvm_ffi", "3rdparty/dlpack/include")):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise InputError("TVM is not installed: pip install 'tdcs-train[compile]'")
        folder = Path(spec.origin).parent / part
        if folder.is_dir():
            folders.append(folder)
    return tuple(folders)


@cache
def compiler_version() -> str:
    """The first line of the compiler's `--version`.

    Raises:
        InputError: there is no compiler.
    """
    if shutil.which(COMPILER) is None:
        raise InputError(f"there is no {COMPILER} to build with: install the Debian package g++")
    process = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True)
    return process.stdout.splitlines()[0]


def tool_versions(backends: Iterable[Backend]) -> dict[str, str]:
    """The versions of what makes the code beside TVM: the C++ compiler, this package's own passes over models, and the
    libraries of these back ends, by name.

    Raises:
        InputError: the compiler or a library is missing.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    versions = {COMPILER: compiler_version(), "tdcs-train": digest.hexdigest()[:12]}
    for backend in backends:
        for library in backend.libraries:
            if library.version is not None:
                versions[library.soname] = library.version(_open(library, backend))
    return versions


def _open(library: Library, backend: Backend) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(library.soname)
    except OSError as error:
        raise InputError(
            f"the back end {backend.name} needs {library.soname}: install the Debian package {library.package}"
        ) from error


def run_compiler(arguments: Sequence[str], *, hint: str = "") -> None:
    """Run the compiler.

    Raises:
        InputError: it is missing or fails; the message has its first error and the Debian package that may be missing.
    """
    compiler_version()
    process = subprocess.run([COMPILER, *arguments], capture_output=True, text=True)
    if process.returncode != 0:
        lines = [line for line in process.stderr.splitlines() if "error" in line or "cannot find" in line]
        message = (lines or process.stderr.splitlines() or ["it gave no reason"])[0]
        remedy = f"; the Debian package {hint} may be missing" if hint else ""
        raise InputError(f"{COMPILER} failed: {message.strip()}{remedy}")
