"""Whether the volume of a Dataset leads to what its own source and keys open. That it has the Dataset's uid does not
say so: who makes the Dataset knows the uid, and may make a volume with it that leads to another's data."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tdcs.api.conditions import CACHE_UNAVAILABLE
from tdcs.api.source_uri import is_claim
from tdcs.control.context import WorkKey
from tdcs.control.dataset.access.key_checks import KeyChecks
from tdcs.decide.cache import mount_identity
from tdcs.decide.problem import RETRY_LATER, RETRY_SOON, Refusal, refusal_of
from tdcs.listing.source_keys import CheckKeys
from tdcs.model.cache_engine import Source
from tdcs.model.source_paths import store_of

_OTHER = Refusal(
    reason="NameTaken",
    message="the PersistentVolume of this Dataset led to the data of another source; it is made again",
    retry_after=RETRY_SOON,
    permanent=True,
)

UNHEARD = Refusal(
    reason=CACHE_UNAVAILABLE,
    message="the cache has not said yet whether the PersistentVolume of this Dataset leads to what is shared with it "
    "now, and to nothing else",
    retry_after=RETRY_SOON,
)

UNCHECKED = Refusal(
    reason="KeysUnchecked",
    message="the source does not say whether it takes the keys of spec.source.secretRef, which are not those that the "
    "volume was made with: see that the operator can reach it",
    retry_after=RETRY_LATER,
)


class Origin(Enum):
    OWN = "to what the Dataset's source and keys open"
    OTHER = "to another source"
    UNKNOWN = "to a mount of that source, which had other keys when the volume was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedSource:
    """What is mounted where a volume leads.

    Attributes:
        source: as this process has mounted it; None before it did.
        uri: as the cache says it, canonical; empty where there is none.
        store: what tells its store and its files from others (`store_of`), as the cache says it; empty where that is
            not known.
        is_heard: whether the cache has said what it has mounted.
    """

    source: Source | None
    uri: str
    store: str = ""
    is_heard: bool = True


class VolumeOrigins:
    """Remembers which volumes were found to be their Datasets' own: keys may be changed, and be wrong for a while.

    A new process has only the path, a digest in which the keys took part. Of other keys than those it says nothing, and
    then only the source can tell the Dataset's volume from a planted one: by whether it takes the Dataset's keys.

    A guest reads another one's source by a grant, with keys of the owner's: that the source takes them says nothing of
    what is granted. Its volume must be seen to lead to just that; else it goes.
    """

    def __init__(self, *, key_checks: KeyChecks) -> None:
        self._key_checks: Final = key_checks
        self._own_paths: Final[dict[WorkKey, tuple[str, ...]]] = {}
        """For each Dataset its uid, the path of its volume, the URI of its source, and a digest of the options."""

    def doubt(
        self,
        key: WorkKey,
        *,
        uid: str,
        path: str,
        spec: Source,
        source: Source | None,
        mounted: MountedSource,
        check_keys: CheckKeys,
        is_guest: bool,
    ) -> Refusal | None:
        """Why the volume of a Dataset may not be its own; None when it is. Asks the source where only that knows.

        Args:
            path: the engine path in the volume.
            spec: the Dataset's source without its keys.
            source: with them; None while these are not known, or may not be used.
            is_guest: whether it reads the source by a grant, which `spec` has in its options.
        """
        identity = (uid, path, spec.uri, store_of(spec.options))
        origin = judge(path=path, spec=spec, source=source, mounted=mounted)
        if is_guest and not _is_just(path=path, spec=spec, source=source, mounted=mounted):
            if self._own_paths.get(key) == identity and origin is not Origin.OTHER:
                return None
            if not mounted.is_heard:
                return UNHEARD
            origin = Origin.OTHER
        if origin is Origin.OTHER:
            self.drop(key)
            return _OTHER
        if origin is Origin.OWN:
            self._own_paths[key] = identity
        if self._own_paths.get(key) == identity:
            return None
        if source is None:
            return UNCHECKED
        refused = self._key_checks.look(key, source, check_keys=check_keys, awaited=True)
        if self._key_checks.are_taken(key, source):
            # What this process has not mounted may be a bucket of that name elsewhere: mounting it would fail.
            if mounted.source is not None:
                self._own_paths[key] = identity
            return None
        if refused is None:
            return UNCHECKED
        return refusal_of(refused, permanent=not self._key_checks.is_asking(key))

    def drop(self, key: WorkKey) -> None:
        """A Dataset is gone, or what is cached for it is."""
        self._own_paths.pop(key, None)


def judge(*, path: str, spec: Source, source: Source | None, mounted: MountedSource) -> Origin:
    """Where the volume of a Dataset leads, as far as that can be seen; see `VolumeOrigins.doubt`."""
    if mounted.source is not None:
        is_same = (mounted.source.uri, mounted.source.options) == (spec.uri, spec.options)
    else:
        is_same = mounted.uri in {"", spec.uri} and mounted.store in {"", store_of(spec.options)}
    if not is_same:
        return Origin.OTHER
    if is_claim(spec.uri):  # whose URI says nothing of its namespace: the path does
        return Origin.OWN if path == mount_identity.engine_path(source=spec) else Origin.OTHER
    if source is None:
        return Origin.UNKNOWN
    is_own = (
        source.credentials is None  # a folder is mounted once for all
        or path == mount_identity.engine_path(source=source)
        or (mounted.source is not None and mount_identity.mark(mounted.source) == mount_identity.mark(source))
    )
    return Origin.OWN if is_own else Origin.UNKNOWN


def _is_just(*, path: str, spec: Source, source: Source | None, mounted: MountedSource) -> bool:
    """Whether a volume is seen to lead to the files of a Dataset's source with its options, and to no others: by what
    is mounted there, or by the path, which is a digest of URI, options and keys."""
    if mounted.source is not None:
        return (mounted.source.uri, mounted.source.options) == (spec.uri, spec.options)
    if mounted.store:
        return (mounted.uri, mounted.store) == (spec.uri, store_of(spec.options))
    return path in {mount_identity.engine_path(source=known) for known in (spec, source) if known is not None}
