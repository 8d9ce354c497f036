"""The loader of tdcs-train beside PyTorch's DataLoader on JPEG files of 100 KB, with as many decoders.

    python -m bench.training.loader

Runs inside the root of the image train-pytorch, from a local folder. Both use the same decoder and give batches of
bytes; each is run in turn, five times after one that does not count. With `--tensorflow PYTHON`, an interpreter that
has TensorFlow, tf.data reads the same files afterwards, with its own decoder. Writes results/loader.jsonl.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FILES, BATCH, DECODERS, ROUNDS = 480, 32, 2, 5
SHAPE = (224, 224, 3)
QUALITY = 95


def make(folder: Path, *, files: int = FILES) -> int:
    """Files of about 100 KB: smooth pictures with noise; the mean size."""
    import numpy
    from PIL import Image

    chooser = numpy.random.default_rng(0)
    for number in range(files):
        place = folder / f"class{number % 4}"
        place.mkdir(exist_ok=True)
        coarse = Image.fromarray(chooser.integers(0, 255, (12, 16, 3), dtype=numpy.uint8)).resize((500, 375))
        pixels = numpy.asarray(coarse).astype(numpy.int16) + chooser.integers(-14, 15, (375, 500, 3))
        image = Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))
        path = place / f"{number:04}.jpg"
        image.save(path, quality=QUALITY)
    return mean_size(folder)


def mean_size(folder: Path) -> int:
    """Bytes of a file."""
    return round(statistics.mean(path.stat().st_size for path in folder.glob("*/*.jpg")))


def inside(folder: Path, *, size: int) -> None:
    """The measurement itself on the files of a folder, where PyTorch is."""
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    from tdcs_train.loader import Batch, Loader, Sample, decode_image, find_images

    class Files(Dataset[tuple[torch.Tensor, int]]):
        def __init__(self, samples: list[Sample]) -> None:
            self.samples = samples

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
            sample = self.samples[number]
            pixels = numpy.empty(SHAPE, dtype=numpy.uint8)
            content = Path(sample.path).read_bytes()
            decode_image(memoryview(content), pixels, path=sample.path)
            return torch.from_numpy(pixels), sample.label

    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        samples, _ = find_images(folder)
        # made before any thread: its decoders are forked
        tdcs_loader = Loader(samples, batch=BATCH, shape=SHAPE, decoders=DECODERS)
        stack.callback(tdcs_loader.close)
        torch_loader = DataLoader(
            Files(samples), batch_size=BATCH, shuffle=True, num_workers=DECODERS, drop_last=True,
            persistent_workers=True,
        )  # fmt: skip
        rates: dict[str, list[float]] = {"tdcs_train.loader": [], "torch DataLoader": []}
        for turn in range(ROUNDS + 1):
            # Made when its turn has come: DataLoader reads ahead as soon as it has an iterator.
            for name, loader in (("tdcs_train.loader", tdcs_loader), ("torch DataLoader", torch_loader)):
                begin, count = time.monotonic(), 0
                for batch in tdcs_loader.epoch(turn) if loader is tdcs_loader else torch_loader:
                    count += len(batch.images if isinstance(batch, Batch) else batch[0])
                if turn:
                    rates[name].append(count / (time.monotonic() - begin))
        medians = {name: statistics.median(per_round) for name, per_round in rates.items()}
        ratio = medians["tdcs_train.loader"] / medians["torch DataLoader"]
        rows: list[dict[str, Any]] = [
            {
                "loader": name,
                "decodes in": "processes",
                "images a second (median)": round(medians[name], 1),
                "lowest": round(min(per_round), 1),
                "highest": round(max(per_round), 1),
                "bytes a file": size,
                "decoders": DECODERS,
            }
            for name, per_round in rates.items()
        ]
        rows[0]["over DataLoader"] = round(ratio, 3)
        report = tdcs_loader.report
        assert report is not None
        rows[0]["bottleneck"] = report.bottleneck
        for row in rows:
            print(json.dumps(row), flush=True)


def with_tensorflow(folder: Path) -> None:
    """The same files read by tf.data, where TensorFlow is."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    files = sorted(str(path) for path in folder.glob("*/*.jpg"))

    def decode(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=SHAPE[2])
        return tf.cast(tf.image.resize(image, SHAPE[:2]), tf.uint8)

    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), reshuffle_each_iteration=True)
    data = data.map(decode, num_parallel_calls=DECODERS).batch(BATCH, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = DECODERS
    rates: list[float] = []
    for turn in range(ROUNDS + 1):
        begin, count = time.monotonic(), 0
        for batch in data.with_options(options):
            count += len(batch)
        if turn:
            rates.append(count / (time.monotonic() - begin))
    row = {
        "loader": "tf.data",
        "decodes in": "threads",
        "images a second (median)": round(statistics.median(rates), 1),
        "lowest": round(min(rates), 1),
        "highest": round(max(rates), 1),
        "bytes a file": mean_size(folder),
        "decoders": DECODERS,
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    """Run it inside the root, and keep what it prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--files", type=Path, help="where PyTorch is: only measure with the files of this folder, and print"
    )
    parser.add_argument("--with-tensorflow", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tensorflow", help="a Python with TensorFlow, to measure tf.data, too")
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside, size=make(arguments.inside))
        return
    if arguments.files:
        inside(arguments.files, size=mean_size(arguments.files))
        return
    if arguments.with_tensorflow:
        with_tensorflow(arguments.with_tensorflow)
        return
    from bench.training.records import keep

    with tempfile.TemporaryDirectory() as scratch:
        words = [sys.executable, "-m", "tdcs_local", "torch", f"--results={scratch}"]
        words += [
            "--environment=OMP_NUM_THREADS=1",
            "--environment=PYTHONPATH=/checkout/training:/checkout",
            "--",
        ]
        words += ["python3", "-m", "bench.training.loader", "--inside", "/results"]
        commands = [(words, {**os.environ, "PYTHONPATH": "deploy/local"})]
        if arguments.tensorflow:
            more = [arguments.tensorflow, "-m", "bench.training.loader", "--with-tensorflow", scratch]
            commands.append((more, {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}))
        printed = ""
        for command, variables in commands:
            process = subprocess.run(command, env=variables, capture_output=True, text=True)
            if process.returncode:
                sys.exit(f"the benchmark failed: {process.stderr[-3000:]}")
            printed += process.stdout
    keep("loader", [json.loads(line) for line in printed.splitlines() if line.startswith("{")])


if __name__ == "__main__":
    main()
