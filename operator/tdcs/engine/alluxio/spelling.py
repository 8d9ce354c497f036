"""How Alluxio spells names that it cannot hold: as `deploy/local/alluxio/names` makes the sources tell them.

Alluxio takes what follows `?` for a query, and a backslash for a slash; its FUSE client cannot open what has a
character beyond U+FFFF. Each of the two is spelled as the character 0xF000 above it, in Unicode's private area, and
each half of a surrogate pair as the one 0x800 above it; a name that has one of those characters itself has `ESCAPE`
before it.
"""

import re
from typing import Final

ESCAPE: Final = "\uf000"

_UNFIT: Final = r"?\\"
_OURS: Final = f"{ESCAPE}\uf03f\uf05c\ue000-\ue7ff"
_HALVES: Final = 0x800

_TO_SPELL: Final = re.compile(f"([{_UNFIT}])|([\U00010000-\U0010ffff])|[{_OURS}]")
_TO_READ: Final = re.compile(f"{ESCAPE}(.)|([\uf03f\uf05c])|([\ue000-\ue3ff][\ue400-\ue7ff])", re.DOTALL)


def for_alluxio(name: str) -> str:
    """How Alluxio knows what the source calls by this name or path."""
    return _TO_SPELL.sub(_spelled, name)


def for_source(spelled: str) -> str:
    """How the source calls what Alluxio knows by this name or path."""
    return _TO_READ.sub(_read, spelled)


def _spelled(found: re.Match[str]) -> str:
    if found[1]:
        return chr(ord(ESCAPE) + ord(found[1]))
    if found[2]:
        return "".join(chr(unit + _HALVES) for unit in _units(found[2]))
    return ESCAPE + found[0]


def _read(found: re.Match[str]) -> str:
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
