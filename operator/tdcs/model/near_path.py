"""Finds the path of a listing that a mistyped one may mean."""

import difflib
from typing import Final, Protocol

from tdcs.model.manifest_format import decoded, encoded

PATHS_NAMED: Final = 3
"""So many paths that name nothing are compared and named."""

NAMES_COMPARED: Final = 500
"""So many folders, and so many files, of one folder are compared: 0.05 s of usual names, 0.2 s of adverse ones, however
large the listing is."""

LONGEST_NAME: Final = 255
"""Longer names are not compared: the time grows with the square of the length."""


class Listing(Protocol):
    """The folders and files of a listing, by paths without a slash at their ends."""

    def folder_at(self, path: bytes) -> int | None: ...

    def file_at(self, path: bytes) -> int | None: ...

    def names_in(self, folder: int, *, most: int) -> list[bytes]: ...


def near_path(listing: Listing, path: str) -> str:
    """The path that is most like one that does not exist; empty where none is.

    Each part of the path is compared with the names in the folder that the parts before it lead to.
    """
    existing: list[str] = []
    for part in path.strip("/").split("/"):
        further = "/".join([*existing, part])
        if _exists(listing, further):
            existing.append(part)
            continue
        folder = listing.folder_at(encoded("/".join(existing)))
        if folder is None or len(part) > LONGEST_NAME:
            break
        names = [decoded(name) for name in listing.names_in(folder, most=NAMES_COMPARED)]
        by_lower_case = {name.lower(): name for name in names if len(name) <= LONGEST_NAME}
        nearest = difflib.get_close_matches(part.lower(), by_lower_case, n=1)
        if not nearest:
            return ""
        existing.append(by_lower_case[nearest[0]])
    return "/".join(existing)


def _exists(listing: Listing, path: str) -> bool:
    raw = encoded(path)
    return listing.folder_at(raw) is not None or listing.file_at(raw) is not None
