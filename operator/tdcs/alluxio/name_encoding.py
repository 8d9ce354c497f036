"""Decodes names that Alluxio cannot hold, as `deploy/local/alluxio/names` encodes those of its sources.

Alluxio takes what follows `?` for a query, and a backslash for a slash; its FUSE client cannot open what has a
character beyond U+FFFF. Each of the two is encoded as the character 0xF000 above it, in Unicode's private area, and
each half of a surrogate pair as the one 0x800 above it; a name that has one of those characters itself has `ESCAPE`
before it.
"""

import re
from typing import Final

ESCAPE: Final = "\uf000"

_HALVES: Final = 0x800

_TO_DECODE: Final = re.compile(f"{ESCAPE}(.)|([\uf03f\uf05c])|([\ue000-\ue3ff][\ue400-\ue7ff])", re.DOTALL)


def for_source(encoded: str) -> str:
    """The name or path at the source of what has this name or path in Alluxio."""
    return _TO_DECODE.sub(_decoded, encoded)


def _decoded(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    if found[2]:
        return chr(ord(found[2]) - ord(ESCAPE))
    high, low = (ord(one) - _HALVES for one in found[3])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
