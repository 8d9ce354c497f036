"""The root file system of the image `train-pytorch`: Debian trixie with PyTorch for processors and gloo.

Debian's package is the lean way to PyTorch without a GPU: the wheels of the package index need 3 GB of CUDA libraries
to be imported. The test tier `training` and the benchmarks of `bench/training` run inside the same root, without a
container engine: in namespaces of their own, with the checkout mounted read-only and a network of their own.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tdcs_local import cache, docker, host, shell
from tdcs_local.containers import debian
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter

ROOT = debian.Root(
    name="train-pytorch",
    release="trixie",
    # libopenblas0-openmp is among them: matrix products with the reference BLAS take twenty times as long
    packages=tuple((CHECKOUT / "deploy" / "images" / "train-pytorch" / "packages.txt").read_text().split()),
    networked=False,
)
PYTHON = "3.13"
"""The version of Python in it."""
INSIDE = "/checkout"
"""Where the checkout is inside the root."""
RESULTS = "/results"
"""Where a folder that may be written to is inside the root."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A program inside the root.

    ``results`` is a folder outside that the program may write to, at `/results`; ``data`` maps names below `/data`
    to folders outside that it may read. Without ``network`` the program has a loopback interface of its own, else
    the interfaces of the caller. ``packages`` is a folder of Python packages that it may import.
    """

    command: Sequence[str]
    results: Path
    data: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    packages: Path | None = None


def reference() -> str:
    """The name of the base image that is this root, whether it exists or not."""
    return f"tdcs/debian:trixie-pytorch-{ROOT.key()}"


def ensure_image(*, reporter: Reporter) -> str:
    """The name of the base image, which the engine has afterwards."""
    name = reference()
    if not docker.image_id(name):
        tar = debian.ensure(ROOT, reporter=reporter)
        with reporter.step(f"import {name}"):
            docker.import_root(tar, reference=name, changes=['CMD ["python3"]'])
    return name


def ensure_folder(*, reporter: Reporter) -> Path:
    """The root as a folder; made now unless it is cached."""

    def build(scratch: Path) -> None:
        tar = debian.ensure(ROOT, reporter=reporter)
        root = scratch / "root"
        root.mkdir()
        with reporter.step("unpack the root with PyTorch"):
            command: list[str | Path] = [
                "tar",
                "--directory",
                root,
                "--extract",
                "--numeric-owner",
                "--exclude=./dev/*",
            ]
            failure = "unpacking the root with PyTorch failed"
            command += ["--file", tar]
            shell.run(command, what=failure, log=log_file("root-pytorch"))
        for place in (INSIDE, RESULTS, "/data"):
            (root / place.lstrip("/")).mkdir(exist_ok=True)

    waiting = "another process unpacks the root with PyTorch: waiting"
    folder = cache.product("folder-pytorch", ROOT.key(), build, on_wait=lambda: reporter.say(waiting), keep=2)
    return folder / "root"


def arguments(run: Run, *, root: Path) -> list[str]:
    """The words of a command that runs a program inside the root; it ends with all that it started."""
    own_network = [] if run.network else ["--net"]
    return [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", *own_network),
        *("--", "sh", "-euc", _SETUP, "torch-root", str(root), str(CHECKOUT), str(run.results)),
        *(f"{name}={folder}" for name, folder in _data(run).items()),
        *("--", "/usr/bin/env", "-i", f"--chdir={INSIDE}", *_environment(run), *run.command),
    ]


# Mounts are seen by this process and its children only. Arguments: ROOT CHECKOUT RESULTS [NAME=FOLDER...] -- COMMAND...
_SETUP = f"""
root=$1 checkout=$2 results=$3
shift 3
mount --make-rprivate /
ip link set lo up
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$checkout" "$root{INSIDE}"
mount -o remount,bind,ro "$root{INSIDE}"
mount --bind "$results" "$root{RESULTS}"
mount -t tmpfs tmpfs "$root/data"
while [ "$1" != -- ]; do
  place="$root/data/${{1%%=*}}"
  mkdir "$place"
  mount --bind "${{1#*=}}" "$place"
  mount -o remount,bind,ro "$place"
  shift
done
shift
exec chroot "$root" "$@"
"""


def _data(run: Run) -> dict[str, Path]:
    return {**run.data, **({} if run.packages is None else {"packages": run.packages})}


def _environment(run: Run) -> list[str]:
    values = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",  # noqa: S108  a file system of its own
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "USE_LIBUV": "0",  # Debian's PyTorch is built without the library that its rendezvous would use
        "PYTHONPATH": f"{INSIDE}/training:{INSIDE}:/data/packages",
        **run.environment,
    }
    return [f"{name}={value}" for name, value in values.items()]


def require(*, reporter: Reporter) -> None:
    """Installs what is missing; raises :class:`LocalError` where programs cannot be given a root of their own."""
    host.require_programs("mmdebstrap", "ip", reporter=reporter)
    if os.geteuid() != 0 or not shell.can_contain():
        raise LocalError(
            what="programs cannot be run inside the root with PyTorch",
            why="a root file system and namespaces of their own need the rights of root",
            remedy="run it as root, outside of tight containers",
        )
