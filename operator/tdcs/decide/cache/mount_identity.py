"""Where a source is mounted inside the cache: equal sources share a mount, and so their blocks."""

import hashlib
import json

from tdcs.api import names
from tdcs.api.dataset import DatasetSpec
from tdcs.api.source_uri import is_claim, is_web
from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.claim_source import NAMESPACE, RUN_AS_GROUP, RUN_AS_USER
from tdcs.model.file_ids import AS_OF
from tdcs.model.file_selection import EXCLUDE, INCLUDE, WITHIN
from tdcs.model.source_paths import canonical_uri
from tdcs.model.web_address import FILES, INDEX, REVISION

Mark = tuple[str, tuple[tuple[str, str], ...], str, str]
"""What tells one source from another: its URI, its options, a digest of the credentials, and its address with a digest
of the authorities that are trusted for it."""


def source_of(
    *,
    spec: DatasetSpec,
    credentials: Credentials | None,
    address: str = "",
    ca_bundle: str = "",
    redirects: tuple[str, ...] = (),
    proxy: str = "",
    within: tuple[str, ...] = (),
    namespace: str = "",
) -> Source:
    """The engine's view of a Dataset's source.

    Args:
        namespace: whose rules and keys count. A claim is one of it: those of two namespaces that have one name are two
            sources.
        address: the only one at which its store is to be asked.
        ca_bundle: authorities that are trusted for its store.
        within: what of it is granted; empty: all.
        proxy: through which its store is asked; empty: none.
        redirects: endpoints to which its store may redirect readers; of a web source alone.
    """
    options = spec.source.options
    settings = {
        "endpoint": spec.source.endpoint,
        "region": options.region,
        "pathStyle": None if options.path_style is None else str(options.path_style).lower(),
        AS_OF: options.as_of,
        "requesterPays": "true" if options.requester_pays else None,
        INCLUDE: "\n".join(spec.source.include) or None,
        WITHIN: "\n".join(within) or None,
        INDEX: options.index,
        FILES: "\n".join(options.files) or None,
        REVISION: options.revision,
        RUN_AS_USER: None if options.run_as_user is None else str(options.run_as_user),
        RUN_AS_GROUP: None if options.run_as_group is None else str(options.run_as_group),
        NAMESPACE: namespace if is_claim(spec.source.uri) else None,
        EXCLUDE: None if spec.source.exclude is None else "\n".join(spec.source.exclude),
    }
    return Source(
        uri=canonical_uri(spec.source.uri),
        options={key: value for key, value in settings.items() if value is not None},
        credentials=credentials,
        address=address,
        ca_bundle=ca_bundle,
        redirects=redirects if is_web(spec.source.uri) else (),
        proxy=proxy,
    )


def engine_path(*, source: Source) -> str:
    """The engine path of a source.

    The credentials take part, as a digest, so that Datasets with different keys never share a mount.
    """
    keys = source.credentials
    key_owner = f"owner {keys.owner}" if keys is not None and keys.owner else digest(source)
    seed = json.dumps([source.uri, sorted(source.options.items()), key_owner], sort_keys=True)
    return f"{names.ENGINE_DATASETS_ROOT}/{hashlib.sha256(seed.encode()).hexdigest()[:16]}"


def mark(source: Source) -> Mark:
    """What tells one source from another, without its secrets."""
    bundle = hashlib.sha256(source.ca_bundle.encode()).hexdigest() if source.ca_bundle else ""
    reached = " ".join((source.address, bundle, *source.redirects, source.proxy)).rstrip()
    return source.uri, tuple(sorted(source.options.items())), digest(source), reached


def digest(source: Source) -> str:
    """A digest of the credentials of a source; empty when it has none."""
    if source.credentials is None:
        return ""
    return hashlib.sha256("\0".join(source.credentials.secrets).encode()).hexdigest()
