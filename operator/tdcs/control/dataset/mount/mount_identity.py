"""Where a source is mounted inside the cache: equal sources share a mount, and so their blocks."""

import hashlib
import json

from tdcs.api import names
from tdcs.api.dataset import DatasetSpec
from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.source_paths import canonical_uri

Mark = tuple[str, tuple[tuple[str, str], ...], str, str]
"""What tells one source from another: its URI, its options, a digest of the credentials, and its address."""


def source_of(*, spec: DatasetSpec, credentials: Credentials | None, address: str = "") -> Source:
    """The engine's view of a Dataset's source; `address`: the only one at which its store is to be asked."""
    options = spec.source.options
    given = {
        "endpoint": options.endpoint,
        "region": options.region,
        "pathStyle": None if options.path_style is None else str(options.path_style).lower(),
        "requesterPays": "true" if options.requester_pays else None,
    }
    return Source(
        uri=canonical_uri(spec.source.uri),
        options={key: value for key, value in given.items() if value is not None},
        credentials=credentials,
        address=address,
    )


def engine_path(*, source: Source) -> str:
    """The engine path of a source.

    The credentials take part, as a digest, so that Datasets with different keys never share a mount.
    """
    seed = json.dumps([source.uri, sorted(source.options.items()), digest(source)], sort_keys=True)
    return f"{names.ENGINE_DATASETS_ROOT}/{hashlib.sha256(seed.encode()).hexdigest()[:16]}"


def mark(source: Source) -> Mark:
    """What tells one source from another, without its secrets."""
    return source.uri, tuple(sorted(source.options.items())), digest(source), source.address


def digest(source: Source) -> str:
    """A digest of the credentials of a source; empty when it has none."""
    if source.credentials is None:
        return ""
    return hashlib.sha256("\0".join(source.credentials.secrets).encode()).hexdigest()
