"""From a `Source` to the properties of an Alluxio mount, and from Alluxio's complaints about a source to
plain sentences.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping

from tdcs.alluxio.mount_uri import source_uri
from tdcs.api.source_uri import (
    REGION,
    canonical_endpoint,
    is_folder,
    is_native_only,
    parse_source_uri,
    uses_path_style,
)
from tdcs.model.cache_engine import Credentials, Source, SourceError
from tdcs.model.file_blocks import BLOCK_SIZE
from tdcs.model.file_selection import EXCLUDE, INCLUDE, WITHIN
from tdcs.model.printable_text import without_rpc_words
from tdcs.model.source_paths import canonical_uri, store_of

DIGEST_PROPERTY = "tdcs.source.digest"
"""A property of our own on each mount. Alluxio shows credentials as asterisks, so this tells whether they are
still the same.
"""

_STORE_PROPERTY = "tdcs.source.store"
"""Another one, which stays the same whatever keys and address the store is asked with."""

_S3_OPTIONS = ("endpoint", "pathStyle", "region", "requesterPays")

NO_KEYS_MARK = "tdcs-without-keys"
"""In place of a key pair: `io.tdcs.names.StoreClient` signs no request then. It is no key of any store; without a pair
Alluxio would read with the credentials of its node."""


def mount_properties(source: Source, *, block_size: int = BLOCK_SIZE) -> dict[str, str]:
    """Alluxio's mount properties for a source, with `DIGEST_PROPERTY` over all of Alluxio's own.

    Args:
        block_size: Of the files that are listed from now on; those that are known keep theirs.

    Raises:
        SourceError: An option that is not known, or a value that cannot be right.
    """
    uri = canonical_uri(source.uri)
    if is_native_only(uri):
        raise SourceError(
            attempted=f"mount {uri}",
            reason=f"Alluxio cannot mount {uri.partition('://')[0]}:// here",
            remedy="Use a CacheCluster with engine Native",
        )
    known = () if is_folder(uri) else _S3_OPTIONS
    unknown = sorted(set(source.options) - {*known, INCLUDE, EXCLUDE, WITHIN})
    if unknown:
        raise SourceError(
            attempted=f"read the options of {uri}",
            reason=f"{', '.join(unknown)} is not an option of this kind of source",
            remedy=f"Use {', '.join(known)}" if known else "Leave spec.source.options out",
        )
    properties = {} if is_folder(uri) else _s3_properties(source=source, uri=uri)
    properties["alluxio.user.block.size.bytes.default"] = f"{block_size}B"
    if source.credentials is not None:
        pays = source.options.get("requesterPays") == "true"
        properties |= _keys(source.credentials, requester_pays=pays, ca_bundle=source.ca_bundle)
    text = json.dumps([uri, sorted(properties.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return properties | {DIGEST_PROPERTY: digest, _STORE_PROPERTY: store_of(source.options)}


def _keys(keys: Credentials, *, requester_pays: bool, ca_bundle: str) -> dict[str, str]:
    """The key pair of a mount. What Alluxio knows nothing of stands behind the secret, on lines of their own: a session
    token, who pays, and authorities. It shows that value to nobody, and `io.tdcs.names.StoreClient` takes it apart."""
    lines = [
        keys.secret_access_key or NO_KEYS_MARK,
        keys.session_token,
        "requester-pays" if requester_pays else "",
        base64.b64encode(ca_bundle.encode()).decode(),
    ]
    return {
        "s3a.accessKeyId": keys.access_key_id or NO_KEYS_MARK,
        "s3a.secretKey": "\n".join(lines).rstrip("\n"),
    }


def _s3_properties(*, source: Source, uri: str) -> dict[str, str]:
    endpoint = source.options.get("endpoint", "")
    try:
        if endpoint:
            canonical_endpoint(endpoint)
    except ValueError as error:
        raise SourceError(
            attempted=f"read the options of {uri}",
            reason=f"endpoint {endpoint!r} is no URL such as http://store.example:9000: {error}",
            remedy="Correct spec.source.options.endpoint",
        ) from error
    if not REGION.fullmatch(source.options.get("region", "us-east-1")):
        raise SourceError(
            attempted=f"read the options of {uri}",
            reason=f"region {source.options['region']!r} is no region such as us-east-1",
            remedy="Correct spec.source.options.region",
        )
    for option in ("pathStyle", "requesterPays"):
        if source.options.get(option, "true") not in {"true", "false"}:
            raise SourceError(
                attempted=f"read the options of {uri}",
                reason=f"{option} is {source.options[option]!r}",
                remedy=f'Set spec.source.options.{option} to "true" or "false"',
            )
    path_style = uses_path_style(source.options, bucket=parse_source_uri(uri).bucket)
    properties = {
        "alluxio.underfs.s3.disable.dns.buckets": str(path_style).lower(),
        # Asking for the bucket's ACL needs a permission that readers seldom have, and its answer is not used.
        "alluxio.underfs.s3.inherit.acl": "false",
    }
    if endpoint:
        properties["alluxio.underfs.s3.endpoint"] = source.reached_options["endpoint"]
    if endpoint or "region" in source.options:
        properties["alluxio.underfs.s3.endpoint.region"] = source.options.get("region", "us-east-1")
    return properties


def mounted_digest(properties: Mapping[str, str]) -> str:
    """What `mount_properties` wrote into a mount, or "" for one that somebody else made."""
    return properties.get(DIGEST_PROPERTY, "")


def mounted_store(properties: Mapping[str, str]) -> str:
    """What tells the store of a mount from others, or "" for one that somebody else made."""
    return properties.get(_STORE_PROPERTY, "")


# Alluxio begins the text of a failed mount with the whole request, credentials included.
_ECHO = re.compile(r"\Amount command: .*?\nshared: (?:true|false)\n(?:remount: \w+\n)?}\n", re.DOTALL)
_NOISE = re.compile(r"Acquired mount ID for the new mount point: \d+\n|alluxio\.underfs\.s3a\.\w+Exception: ")
# Java's object addresses and the ids of requests: another one each time, so that equal failures would look different.
_CHANGING = re.compile(r"@[0-9a-f]{5,16}\b|;? ?(?:S3 Extended )?Request ID: [^;,)\]]+")
_AMAZON = re.compile(r"[\w.-]+\.amazonaws\.com(?:\.cn)?\b")
_LONGEST = 400


def plain_reason(text: str) -> str:
    """Alluxio's own words without the repeated request, class names and what differs each time; one line."""
    line = _one_line(text)
    return line if len(line) <= _LONGEST else line[:_LONGEST].rstrip() + " …"


def _one_line(text: str) -> str:
    text = source_uri(without_rpc_words(_CHANGING.sub("", _NOISE.sub("", _ECHO.sub("", text)))))
    return (
        "; ".join(line.strip().rstrip(".") for line in text.splitlines() if line.strip()) or "no reason given"
    )


_KEYS_REFUSED = (
    r"SignatureDoesNotMatch|InvalidAccessKeyId|UserNotFound|(Invalid|Expired)Token|403|Forbidden|"
    r"Access ?Denied"
)

_REMEDIES = (
    (
        r"redirects to another host, .*, which is not followed",
        "the store sends its readers to another host, and nothing of the cache goes there",
        "Name the address at which the store itself answers in spec.source.options.endpoint",
    ),
    (
        r"Unable to load (AWS )?credentials",
        "the source asks for credentials, and none were given",
        "Name a Secret with accessKeyId and secretAccessKey in spec.source.secretRef",
    ),
    (
        r"NoSuchBucket",
        "there is no such bucket",
        "Check the bucket's name in spec.source.uri and the endpoint",
    ),
    (
        r"RequestTimeTooSkewed",
        "the clock of the cache's node and the source's differ by too much",
        "Have the node's clock set, as NTP does",
    ),
    (
        r"PKIX path|certification path|match any of the subject alternative names|SSLHandshake|CertificateException",
        "the endpoint shows no certificate of its name that the cache trusts",
        "Check the host in spec.source.options.endpoint; spec.sources[].caBundle of the CacheCluster names authorities",
    ),
    (
        _KEYS_REFUSED,
        "the source refused the credentials",
        "Check accessKeyId and secretAccessKey in the Secret of spec.source.secretRef",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|Moved Permanently",
        "the bucket is in another region",
        "Set spec.source.options.region to the bucket's region",
    ),
    (
        r"Unable to execute HTTP request|UnknownHost|Connection refused|timed out|Connect to ",
        "the endpoint does not answer",
        "Check spec.source.options.endpoint, and that the cache's pods can reach it",
    ),
    (
        r"does not exist|NoSuchKey",
        "there is no such folder",
        "Check the path in spec.source.uri; it must hold at least one file",
    ),
    (
        r"404",
        "there is no such bucket or folder, or what answers at the endpoint is no object store",
        "Check the path in spec.source.uri, and host and port of spec.source.options.endpoint",
    ),
    (
        r"No Under File System Factory",
        "the cache cannot read this kind of source",
        "Use an s3:// or file:/// URI",
    ),
)


def explain(text: str) -> tuple[str, str]:
    """Reason and remedy for a complaint about a source; the complaint itself stays in the reason."""
    plain, whole = plain_reason(text), _one_line(text)
    for pattern, reason, remedy in _REMEDIES:
        if re.search(pattern, whole):
            return f"{reason} ({plain})", _remedy(remedy, whole)
    return plain, "Check spec.source, and the log of the cache's master"


def _remedy(remedy: str, text: str) -> str:
    """The remedy for a complaint. One about Amazon's own host, which no option need have named, says why that is."""
    host = _AMAZON.search(text)
    if host is None or "endpoint" not in remedy:
        return remedy
    return (
        f"Without spec.source.options.endpoint Amazon is asked ({host[0]}): set it for another store, or "
        "check the bucket's name and that the cache's pods can reach Amazon"
    )


_KEYS_ARE_WRONG = re.compile(
    r"SignatureDoesNotMatch|InvalidAccessKeyId|UserNotFound|(Invalid|Expired)Token|"
    r"(?i:error code:? ?AccessDenied)|(?i:status code:? ?403\b)|403 Forbidden"
)
_OTHER_CAUSE = re.compile(
    r"RequestTimeTooSkewed|Unable to execute HTTP request|UnknownHost|Connection refused|timed out|Connect to "
)


def refuses_keys(text: str) -> bool:
    """Whether a store itself has said that it refuses the credentials.

    Stricter than `explain`, which may guess: what is cached is dropped after a while. A number 403 in a name or a port,
    a store that is away and a clock that is wrong are no refusal.
    """
    whole = _one_line(text)
    return bool(_KEYS_ARE_WRONG.search(whole)) and not _OTHER_CAUSE.search(whole)
