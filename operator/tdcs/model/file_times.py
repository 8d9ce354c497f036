"""What times the files of a version have: the same on every node, and for as long as they do not change."""

from typing import Final

UNKNOWN_TIME: Final = 315_532_800
"""Of folders, and of files of which the source says no time, as most of a bucket: the first second of 1980, the
earliest that every format of archives can hold."""

TIME_TAG: Final = "mtime-ms:"
"""What the tag of a file begins with of which the source says a time."""


def time_of(tag: str) -> int:
    """When a file with this tag changed last at its source, in whole seconds since 1970."""
    milliseconds = tag.removeprefix(TIME_TAG)
    return int(milliseconds) // 1000 if milliseconds != tag and milliseconds.isdecimal() else UNKNOWN_TIME
