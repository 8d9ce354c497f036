"""A training job as its storage sees it: JPEG files in batches, in another order every epoch, and a GPU that sleeps.

    read_batches.py --data /data --batch 12 --batch-seconds 0.1 --epochs 3 --readers 8 --seed 1 --begin 1767225600

The files are read ahead by several readers, as data loaders do; at most four batches wait. Names are listed before
the time to begin, which is in seconds since 1970; the clock starts when the first file is asked for, and stops after
the last batch. Every file must begin and end as a JPEG file does. Prints a line of JSON:

    {"images": 720, "bytes": 79200000, "began": 1767225600.0, "ended": 1767225607.5, "epochs": [5.1, 1.2, 1.2]}
"""

import argparse
import collections
import itertools
import json
import random
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

AHEAD = 4


def size_of(path: Path) -> int:
    """The bytes of a JPEG file that was read whole."""
    content = path.read_bytes()
    if content[:2] != b"\xff\xd8" or content[-2:] != b"\xff\xd9":
        sys.exit(f"{path} is no whole JPEG file: {len(content)} bytes")
    return len(content)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--batch-seconds", type=float, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--readers", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--begin", type=float, default=0.0)
    options = parser.parse_args()
    paths = sorted(options.data.rglob("*.jpg"))
    if not paths:
        sys.exit(f"there is no JPEG file in {options.data}")
    drawn = random.Random(options.seed)  # noqa: S311 - the order of reading
    orders = [drawn.sample(paths, len(paths)) for _ in range(options.epochs)]
    batches = [
        order[first : first + options.batch]
        for order in orders
        for first in range(0, len(paths), options.batch)
    ]
    waiting: collections.deque[list[Future[int]]] = collections.deque()
    ends, size, of_epoch = [], 0, len(batches) // options.epochs
    time.sleep(max(0.0, options.begin - time.time()))
    with ThreadPoolExecutor(max_workers=options.readers) as pool:
        began = time.time()
        remaining = iter(batches)
        for batch in itertools.islice(remaining, AHEAD):
            waiting.append([pool.submit(size_of, path) for path in batch])
        done = 0
        while waiting:
            size += sum(read.result() for read in waiting.popleft())
            if (following := next(remaining, None)) is not None:
                waiting.append([pool.submit(size_of, path) for path in following])
            time.sleep(options.batch_seconds)  # the GPU
            done += 1
            if done % of_epoch == 0:
                ends.append(time.time())
    starts = [began, *ends]
    epochs = [round(end - start, 3) for start, end in itertools.pairwise(starts)]
    result = {
        "images": sum(map(len, batches)),
        "bytes": size,
        "began": began,
        "ended": ends[-1],
        "epochs": epochs,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
