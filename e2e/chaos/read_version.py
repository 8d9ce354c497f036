"""Runs in a pod: writes down which bytes the files of a dataset have, again and again, past the page cache.

    python3 read_version.py DATA ROUNDS PAUSE

Each round is a line of JSON: the SHA-256 sum of every file by its path, null where it could not be read. A round in
which the folders could not be listed has no line. There are so many seconds between two rounds. Hidden folders are not
the dataset's.
"""

import hashlib
import json
import os
import sys
import time


def digest(path: str) -> str | None:
    """The sum of a file's bytes; None when they cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return hashlib.sha256(file.readall()).hexdigest()
    except OSError:
        return None


def files(folder: str) -> list[str]:
    """The paths of all files; raises OSError when a folder cannot be listed."""

    def fail(error: OSError) -> None:
        raise error

    paths = list[str]()
    for where, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.join(where, name) for name in names]
    return sorted(paths)


def main(folder: str, rounds: str, pause: str) -> None:
    """Read so many rounds."""
    for _ in range(int(rounds)):
        try:
            digests = {os.path.relpath(path, folder): digest(path) for path in files(folder)}
            print(json.dumps(digests), flush=True)
        except OSError:
            pass
        time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
