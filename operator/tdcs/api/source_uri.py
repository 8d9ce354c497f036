"""The one canonical form of a source's URI, and what a URI may not be. Called before any check of a source.

An engine may read a path more generously than a check does: Alluxio turns backslashes into slashes, drops tabs and
resolves dots *after* its own checks, and a store's client may decode percent signs. So everything that could lead
elsewhere in any of these readings is refused.
"""

import re
import unicodedata
from typing import Final
from urllib.parse import unquote

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9]*)://(?P<bucket>[^/]*)(?P<path>.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DOTS: Final = frozenset({".", ".."})


def canonical_source_uri(uri: str) -> str:
    """The URI without needless slashes, its scheme in lower case: two spellings of one source become equal.

    Raises:
        ValueError: It is no plain `s3://BUCKET[/PREFIX]` or `file:///FOLDER`; the text says what is wrong with it.
    """
    found = _URI.fullmatch(uri)
    scheme = found["scheme"].lower() if found else ""
    if found is None or scheme not in {"s3", "file"} or (scheme == "s3" and not found["bucket"]):
        raise ValueError("it is neither s3://BUCKET[/PREFIX] nor file:///FOLDER")
    if _has_control(uri):
        raise ValueError("it holds a control character")
    if "\\" in uri:
        raise ValueError("it holds a backslash, which a cache reads as a slash")
    if "?" in uri or "#" in uri:
        raise ValueError("it holds '?' or '#', which begin a query or a fragment")
    pieces = [piece for piece in found["path"].split("/") if piece]
    for piece in pieces:
        _check_piece(piece)
    bucket, path = found["bucket"], "/".join(pieces)
    if scheme == "file":
        if bucket or not path:
            raise ValueError("a folder is absolute: file:///FOLDER, with three slashes")
        return f"file:///{path}"
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"{bucket!r} is no bucket's name: 3 to 63 lower-case letters, digits, dots and dashes"
        )
    return f"s3://{bucket}/{path}".rstrip("/")


def _check_piece(piece: str) -> None:
    """Refuse a piece of a path that is, or may be decoded to, a step to another folder."""
    decoded = unquote(piece)
    if piece.strip() in _DOTS or decoded.strip() in _DOTS:
        raise ValueError(f"its piece {piece!r} leads to another folder")
    if decoded != piece and (any(mark in decoded for mark in "/\\") or _has_control(decoded)):
        raise ValueError(f"its piece {piece!r} stands for a slash, a backslash or a control character")


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" for character in text)
