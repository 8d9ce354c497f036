"""The encoding of names that Alluxio cannot hold, the same that `deploy/local/alluxio/names` applies to its sources.

Alluxio takes what follows `?` for a query, and a backslash for a slash; its FUSE client cannot open what has a
character beyond U+FFFF. Each of the two is encoded as the character 0xF000 above it, in Unicode's private area, and
each half of a surrogate pair as the one 0x800 above it; a name that has one of those characters itself has `ESCAPE`
before it.
"""

import re
from typing import Final

ESCAPE: Final = "\uf000"

_UNFIT: Final = r"?\\"
_OURS: Final = f"{ESCAPE}\uf03f\uf05c\ue000-\ue7ff"
_HALVES: Final = 0x800

_TO_ENCODE: Final = re.compile(f"([{_UNFIT}])|([\U00010000-\U0010ffff])|[{_OURS}]")
_TO_DECODE: Final = re.compile(f"{ESCAPE}(.)|([\uf03f\uf05c])|([\ue000-\ue3ff][\ue400-\ue7ff])", re.DOTALL)


def for_alluxio(name: str) -> str:
    """The name or path in Alluxio of what has this name or path at the source."""
    return _TO_ENCODE.sub(_encoded, name)


def for_source(encoded: str) -> str:
    """The name or path at the source of what has this name or path in Alluxio."""
    return _TO_DECODE.sub(_decoded, encoded)


def _encoded(found: re.Match[str]) -> str:
    if found[1]:
        return chr(ord(ESCAPE) + ord(found[1]))
    if found[2]:
        return "".join(chr(unit + _HALVES) for unit in _units(found[2]))
    return ESCAPE + found[0]


def _decoded(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    if found[2]:
        return chr(ord(found[2]) - ord(ESCAPE))
    high, low = (ord(one) - _HALVES for one in found[3])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _units(character: str) -> tuple[int, int]:
    """The surrogate pair of a character beyond U+FFFF."""
    over = ord(character) - 0x10000
    return 0xD800 + (over >> 10), 0xDC00 + (over & 0x3FF)
