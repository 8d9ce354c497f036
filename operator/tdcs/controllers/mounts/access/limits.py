"""How many files and bytes the source of a Dataset may have, by the limits of its CacheCluster. Pure."""

from typing import Final

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.quantities import to_bytes
from tdcs.engine.alluxio import profile
from tdcs.listing.limit import ListingLimit

FILE_BYTES: Final = 1536
"""What a master's heap holds of a file with one block: a KiB of the file, and half of one of the block."""


def files_of_heap(spec: CacheClusterSpec) -> int:
    """So many files a master with this heap can know."""
    options = [*profile.java_options(role=profile.Role.MASTER), *spec.master.jvm_options]
    return max(profile.heap_bytes(options) // FILE_BYTES, 1)


def listing_limit(spec: CacheClusterSpec, *, cluster: str, others: int) -> ListingLimit:
    """The limit of one source.

    Args:
        spec: of the CacheCluster.
        cluster: its name, for messages.
        others: files of the other sources that its master knows.
    """
    limits = spec.limits
    left = max((limits.files or files_of_heap(spec)) - others, 0)
    own = limits.files_per_dataset
    of_all = own is None or left < own
    return ListingLimit(
        files=left if own is None or of_all else own,
        bytes=to_bytes(limits.bytes_per_dataset) if limits.bytes_per_dataset is not None else None,
        files_field=f"what spec.limits.files of CacheCluster {cluster} leaves"
        if of_all
        else f"spec.limits.filesPerDataset of CacheCluster {cluster}",
        bytes_field=f"spec.limits.bytesPerDataset of CacheCluster {cluster}",
    )
