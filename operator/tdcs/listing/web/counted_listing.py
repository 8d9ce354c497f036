"""What listings of web servers and of the Hub have in common: where they read, and a count that ends at a limit."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tdcs.model.cache_engine import Source
from tdcs.model.listing_limit import LimitCount, ListingLimit
from tdcs.model.manifest_builder import ManifestBuilder


@dataclass(eq=False, slots=True, kw_only=True)
class CountedListing:
    """A listing that runs once.

    Attributes:
        source: with its keys.
        path: of the mount.
        limit: what it may have; None: anything.
        builder: gives an empty builder.
    """

    source: Source
    path: str
    limit: ListingLimit | None
    builder: Callable[[], ManifestBuilder]
    _count: LimitCount = field(init=False)

    def __post_init__(self) -> None:
        self._count = LimitCount(self.limit, subject=self.source.uri, path=self.path)
