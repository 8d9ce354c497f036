"""Where views lie on a node. Pure, but for what `os.path` computes.

    TIER/alluxioworker/BLOCK                     the worker's blocks
    TIER/views/DATASET/VERSION/manifest          what the version consists of
    TIER/views/DATASET/VERSION/tree/...          what pods are shown
    TIER/views/DATASET/VERSION/scratch/          files on their way into the tree

Views lie below the tier's own folder, because links cannot cross mounts.
"""

import hashlib
import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tdcs.api import names
from tdcs.csi.volume import Volume

TREE: Final = "tree"
MANIFEST: Final = "manifest"
SCRATCH: Final = "scratch"

_LONGEST_KEY: Final = 120


def tier_of(*, cache_root: str, cluster: str) -> str:
    """The tier's folder of a cache cluster on this node, links resolved."""
    return os.path.realpath(os.path.join(cache_root, cluster))


def key_of(*, volume: Volume) -> str:
    """The name of a dataset's folder."""
    key = quote("/".join(volume.parts), safe="")
    if len(key) <= _LONGEST_KEY and not key.startswith("."):
        return key
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionFolder:
    """The folder of one version of a dataset."""

    path: str

    @property
    def version(self) -> str:
        """The version's name."""
        return os.path.basename(self.path)

    @property
    def tree(self) -> str:
        """What pods are shown."""
        return os.path.join(self.path, TREE)

    @property
    def scratch(self) -> str:
        """For files on their way."""
        return os.path.join(self.path, SCRATCH)

    @property
    def manifest(self) -> str:
        """The manifest's file; its time is when the master was last seen to have this version."""
        return os.path.join(self.path, MANIFEST)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFolder:
    """The folder of all versions of a dataset."""

    path: str

    def of(self, version: str) -> VersionFolder:
        """The folder of this version."""
        return VersionFolder(path=os.path.join(self.path, version))

    def versions(self) -> list[VersionFolder]:
        """The versions that have a folder, in no order."""
        try:
            return [self.of(name) for name in os.listdir(self.path) if not name.startswith(".")]
        except FileNotFoundError:
            return []


def dataset_folder(*, cache_root: str, volume: Volume) -> DatasetFolder:
    """The folder of a volume's dataset on this node."""
    tier = tier_of(cache_root=cache_root, cluster=volume.cluster)
    return DatasetFolder(path=os.path.join(tier, names.VIEWS_FOLDER, key_of(volume=volume)))
