"""Train the classifier of train_images.py with parameter servers.

    train_parameter_server.py --data /data --epochs 2

Needs TF_CONFIG with the tasks chief, worker and ps (every job operator for TensorFlow sets it). The servers hold
the weights; each worker reads files, computes gradients on its own and applies them at once; the chief hands out
steps, and its end is the end of the training: workers and servers serve until somebody ends them.

The chief prints one line of JSON per epoch, and a last one with `"done": true`:

    {"epoch": 1, "workers": 2, "loss": 0.61, "images_per_second": 3100.0, "stall_share": 0.05}

With `--order plan.json`, which `tdcs-train order --json` has written for the profile of this network, each step reads
its weights from the servers in the order of the plan, `--window` of them at a time. The line of an epoch then says what
the trace of its steps shows: in which share of them no weight arrived before one that is two or more places ahead in
the plan (`order_kept`), and in the last step the milliseconds from its beginning to each weight's arrival, in the order
of the plan (`arrived_ms`). A window of all weights leaves the order to TensorFlow, for comparison.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Without this the chief gives up when a worker is restarted, instead of waiting for it.
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import tensorflow as tf  # type: ignore[import-untyped, import-not-found, unused-ignore]
from train_images import (  # type: ignore[import-not-found, unused-ignore]
    Network,
    arguments_of,
    find_images,
    pipeline,
    say,
)

from tdcs_train.environment import task_from
from tdcs_train.errors import InputError, ended_by_input_errors
from tdcs_train.ps.read_order import kept, layer_priorities, read_order
from tdcs_train.ps.tensorflow_reads import in_order_traced

NEIGHBOURS = 2
"""Weights this many places apart in the plan must arrive in its order; with a window of two, neighbours need not."""


def arguments() -> argparse.Namespace:
    parser = arguments_of(__doc__)
    parser.add_argument("--order", type=Path, help="the plan of `tdcs-train order --json`")
    parser.add_argument("--window", type=int, default=2, help="reads under way at a time, with --order")
    asked: argparse.Namespace = parser.parse_args()
    return asked


def priorities_from(path: Path, *, weights: int) -> list[int]:
    """The priority of each weight of the network: a layer's kernel and bias share one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a plan: {error}") from error
    layers = layer_priorities(document, source=str(path))
    if 2 * len(layers) != weights:
        raise InputError(
            f"{path} orders {len(layers)} layers with parameters, the network has {weights // 2}; profile this network"
        )
    return [priority for priority in layers for _ in ("kernel", "bias")]


def serve(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """Be a worker or a parameter server, until the process is ended from outside."""
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4, intra_op_parallelism_threads=1)
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        config=threads,
        protocol="grpc",
        start=True,
    ).join()


def traced(steps: list[list[float]], priorities: list[int]) -> dict[str, object]:
    """What the trace of some steps says of the order; nothing without a plan."""
    if not priorities:
        return {}
    good = sum(kept(arrived, priorities, window=NEIGHBOURS) for arrived in steps)
    last = [round(1000 * steps[-1][place], 2) for place in read_order(priorities)]
    return {"order_kept": round(good / len(steps), 4), "arrived_ms": last}


def main() -> None:
    asked = arguments()
    started = time.monotonic()
    with ended_by_input_errors():
        task_from(os.environ)  # TensorFlow ends with a traceback where it cannot be read
    tf.config.threading.set_intra_op_parallelism_threads(asked.threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    if resolver.task_type != "chief":
        sys.exit("TF_CONFIG names no chief, worker or ps: this script needs parameter servers")

    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(resolver.cluster_spec().job_tasks("worker"))
    files, classes = find_images(asked.data)
    steps = len(files) // asked.batch
    if steps < 2 * workers:
        sys.exit(f"{asked.data} has {len(files)} JPEG files; at least {2 * workers * asked.batch} are needed")
    say(event="start", workers=workers, files=len(files), classes=len(classes), steps=steps)

    with strategy.scope():
        network = Network(image_size=asked.image_size, classes=len(classes))
    priorities: list[int] = []
    if asked.order:
        with ended_by_input_errors():
            priorities = priorities_from(asked.order, weights=len(network.weights))

    def batches() -> tf.data.Dataset:
        # Runs on each worker: the list of files travels to it inside the graph, the files themselves do not.
        return strategy.distribute_datasets_from_function(
            lambda _: pipeline(
                files, batch=asked.batch, image_size=asked.image_size, readers=asked.readers, seed=0
            )
        )

    def step(iterator: tf.data.Iterator) -> tuple[tf.Tensor, ...]:
        before = tf.timestamp()
        with tf.control_dependencies([before]):
            images, labels, _ = next(iterator)
        with tf.control_dependencies([images]):
            ready = tf.timestamp()

        def on_a_worker(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                if priorities:
                    began = tf.timestamp()
                    with tf.control_dependencies([began]):
                        values, times = in_order_traced(network.weights, priorities, window=asked.window)
                    arrived = tf.stack([time - began for time in times])
                    logits = network(images, values)
                else:
                    arrived = tf.zeros([0], tf.float64)
                    logits = network(images)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, network.weights)
            for weight, gradient in zip(network.weights, gradients, strict=True):
                weight.assign_sub(asked.learning_rate * gradient)
            return loss, arrived

        loss, arrived = strategy.run(on_a_worker, args=(images, labels))
        with tf.control_dependencies([loss]):
            return loss, ready - before, tf.timestamp() - before, arrived

    compiled: Callable[..., tuple[tf.Tensor, ...]] = tf.function(step)
    iterator = iter(coordinator.create_per_worker_dataset(batches))
    coordinator.schedule(compiled, args=(iterator,))
    coordinator.join()  # compiling is not training

    losses: list[float] = []
    for epoch in range(1, asked.epochs + 1):
        epoch_started = time.monotonic()
        scheduled = [coordinator.schedule(compiled, args=(iterator,)) for _ in range(steps)]
        coordinator.join()
        results = [each.fetch() for each in scheduled]
        seconds = time.monotonic() - epoch_started
        losses.append(sum(float(loss) for loss, *_ in results) / steps)
        say(
            epoch=epoch,
            workers=workers,
            loss=round(losses[-1], 4),
            seconds=round(seconds, 2),
            images_per_second=round(steps * asked.batch / seconds, 1),
            stall_share=round(
                sum(float(waited) for _, waited, *_ in results)
                / sum(float(total) for *_, total, _ in results),
                3,
            ),
            **traced([[float(one) for one in arrived] for *_, arrived in results], priorities),
        )
    say(
        done=True,
        first_loss=round(losses[0], 4),
        last_loss=round(losses[-1], 4),
        seconds=round(time.monotonic() - started, 1),
    )
    sys.stdout.flush()
    os._exit(0)  # the coordinator's threads may keep the interpreter from ending


if __name__ == "__main__":
    main()
