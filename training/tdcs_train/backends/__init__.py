"""Hardware back ends: which parts of a model they take and the code that they make for them."""

from tdcs_train.backends.backend import Backend, GeneratedCode, Library, Row, accept
from tdcs_train.backends.c_source import c_file, c_module
from tdcs_train.backends.graph import Attribute, Input, Match, Node, Region, Step, TensorType
from tdcs_train.backends.registry import find, find_all, names

__all__ = [
    "Attribute",
    "Backend",
    "GeneratedCode",
    "Input",
    "Library",
    "Match",
    "Node",
    "Region",
    "Row",
    "Step",
    "TensorType",
    "accept",
    "c_file",
    "c_module",
    "find",
    "find_all",
    "names",
]
