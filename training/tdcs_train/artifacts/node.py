"""What the node that runs this process offers: CPU features, libraries, and the version of TVM."""

import ctypes
import importlib.metadata
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tdcs_train.artifacts.targets import Target, find_target, limit, runnable
from tdcs_train.errors import InputError

LIMIT_VARIABLE = "TDCS_TRAIN_TARGET"
"""Environment variable: treat the node as this target at most, as on a cluster of which some nodes are older."""


def has_library(soname: str) -> bool:
    """Whether the dynamic linker finds a shared library."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as the loader sees it.

    Attributes:
        machine: the architecture, as `uname -m` says it.
        features: CPU features as in /proc/cpuinfo.
        tvm: the version of TVM that is installed, None without one.
        onnxruntime: that of ONNX Runtime.
        openvino: that of OpenVINO.
        has_library: whether a shared library can be loaded.
    """

    machine: str
    features: frozenset[str]
    tvm: str | None
    onnxruntime: str | None = None
    openvino: str | None = None
    has_library: Callable[[str], bool] = field(default=has_library, compare=False)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that this node can run, the best first."""
        return runnable(self.features) if self.machine == "x86_64" else ()


def this_node(cpuinfo: Path = Path("/proc/cpuinfo")) -> Node:
    """The node that this process runs on, limited to what TDCS_TRAIN_TARGET says.

    Raises:
        InputError: the variable names an unknown target, or the processor cannot be read.
    """
    features = cpu_features(cpuinfo.read_text())
    if limit_name := os.environ.get(LIMIT_VARIABLE):
        try:
            features = limit(features, target=find_target(limit_name))
        except InputError as error:
            raise InputError(f"the environment variable {LIMIT_VARIABLE} is wrong: {error}") from error
    return Node(
        machine=platform.machine(),
        features=features,
        tvm=tvm_version(),
        onnxruntime=_version("onnxruntime"),
        openvino=_version("openvino"),
    )


def cpu_features(cpuinfo: str) -> frozenset[str]:
    """The features that all processors of a /proc/cpuinfo have; a virtual machine may have moved between two kinds."""
    lines = [
        line.partition(":")[2] for line in cpuinfo.splitlines() if line.partition(":")[0].strip() == "flags"
    ]
    if not lines:
        return frozenset()
    return frozenset.intersection(*(frozenset(line.split()) for line in lines))


def tvm_version() -> str | None:
    """The version of TVM that is installed, without importing it."""
    return _version("apache-tvm")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
