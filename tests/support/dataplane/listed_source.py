"""What is listed of a source, and what an agent's reader reads of it, without a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import access_of
from tdcs.model.cache_engine import Source
from tdcs.model.manifest import Manifest
from tdcs.node.agent.mount.source_pieces import Extent
from tdcs.node.agent.mount.source_state import open_source


async def listed(source: Source, folder: Path) -> Manifest:
    """The manifest of a source, written into a folder."""
    manifests = ManifestFolder(folder)
    listing = await list_source(source=source, path="/datasets/1f", folder=manifests)
    return manifests.open(listing.digest)


def files_of(manifest: Manifest) -> dict[str, int]:
    """The lengths of files by their paths."""
    return {manifest.file_path(file).decode(): int(manifest.lengths[file]) for file in range(len(manifest))}


def extents_of(manifest: Manifest, path: str, *, piece: int) -> list[Extent]:
    """A file in pieces of so many bytes; of an empty one a piece without bytes."""
    file = manifest.file_at(path.encode())
    assert file is not None
    size = int(manifest.lengths[file])
    return [
        Extent(
            path=path.encode(),
            offset=offset,
            length=min(piece, size - offset),
            size=size,
            tag=manifest.tag(file),
        )
        for offset in range(0, max(size, 1), piece)
    ]


def read(source: Source, extents: Sequence[Extent]) -> bytes:
    """The bytes of pieces, as a new reader of the source reads them."""
    reader, content = open_source(access_of(source)), bytearray()
    for extent in extents:
        reader.read(extent, content.extend)
    return bytes(content)
