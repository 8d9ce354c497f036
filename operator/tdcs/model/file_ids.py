"""What a source file is, as an id of 16 bytes: the same in every version in which the file did not change.

The id is a keyed BLAKE2b-128 of the file's length, tag and path. The key is made of the mount's path and its source's
URI, so two sources never share an id: tenants choose paths and tags, and could look for two files with one id if the
function had no key. Whoever has the manifest can work an id out again.

A file is cut into extents of `EXTENT_BYTES`, the last one shorter. An extent is known by (id, number), the first one is
number 0; a file of up to `EXTENT_BYTES` is one extent, an empty one has none.

A file without a tag is known by path and length alone: its id says nothing of its content.
"""

import hashlib
import re
from typing import Final

ID_BYTES: Final = 16

EXTENT_BYTES: Final = 16 << 20
"""The unit in which files are transferred: large enough that a request costs little next to it (stores recommend 8 to
16 MiB), small enough that several lanes and peers share a file."""

LONGEST_TAG: Final = 128
"""Bytes of a tag. What is longer stands in a manifest as its hash: one tag makes the column as wide for all files."""

AS_OF: Final = "asOf"
"""The option of a source that is seen as it was at a time."""

_VERSION: Final = '"v='
_PERSON: Final = b"tdcs file id"
_LONG: Final = "long-etag:"
_CONTENT: Final = "sha256:"
_HASH: Final = re.compile(r'"[0-9A-Fa-f]{16,}(-[0-9]+)?"')
"""An ETag that is a hash, which some gateways spell in the other case."""


class FileIds:
    """Gives the ids of the files of one mount.

    Args:
        mount: path of the mount, which stands for the source, its options and its keys.
        source: URI of the source.
    """

    def __init__(self, *, mount: str, source: str) -> None:
        identity = hashlib.blake2b(digest_size=32, person=_PERSON)
        for text in (mount.encode(), source.encode("utf-8", "surrogateescape")):
            identity.update(len(text).to_bytes(4, "little"))
            identity.update(text)
        # A copy of a keyed state takes a third of the time of a new one.
        self._keyed: Final = hashlib.blake2b(digest_size=ID_BYTES, key=identity.digest(), person=_PERSON)

    def of(self, *, path: bytes, length: int, tag: bytes) -> bytes:
        """The id of a file.

        Args:
            path: relative to the mount, as the source's bytes.
            length: bytes.
            tag: as the manifest has it, see `known_tag`.
        """
        state = self._keyed.copy()
        # Length and the tag's length come first, in as many bytes each: no two files give the same text.
        state.update(length.to_bytes(8, "little") + len(tag).to_bytes(2, "little") + tag + path)
        return state.digest()


def content_tag(sha256: str) -> bytes:
    """The tag of a file of which a list says the hash of its content, and nothing else is asked."""
    return f"{_CONTENT}{sha256.lower()}".encode()


def content_hash(tag: str) -> str:
    """The SHA-256 that a file's content has by its tag; empty where the tag says none."""
    return tag.removeprefix(_CONTENT) if tag.startswith(_CONTENT) else ""


def version_tag(version: str) -> str:
    """The tag of an object that is one of its versions for good. Raises ValueError for an id that is too long."""
    tag = f'{_VERSION}{version}"'
    if len(tag.encode("utf-8", "replace")) > LONGEST_TAG:
        raise ValueError("the id of a version is too long")
    return tag


def version_in(tag: str) -> str:
    """The version that a tag names; empty where it names none."""
    return tag.removeprefix(_VERSION).removesuffix('"') if tag.startswith(_VERSION) else ""


def known_tag(tag: str) -> str:
    """A tag as manifests have it: itself, or a hash of it where it is longer than `LONGEST_TAG` bytes.

    A store's answer is compared in this form. One that is cut off would be the same for different content, and never
    the same as what the store says.
    """
    content = tag.encode("utf-8", "replace")
    if len(content) <= LONGEST_TAG:
        return tag
    return f"{_LONG}{hashlib.blake2b(content, digest_size=32).hexdigest()}"


def is_long(tag: str) -> bool:
    """Whether a manifest's tag is the hash of a longer one, which no request can name."""
    return tag.startswith(_LONG)


def plain_etag(etag: str) -> str:
    """A store's ETag as listings have it in manifests: in quotes, and not marked as weak.

    Stores, and what stands before them, leave the quotes out in one answer and not in another, or mark an ETag as weak
    on its way (RFC 9110, 8.8.3): none of that makes it another file.
    """
    plain = etag.strip()
    if plain[:2] in ("W/", "w/"):
        plain = plain[2:]
    plain = plain.strip('"')
    return f'"{plain}"' if plain else ""


def is_etag(tag: str) -> bool:
    """Whether a manifest's tag is an ETag, or the hash of one: a store's answers have it, too."""
    return tag.startswith('"') or is_long(tag)


def same_etag(listed: str, answered: str) -> bool:
    """Whether an answer's ETag is the one that a manifest has of the file."""
    tag = known_tag(plain_etag(answered))
    if tag == listed:
        return True
    return bool(_HASH.fullmatch(tag)) and tag.lower() == listed.lower()
