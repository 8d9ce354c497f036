"""Compiled models as data: manifests, stores, and the loader that takes the best artifact a node can run."""

from tdcs_train.artifacts.loading import load
from tdcs_train.artifacts.manifest import ArtifactError, Manifest
from tdcs_train.artifacts.node import Node, this_node
from tdcs_train.artifacts.session import CompiledModel
from tdcs_train.artifacts.source import generated_source
from tdcs_train.artifacts.targets import TARGETS, Target
from tdcs_train.artifacts.triton_cache import restore_triton_cache

__all__ = [
    "TARGETS",
    "ArtifactError",
    "CompiledModel",
    "Manifest",
    "Node",
    "Target",
    "generated_source",
    "load",
    "restore_triton_cache",
    "this_node",
]
