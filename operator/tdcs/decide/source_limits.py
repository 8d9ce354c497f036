"""How many files, folders and bytes the source of a Dataset may have, by the limits of its CacheCluster."""

from collections.abc import Sequence
from typing import Final

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.quantities import to_bytes
from tdcs.model.listing_limit import LARGEST_MANIFEST, ListingLimit, SourcesSize

MANIFEST_FILE_BYTES: Final = 512
"""No manifest has more of what counts as a file: of a file its name of at most 255 bytes, a tag of 128 and 70 bytes
with its id and block, of a folder 12 and its path, which has fewer than 256 bytes for each time that the folder
counts."""

MOST_FILES: Final = 10_000_000
"""Files and folders of all sources of a cache, where its spec names no limit: as many names as the listing was measured
with."""


def manifest_bytes(spec: CacheClusterSpec) -> int:
    """No manifest of a source that a CacheCluster of this spec takes has more bytes."""
    files = spec.limits.files or MOST_FILES
    return min(
        min(files, spec.limits.files_per_dataset or files) * MANIFEST_FILE_BYTES + (1 << 20), LARGEST_MANIFEST
    )


def listing_limit(
    spec: CacheClusterSpec,
    *,
    cluster: str,
    others: int,
    namespaces: Sequence[SourcesSize] = (),
) -> ListingLimit:
    """The limit of one source.

    Args:
        spec: of the CacheCluster.
        cluster: its name, for messages.
        others: files of the other sources of the cache.
        namespaces: of each namespace that reads the source, the other sources that it reads. The one with the most left
            counts: others that have reached their limit do not keep it from a source.
    """
    limits = spec.limits
    title = f"of CacheCluster {cluster}"
    files = [(max((limits.files or MOST_FILES) - others, 0), f"what spec.limits.files {title} leaves")]
    sizes: list[tuple[int, str]] = []
    if limits.files_per_dataset is not None:
        files.append((limits.files_per_dataset, f"spec.limits.filesPerDataset {title}"))
    if limits.bytes_per_dataset is not None:
        sizes.append((to_bytes(limits.bytes_per_dataset), f"spec.limits.bytesPerDataset {title}"))
    if limits.files_per_namespace is not None:
        used = min((size.files for size in namespaces), default=0)
        field = f"what spec.limits.filesPerNamespace {title} leaves next to the namespace's other sources"
        files.append((max(limits.files_per_namespace - used, 0), field))
    if limits.bytes_per_namespace is not None:
        used = min((size.bytes for size in namespaces), default=0)
        field = f"what spec.limits.bytesPerNamespace {title} leaves next to the namespace's other sources"
        sizes.append((max(to_bytes(limits.bytes_per_namespace) - used, 0), field))
    least_files, files_field = min(files)
    least_bytes, bytes_field = min(sizes, default=(None, ""))
    return ListingLimit(
        files=least_files, bytes=least_bytes, files_field=files_field, bytes_field=bytes_field
    )
