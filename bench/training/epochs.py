"""Epochs of an input pipeline over the same images in several folders, with nothing in the kernel's caches.

Runs where the framework is: `python -m bench.training.epochs torch|tensorflow ROUNDS WAY=FOLDER...`. Images are decoded
to 224 x 224 by two workers (PyTorch's DataLoader) or threads (tf.data), shuffled anew in each epoch, and dropped. Ways
take turns; prints one line of JSON with the images a second of each. Needs root, which alone can empty the caches.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH, DECODERS, SIDE = 32, 2, 224
Epoch = Callable[[], int]
"""Runs one epoch; how many images came."""


def torch_epoch(folder: Path) -> Epoch:
    """PyTorch's DataLoader."""
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    from tdcs_train.loader import Sample, decode_image, find_images

    class Files(Dataset[torch.Tensor]):
        def __init__(self, samples: list[Sample]) -> None:
            self.samples = samples

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, number: int) -> torch.Tensor:
            path = self.samples[number].path
            pixels = numpy.empty((SIDE, SIDE, 3), dtype=numpy.uint8)
            decode_image(memoryview(Path(path).read_bytes()), pixels, path=path)
            return torch.from_numpy(pixels)

    torch.set_num_threads(1)
    loader = DataLoader(
        Files(find_images(folder)[0]),
        batch_size=BATCH,
        shuffle=True,
        num_workers=DECODERS,
        persistent_workers=True,
    )
    return lambda: sum(len(batch) for batch in loader)


def tensorflow_epoch(folder: Path) -> Epoch:
    """tf.data."""
    import tensorflow as tf

    files = sorted(str(path) for path in folder.glob("*/*.jpg"))

    def decode(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.cast(tf.image.resize(image, (SIDE, SIDE)), tf.uint8)

    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), reshuffle_each_iteration=True)
    data = data.map(decode, num_parallel_calls=DECODERS).batch(BATCH).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = DECODERS
    return lambda: sum(len(batch) for batch in data.with_options(options))


PIPELINES: dict[str, Callable[[Path], Epoch]] = {"torch": torch_epoch, "tensorflow": tensorflow_epoch}


def main() -> None:
    """Run the epochs."""
    framework, rounds, *words = sys.argv[1:]
    folders = dict(word.split("=", 1) for word in words)
    epochs = {way: PIPELINES[framework](Path(folder)) for way, folder in folders.items()}
    rates: dict[str, list[float]] = {way: [] for way in epochs}
    for turn in range(int(rounds) + 1):  # the first one warms up what is no reading
        for way, epoch in epochs.items():
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
            began = time.monotonic()
            images = epoch()
            if turn:
                rates[way].append(round(images / (time.monotonic() - began), 1))
    print(json.dumps({"framework": framework, "images_s": rates}), flush=True)


if __name__ == "__main__":
    main()
