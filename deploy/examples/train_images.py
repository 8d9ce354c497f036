"""Train an image classifier on a folder of JPEG files, on one or several workers.

    train_images.py --data /data --epochs 3

`/data` has one sub-folder per class. With TF_CONFIG set (every job operator for TensorFlow does), each
worker reads its share of the files and the workers average their gradients (ring all-reduce); without it,
the one process is the only worker.

Each worker prints one line of JSON per epoch:

    {"epoch": 1, "worker": 0, "loss": 0.42, "images_per_second": 4650.0, "stall_share": 0.03, ...}

`images_per_second` is over all workers. `stall_share` is the part of this worker's time in which its training
loop waited for data; in synchronous training the slowest worker's share is the one that tells, since the
others wait for it inside their steps. The last line has `"done": true`.
"""

import argparse
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf  # type: ignore[import-untyped, import-not-found, unused-ignore]

from tdcs_train.environment import task_from
from tdcs_train.errors import ended_by_input_errors

MOMENTUM = 0.9


def arguments_of(description: str | None) -> argparse.ArgumentParser:
    """The command line that all ways of training this network have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2, choices=range(1, 10_001), metavar="N")
    parser.add_argument("--batch", type=int, default=64, help="images per step and worker")
    parser.add_argument(
        "--image-size", type=int, default=28, help="images are resized to a square of this side"
    )
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--readers", type=int, default=8, help="files read at the same time")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of an operation")
    return parser


def find_images(folder: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """All JPEG files as (path, class number) pairs in an order that every worker agrees on, and the classes."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    files = [
        (entry.path, number)
        for number, name in enumerate(classes)
        for entry in sorted(os.scandir(folder / name), key=lambda entry: entry.name)
        if entry.name.lower().endswith((".jpg", ".jpeg"))
    ]
    random.Random(0).shuffle(files)
    return files, classes


def pipeline(
    files: list[tuple[str, int]], *, batch: int, image_size: int, readers: int, seed: int
) -> tf.data.Dataset:
    """An endless, shuffled stream of batches (images, labels, mean seconds it took to read a file)."""

    def read(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, ...]:
        before = tf.timestamp()
        with tf.control_dependencies([before]):
            raw = tf.io.read_file(path)
        with tf.control_dependencies([raw]):
            after = tf.timestamp()
        return raw, label, tf.cast(after - before, tf.float32)

    def decode(raw: tf.Tensor, label: tf.Tensor, seconds: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image = tf.image.convert_image_dtype(tf.io.decode_jpeg(raw, channels=1), tf.float32)
        return tf.image.resize(image, (image_size, image_size)), label, seconds

    paths, labels = zip(*files, strict=True)
    data = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
    data = data.shuffle(len(files), seed=seed, reshuffle_each_iteration=True).repeat()
    data = data.map(read, num_parallel_calls=readers, deterministic=False)
    data = data.map(decode, num_parallel_calls=2).batch(batch, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = readers + 2
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


class Network:
    """Two convolutions and two dense layers."""

    def __init__(self, *, image_size: int, classes: int) -> None:
        flat = (((image_size - 2) // 2 - 2) // 2) ** 2 * 32
        shapes: list[tuple[int, ...]] = [
            (3, 3, 1, 16),
            (16,),
            (3, 3, 16, 32),
            (32,),
            (flat, 64),
            (64,),
            (64, classes),
            (classes,),
        ]
        self.weights = [self._weight(number, shape) for number, shape in enumerate(shapes)]
        self.velocity = [tf.Variable(tf.zeros(shape), trainable=False) for shape in shapes]

    @staticmethod
    def _weight(number: int, shape: tuple[int, ...]) -> tf.Variable:
        if len(shape) == 1:
            return tf.Variable(tf.zeros(shape))
        inputs = tf.cast(tf.reduce_prod(shape[:-1]), tf.float32)
        return tf.Variable(tf.random.stateless_normal(shape, seed=(1, number)) * tf.sqrt(2.0 / inputs))

    def __call__(self, images: tf.Tensor, weights: Sequence[tf.Tensor] | None = None) -> tf.Tensor:
        """The classes' logits; `weights` are values of the variables that have been read already."""
        k1, b1, k2, b2, d1, e1, d2, e2 = weights or self.weights
        hidden = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(images, k1, 1, "VALID") + b1), 2, 2, "VALID")
        hidden = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(hidden, k2, 1, "VALID") + b2), 2, 2, "VALID")
        hidden = tf.nn.relu(tf.reshape(hidden, (tf.shape(hidden)[0], -1)) @ d1 + e1)
        return hidden @ d2 + e2


def training_step(
    strategy: tf.distribute.Strategy, network: Network, learning_rate: float
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """A compiled step: (images, labels, read seconds) -> (mean loss over all workers, read seconds here)."""
    workers = strategy.num_replicas_in_sync

    def on_one_worker(images: tf.Tensor, labels: tf.Tensor, seconds: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=network(images))
            loss = tf.reduce_mean(losses) / workers
        gradients = tape.gradient(loss, network.weights)
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for weight, velocity, gradient in zip(network.weights, network.velocity, gradients, strict=True):
            velocity.assign(MOMENTUM * velocity + gradient)
            weight.assign_sub(learning_rate * velocity)
        return loss, tf.reduce_mean(seconds)

    def step(images: tf.Tensor, labels: tf.Tensor, seconds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        losses, read = strategy.run(on_one_worker, args=(images, labels, seconds))
        return strategy.reduce("SUM", losses, axis=None), read

    compiled: Callable[..., tuple[tf.Tensor, tf.Tensor]] = tf.function(step)
    return compiled


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    asked = arguments_of(__doc__).parse_args()
    started = time.monotonic()
    with ended_by_input_errors():
        _, worker = task_from(os.environ)
    tf.config.threading.set_intra_op_parallelism_threads(asked.threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    # before any other operation: this starts the worker's server and waits for the other workers
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    workers = strategy.num_replicas_in_sync

    listing = time.monotonic()
    files, classes = find_images(asked.data)
    steps = len(files) // (asked.batch * workers)
    if steps < 2:
        need = 2 * asked.batch * workers
        found = f"{len(files)} JPEG files in {len(classes)} class folders"
        sys.exit(f"{asked.data} has {found}; at least {need} files are needed")
    say(
        event="start",
        worker=worker,
        workers=workers,
        files=len(files),
        classes=len(classes),
        steps=steps,
        list_seconds=round(time.monotonic() - listing, 3),
        tensorflow=tf.__version__,
    )

    with strategy.scope():
        network = Network(image_size=asked.image_size, classes=len(classes))
    step = training_step(strategy, network, asked.learning_rate)
    data = strategy.distribute_datasets_from_function(
        lambda context: pipeline(
            files[context.input_pipeline_id :: context.num_input_pipelines],
            batch=asked.batch,
            image_size=asked.image_size,
            readers=asked.readers,
            seed=context.input_pipeline_id,
        )
    )
    batches = iter(data)
    step(*next(batches))  # compiling is not training

    losses: list[float] = []
    for epoch in range(1, asked.epochs + 1):
        epoch_started = time.monotonic()
        waited = read_seconds = total = 0.0
        for _ in range(steps):
            before = time.monotonic()
            batch = next(batches)
            waited += time.monotonic() - before
            loss, read = step(*batch)
            total += float(loss)
            read_seconds += float(strategy.experimental_local_results(read)[0])
        seconds = time.monotonic() - epoch_started
        losses.append(total / steps)
        say(
            epoch=epoch,
            worker=worker,
            loss=round(losses[-1], 4),
            seconds=round(seconds, 2),
            images_per_second=round(steps * asked.batch * workers / seconds, 1),
            stall_share=round(waited / seconds, 3),
            read_ms_per_file=round(1000 * read_seconds / steps, 3),
        )

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    say(
        done=True,
        worker=worker,
        first_loss=round(losses[0], 4),
        last_loss=round(losses[-1], 4),
        peak_memory_mib=peak,
        seconds=round(time.monotonic() - started, 1),
    )


if __name__ == "__main__":
    main()
