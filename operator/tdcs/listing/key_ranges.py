"""Into which ranges of keys a large listing is split, so that a store gives several pages at a time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LANES: Final = 8
"""Ranges that are listed at a time: a store answers a page in some 0.1 s, whatever else it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Keys behind `after`, up to and with `until`; None: to the end."""

    after: bytes = b""
    until: bytes | None = None

    def has_passed(self, key: bytes) -> bool:
        return self.until is not None and key > self.until


def split(prefixes: Sequence[bytes], *, behind: bytes, lanes: int = LANES) -> list[KeyRange]:
    """Ranges of all keys behind the last one that is known, the first of which goes on where that is.

    Args:
        prefixes: of keys, in any order, and each one that a request can name: how many keys each has is not known.
        behind: the last key that is known.
        lanes: so many ranges at most.
    """
    borders = sorted({prefix for prefix in prefixes if prefix > behind})
    count = min(lanes - 1, len(borders))
    chosen = [borders[len(borders) * number // (count + 1)] for number in range(1, count + 1)]
    chosen = sorted(set(chosen))
    return [
        KeyRange(after=after, until=until)
        for after, until in zip([behind, *chosen], [*chosen, None], strict=True)
    ]
