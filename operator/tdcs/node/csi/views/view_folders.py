"""Where views are on a node. Pure, but for what `os.path` computes.

    TIER/agent/spool/BLOCK                       blocks that the agent has verified
    TIER/agent/refused/MOUNT/BLOCK               for each block that the agent has found wrong
    TIER/views/.manifests/                       manifests on their way to this node
    TIER/views/DATASET/VERSION/manifest          what the version consists of; VERSION is its digest
    TIER/views/DATASET/VERSION/seen              its time is when the cache was last seen to have this version
    TIER/views/DATASET/VERSION/tree/...          links to blocks, and placeholders of files that are not here
    TIER/views/DATASET/VERSION/shown             what pods are given: an overlay
    TIER/views/DATASET/VERSION/scratch/          files on their way into the tree

The agent reads the trees: what only a view keeps alive counts as used on its disk.

    CACHE_ROOT/.tiers/CLUSTER                    a cluster's tiers, where they are not at the default place

Views are below the tier's own folder, because links cannot cross mounts.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tdcs.api import names
from tdcs.node.csi.volume import VolumeFolder

TREE: Final = "tree"
MANIFEST: Final = "manifest"
SHOWN: Final = "shown"
SCRATCH: Final = "scratch"
GONE: Final = ".gone-"
"""Before the name of a version that is being deleted."""
SEEN: Final = "seen"
STAGING: Final = ".manifests"

_NOTES: Final = ".tiers"
_LONGEST_KEY: Final = 120


def tiers_of(*, cache_root: str, cluster: str, tiers: Sequence[str]) -> list[str]:
    """The folders of a cache cluster on this node, links resolved; the first one is for the views.

    Tiers that are not there count as absent: the plugin may not have been given their folder. Without any, all is read
    remotely, and the views are at the default place.
    """
    folders = [os.path.realpath(tier) for tier in tiers if os.path.isdir(tier)]
    return folders or [os.path.realpath(os.path.join(cache_root, cluster))]


def remember(*, cache_root: str, volume: VolumeFolder) -> None:
    """Note a cluster's tiers for the next process, which finds the views by them."""
    text, file = "".join(f"{tier}\n" for tier in volume.tiers), _note(cache_root, volume.cluster)
    if _read(file) == text:
        return
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with open(f"{file}.new", "w", encoding="utf-8") as new:
        new.write(text)
    os.replace(f"{file}.new", file)


def remembered(*, cache_root: str) -> dict[str, tuple[str, ...]]:
    """The tiers of each cluster that has something on this node; none for those at the default place."""
    clusters = {name for name in _entries(cache_root) if not name.startswith(".")}
    noted = {name for name in _entries(os.path.join(cache_root, _NOTES)) if not name.endswith(".new")}
    return {
        cluster: tuple(_read(_note(cache_root, cluster)).splitlines()) for cluster in sorted(clusters | noted)
    }


def _note(cache_root: str, cluster: str) -> str:
    return os.path.join(cache_root, _NOTES, cluster)


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as text:
            return text.read()
    except FileNotFoundError:
        return ""


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def key_of(*, volume: VolumeFolder) -> str:
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
        return os.path.basename(self.path)

    @property
    def tree(self) -> str:
        """Links to blocks, and placeholders of the other files; only where they are shown by an overlay."""
        return os.path.join(self.path, TREE)

    @property
    def shown(self) -> str:
        """Where that is mounted which pods are given."""
        return os.path.join(self.path, SHOWN)

    @property
    def scratch(self) -> str:
        return os.path.join(self.path, SCRATCH)

    @property
    def manifest(self) -> str:
        return os.path.join(self.path, MANIFEST)

    @property
    def seen(self) -> str:
        """The file with the time of when the cache was last seen to have this version."""
        return os.path.join(self.path, SEEN)

    def entries(self) -> list[str]:
        """What is there of it, by name: what is mounted there is not asked, it may hang."""
        return _entries(self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFolder:
    """The folder of all versions of a dataset."""

    path: str

    def of(self, version: str) -> VersionFolder:
        return VersionFolder(path=os.path.join(self.path, version))

    def versions(self) -> list[VersionFolder]:
        """The versions that have a folder, by their names. A file in its place, which TDCS never makes, has none."""
        return [self.of(name) for name in _entries(self.path) if not name.startswith(".")]


def dataset_folder(*, cache_root: str, volume: VolumeFolder) -> DatasetFolder:
    tier = tiers_of(cache_root=cache_root, cluster=volume.cluster, tiers=volume.tiers)[0]
    return DatasetFolder(path=os.path.join(tier, names.VIEWS_FOLDER, key_of(volume=volume)))


def dataset_folders(*, cache_root: str) -> Iterator[tuple[str, tuple[str, ...], DatasetFolder]]:
    """Cluster, tiers and folder of every dataset that has views on this node."""
    for cluster, noted in remembered(cache_root=cache_root).items():
        # The default place, too: a tier's folder may not have been there when the views were made.
        places = {
            tiers_of(cache_root=cache_root, cluster=cluster, tiers=tiers)[0]: tiers for tiers in ((), noted)
        }
        for place, tiers in places.items():
            views = os.path.join(place, names.VIEWS_FOLDER)
            for key in _entries(views):
                if not key.startswith("."):
                    yield cluster, tiers, DatasetFolder(path=os.path.join(views, key))
