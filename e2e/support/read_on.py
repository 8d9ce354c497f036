"""Runs in a pod: reads the files of a dataset again and again, past the page cache, and compares them.

    python3 read_on.py EXPECTED DATA [ROUNDS [PAUSE]]

EXPECTED is a JSON file of paths and SHA-256 sums. Each round is a line of JSON: how many files were read, what failed,
the longest read in seconds, and the time. It ends when /tmp/end is there, or after so many rounds (0: never): with
status 1 when a read failed in one of them. Each thread pauses for so many seconds between two files.
"""

import errno
import hashlib
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 4
END = Path("/tmp/end")
WRONG = "wrong bytes"
AWAY = frozenset({errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ECONNABORTED})
"""Errors of data on other nodes: nobody can give it, its source has another version, its file system has ended."""


def read(path: str, digest: str) -> tuple[str, float]:
    """What is wrong with a file, empty when it is right, and how long its read took."""
    begin = time.monotonic()
    try:
        # What the kernel remembers of it is dropped first: the bytes shall come from where they are.
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            digest_read = hashlib.sha256(file.readall()).hexdigest()
    except OSError as error:
        return f"{path}: {error}", time.monotonic() - begin
    return ("" if digest_read == digest else f"{path}: {WRONG}"), time.monotonic() - begin


def excuse(text: str) -> int:
    """How much may excuse what is wrong with a file: nothing for wrong bytes, the most for data that is away."""
    if WRONG in text:
        return 0
    return 2 if any(f"[Errno {number}]" in text for number in AWAY) else 1


def main(expected: str, folder: str, rounds: str = "0", pause: str = "0") -> int:
    """Read until the end is asked for; the exit status."""
    sums: dict[str, str] = json.loads(Path(expected).read_text())
    names = sorted(sums)
    order = random.Random(1)  # noqa: S311
    done, bad = 0, False

    def paused(name: str) -> tuple[str, float]:
        time.sleep(float(pause))
        return read(f"{folder}/{name}", sums[name])

    with ThreadPoolExecutor(THREADS) as threads:
        while not END.exists() and not 0 < int(rounds) <= done:
            order.shuffle(names)
            reads = list(threads.map(paused, names))
            # The worst first: only so many are said.
            failed = sorted((text for text, _ in reads if text), key=excuse)
            done, bad = done + 1, bad or bool(failed)
            longest = max(seconds for _, seconds in reads)
            line = {"files": len(reads), "failed": failed[:20], "longest": round(longest, 2)}
            print(json.dumps({**line, "at": round(time.time(), 1)}), flush=True)
    return int(bad and done == int(rounds))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
