"""TDCS: task and data co-located scheduling of deep-learning jobs on Kubernetes."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tdcs")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
