"""Which version of those on offer an update takes."""

import re
from collections.abc import Iterable

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(?:[.+](?:Final|incompatible))?")


def release(version: str) -> tuple[int, ...] | None:
    """The numbers of a release: `v1.34.4` is (1, 34, 4). None of a pre-release or of a commit."""
    match = _RELEASE.fullmatch(version)
    return tuple(map(int, match[1].split("."))) if match else None


def newest(offered: Iterable[str], *, like: str, parts: int = 0) -> str:
    """The newest release on offer whose first numbers are those of `like`; `like` itself if none is newer.

    `parts` says how many numbers must agree: 2 takes patches alone, 1 takes minor versions, 0 takes all.
    """
    present = release(like)
    if present is None:
        return like
    best, best_numbers = like, present
    for version in offered:
        numbers = release(version)
        if numbers is not None and numbers[:parts] == present[:parts] and numbers > best_numbers:
            best, best_numbers = version, numbers
    return best
