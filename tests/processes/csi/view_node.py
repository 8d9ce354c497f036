"""A node in miniature whose disk has what views are made of."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.dataplane.node import Node
from tests.unit.node.csi.views.builders import PATH, builder_of, id_of, listed, put_blocks

from tdcs.api import names
from tdcs.model.manifest import Manifest
from tdcs.node.csi.views.view_folders import dataset_folder
from tdcs.node.csi.volume import VolumeFolder

FILES = ("here", "away")
"""Of the dataset, in its folder `train`; a block has the file's name as its content."""
_LISTED = {name: listed(f"train/{name}", 4) for name in FILES}
BLOCKS = {name: id_of(file) for name, file in _LISTED.items()}
HERE, AWAY = BLOCKS["here"], BLOCKS["away"]


class ViewNode:
    """A node whose disk has a dataset's manifest and some of its blocks."""

    def __init__(self, node: Node, *, here: set[str], tiers: Sequence[Path] = ()) -> None:
        """`here` are the files whose blocks are on the node, in the first of the tiers."""
        self.node = node
        self.tiers = ",".join(map(str, tiers))
        self.tier = node.inside(tiers[0] if tiers else node.cache_root / "default")
        content = bytearray()
        builder = builder_of(*_LISTED.values())
        volume = VolumeFolder(
            cluster="default",
            parts=tuple(PATH.strip("/").split("/")),
            tiers=tuple(str(node.inside(tier)) for tier in tiers),
        )
        folder = dataset_folder(cache_root=str(node.inside(node.cache_root)), volume=volume)
        self.digest = builder.finish(content.extend)
        version = Path(folder.of(self.digest).path)
        version.mkdir(parents=True)
        (version / "manifest").write_bytes(content)
        manifest = Manifest(bytes(content), digest=self.digest)
        self.numbers = {os.fsdecode(manifest.file_path(file)): file for file in range(len(FILES))}
        put_blocks(self.tier, {BLOCKS[name]: name.encode() for name in here})

    def mount_client(self, text: Callable[[str], str] = str.upper) -> None:
        """Mount what stands in for the remote-read client, which has another text of each file than its block."""
        folder = f"default.{self.digest}{names.READER_NUMBERED}"
        numbers = {name: self.numbers[f"train/{name}"] for name in FILES}
        self.node.mount_client({f"{folder}/{number}": text(name) for name, number in numbers.items()})

    def publish(self, name: str = "pod-1") -> Path:
        """Give a pod its volume; the folder as a process of the node sees it."""
        target = self.node.target(name)
        self.node.publish(target, path=PATH, tiers=self.tiers, timeout=60)
        return self.node.inside(target)
