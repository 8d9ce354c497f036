"""A node in miniature whose disk has what views are made of."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.dataplane.node import Node
from tests.unit.node.csi.views.builders import PATH, builder_of, listed, put_blocks

from tdcs.node.csi.views.view_folders import dataset_folder
from tdcs.node.csi.volume import Volume

FILES = {f"{PATH.lstrip('/')}/train/{name}": f"fuse {name}" for name in ("here", "away")}


class ViewNode:
    """A node whose disk has a dataset's manifest and some of its blocks."""

    def __init__(self, node: Node, *, here: set[str], tiers: Sequence[Path] = ()) -> None:
        """`here` are the files whose blocks are on the node, in the first of the tiers."""
        self.node = node
        self.tiers = ",".join(map(str, tiers))
        self.tier = node.inside(tiers[0] if tiers else node.cache_root / "default")
        names = ("here", "away")
        content = bytearray()
        builder = builder_of(*(listed(f"train/{name}", 4, first_block=i) for i, name in enumerate(names, 1)))
        volume = Volume(
            cluster="default",
            parts=tuple(PATH.strip("/").split("/")),
            tiers=tuple(str(node.inside(tier)) for tier in tiers),
        )
        folder = dataset_folder(cache_root=str(node.inside(node.cache_root)), volume=volume)
        version = Path(folder.of(builder.finish(content.extend)).path)
        version.mkdir(parents=True)
        (version / "manifest").write_bytes(content)
        put_blocks(self.tier, {i: name.encode() for i, name in enumerate(names, 1) if name in here})

    def start(self, *more: str) -> None:
        """Start the plugin, with more options."""
        # No master listens there: the manifest on the disk must do.
        self.node.start_plugin(
            more=("--views", f"--cache-root={self.node.cache_root}", "--master=127.0.0.1:1", *more)
        )

    def publish(self, name: str = "pod-1") -> Path:
        """Give a pod its volume; the folder as a process of the node sees it."""
        target = self.node.target(name)
        self.node.publish(target, path=PATH, tiers=self.tiers, timeout=60)
        return self.node.inside(target)

    def mounted_inside(self, target: Path) -> list[str]:
        """What is mounted below a pod's volume."""
        return self.node.mounts(Path(str(target).split("/root", 1)[1]) / "train/.tdcs/way/data")
