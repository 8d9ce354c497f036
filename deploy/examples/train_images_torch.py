"""Train an image classifier on a folder of JPEG files with PyTorch, on one or several workers.

    train_images_torch.py --data /data --epochs 3

The twin of train_images.py. `/data` has one sub-folder per class. With WORLD_SIZE above 1 (torchrun and every job
operator for PyTorch set it, with RANK, MASTER_ADDR and MASTER_PORT) each worker reads its share of the files and the
workers average their gradients (DistributedDataParallel over gloo); else the one process is the only worker.

Each worker prints one line of JSON per epoch:

    {"epoch": 1, "worker": 0, "loss": 0.42, "images_per_second": 4650.0, "stall_share": 0.03,
     "stall_by_cause": {"read": 0.02, "decode": 0.01, "batch": 0.0}, "bottleneck": "train", ...}

`images_per_second` is over all workers. `stall_share` is the part of this worker's time in which its training loop
waited for data, `stall_by_cause` says for which stage of its loader, and `bottleneck` names what determined most of the
epoch. The last line has `"done": true`.

With a plan of a pipeline in TDCS_TRAIN_PLAN (`tdcs-train plan --job` puts it there) the workers are its stages: those
of the first stage read /data, the others need none. Give `--classes` and `--steps` then, since the others see no file;
`bottleneck` is then the stage that worked for the longest time. With `--checkpoints` each stage writes one after every
epoch into a folder that all workers see, and a job that is started again goes on from the newest one that all stages
have. For the plan:

    tdcs-train profile train_images_torch.py:model --batch 64 --optimizer sgd -o graph.txt

`wide` in the place of `model` is the network of `--hidden 6144`, of which the gradients are large against its
computation.
"""

import argparse
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tdcs_train.environment import number_from
from tdcs_train.errors import InputError, ended_by_input_errors
from tdcs_train.loader import Batch, Loader, Sample, find_images
from tdcs_train.peers.rendezvous import membership_from
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.plan_variable import plan_from
from tdcs_train.pipeline.runtime import Pipeline, Recipe

LEARNING_RATE, MOMENTUM = 0.05, 0.9
HIDDEN, WIDE = 64, 6144
"""Outputs of the first dense layer."""
SMALLEST = 10
"""The side of the smallest images that the network takes."""


def count(text: str) -> int:
    """A number of a command line that must be 1 at least."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number over 0")
    return int(text)


def side(text: str) -> int:
    """The side of an image, of which two convolutions with pools leave something."""
    if count(text) < SMALLEST:
        raise argparse.ArgumentTypeError(f"{text} is below {SMALLEST}: the network needs larger images")
    return int(text)


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """The command line that all ways of training this network have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder with one sub-folder per class")
    parser.add_argument("--epochs", type=count, default=2, metavar="N")
    parser.add_argument("--batch", type=count, default=64, help="images per step and worker")
    parser.add_argument(
        "--image-size", type=side, default=28, help="images are resized to a square of this side"
    )
    parser.add_argument("--hidden", type=count, default=HIDDEN, help="outputs of the first dense layer")
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--readers", type=count, default=8, help="files read at the same time")
    parser.add_argument("--decoders", type=count, default=2, help="images decoded at the same time")
    parser.add_argument("--threads", type=count, default=1, help="CPU threads of an operation")
    parser.add_argument("--classes", type=count, help="of the dataset; found in --data where all see it")
    parser.add_argument(
        "--steps",
        type=count,
        help="mini-batches of an epoch in a pipeline, of all its input workers together",
    )
    parser.add_argument("--checkpoints", type=Path, help="in a pipeline: a folder that all workers see")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order of the files")
    return parser


def network(*, image_size: int, classes: int, hidden: int) -> nn.Module:
    """Two convolutions and two dense layers."""
    flat = (((image_size - 2) // 2 - 2) // 2) ** 2 * 32
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def model() -> nn.Module:
    """The network for ten classes of 28 x 28, for `tdcs-train profile`."""
    return network(image_size=28, classes=10, hidden=HIDDEN)


def wide() -> nn.Module:
    """The same with `--hidden 6144`."""
    return network(image_size=28, classes=10, hidden=WIDE)


def sgd(parameters: list[nn.Parameter], rate: float = LEARNING_RATE) -> torch.optim.Optimizer:
    """What updates the weights; for `tdcs-train profile --optimizer sgd`, too."""
    return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM)


def batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and labels, for `tdcs-train profile`."""
    return torch.rand(samples, 1, 28, 28), torch.randint(10, (samples,))


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What training makes small."""
    return nn.functional.cross_entropy(output, labels)


def tensors(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Images from 0 to 1, channels first, and labels; copies, since the loader uses its memory again."""
    images = torch.from_numpy(batch.images).permute(0, 3, 1, 2).float().div_(255)
    return images, torch.from_numpy(batch.labels).clone()


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def loader_of(asked: argparse.Namespace, samples: Sequence[Sample], *, rank: int, world_size: int) -> Loader:
    """The loader of one of the workers that read."""
    return Loader(
        samples,
        batch=asked.batch,
        shape=(asked.image_size, asked.image_size, 1),
        seed=asked.seed,
        rank=rank,
        world_size=world_size,
        readers=asked.readers,
        decoders=asked.decoders,
    )


def forever(loader: Loader, *, after: int) -> Generator[Any, None, None]:
    """The mini-batches of one epoch after another, without the first `after` ones."""
    epochs, passed = divmod(after, len(loader))
    for epoch in itertools.count(epochs + 1):
        for number, batch in enumerate(loader.epoch(epoch)):
            if epoch > epochs + 1 or number >= passed:
                yield tensors(batch)


def train_pipeline(asked: argparse.Namespace, plan: StagePlan) -> None:
    """This worker's part of a pipeline."""
    started = time.monotonic()
    if not (asked.classes and asked.steps):
        raise InputError(
            "a pipeline needs --classes and --steps: only the workers of its first stage see the files"
        )
    membership = membership_from(
        facts={"arguments": f"{asked.classes} {asked.steps} {asked.batch} {asked.hidden} {asked.epochs}"},
        timeout=120,
    )
    rank, readers = membership.rank, plan.replicas[0]
    loader = None
    if rank < readers:  # its decoders are forked before there is any thread
        samples, classes = find_images(asked.data)
        if len(classes) != asked.classes:
            raise InputError(f"{asked.data} has {len(classes)} classes, --classes is {asked.classes}")
        loader = loader_of(asked, samples, rank=rank, world_size=readers)
    torch.manual_seed(asked.seed)
    recipe = Recipe(
        model=network(image_size=asked.image_size, classes=asked.classes, hidden=asked.hidden),
        loss=loss,
        optimizer=sgd,
        learning_rate=asked.learning_rate,
    )
    losses: list[float] = []
    with Pipeline(recipe, plan, membership) as pipeline:
        done = pipeline.resume(asked.checkpoints) if asked.checkpoints else 0
        own = forever(loader, after=done // readers) if loader is not None else None
        say(
            event="start",
            worker=rank,
            workers=plan.workers,
            plan=str(plan),
            stage=pipeline.place.stage,
            resumed_after=done // asked.steps,
        )
        for epoch in range(1 + done // asked.steps, asked.epochs + 1):
            summary = pipeline.train(own, count=asked.steps)
            losses.append(summary.loss)
            say(
                epoch=epoch,
                worker=rank,
                stage=pipeline.place.stage,
                loss=round(summary.loss, 4),
                images_per_second=round(asked.steps * asked.batch / summary.seconds, 1),
                bottleneck=f"stage {summary.bottleneck}",
                waited_for_data=round(summary.stages[0].inputs, 3),
            )
            if asked.checkpoints:
                pipeline.save(asked.checkpoints)
    if own is not None and loader is not None:
        own.close()  # an epoch that stands still in the middle has threads
        loader.close()
    say_done(rank, losses, started)


def say_done(worker: int, losses: list[float], started: float) -> None:
    """The last line of a worker; it may have found all epochs done."""
    say(
        done=True,
        worker=worker,
        first_loss=round(losses[0], 4) if losses else None,
        last_loss=round(losses[-1], 4) if losses else None,
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        seconds=round(time.monotonic() - started, 1),
    )


def train(asked: argparse.Namespace, *, worker: int, workers: int) -> None:
    started = time.monotonic()
    samples, classes = find_images(asked.data)
    loader = loader_of(asked, samples, rank=worker, world_size=workers)
    say(
        event="start",
        worker=worker,
        workers=workers,
        files=len(samples),
        classes=len(classes),
        steps=len(loader),
        loader_memory_mib=round(loader.memory_bytes / 2**20, 1),
        list_seconds=round(time.monotonic() - started, 3),
        torch=torch.__version__,
    )
    torch.manual_seed(asked.seed)
    net: nn.Module = network(image_size=asked.image_size, classes=len(classes), hidden=asked.hidden)
    if workers > 1:
        net = DistributedDataParallel(net)
    optimizer = sgd(list(net.parameters()), asked.learning_rate)
    losses: list[float] = []
    for epoch in range(1, asked.epochs + 1):
        begin, total = time.monotonic(), 0.0
        for batch in loader.epoch(epoch):
            images, labels = tensors(batch)
            found = loss(net(images), labels)
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
            total += float(found)
        seconds = time.monotonic() - begin
        report = loader.report
        assert report is not None
        mean = torch.tensor(total / len(loader))
        if workers > 1:
            distributed.all_reduce(mean)
        losses.append(float(mean) / workers)
        say(
            **report.fields(),
            worker=worker,
            loss=round(losses[-1], 4),
            images_per_second=round(len(loader) * asked.batch * workers / seconds, 1),
        )
    say_done(worker, losses, started)


def main() -> None:
    asked = argument_parser(__doc__).parse_args()
    torch.set_num_threads(asked.threads)
    with ended_by_input_errors():
        workers = number_from(os.environ, "WORLD_SIZE", default=1, least=1)
        worker = number_from(os.environ, "RANK", default=0, below=workers, remedy=f"WORLD_SIZE is {workers}")
        plan = plan_from(os.environ, workers=workers)
        if plan is not None and len(plan.stages) > 1:
            train_pipeline(asked, plan)
            return
    if workers > 1:
        distributed.init_process_group("gloo")
    try:
        train(asked, worker=worker, workers=workers)
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        if workers > 1:
            distributed.destroy_process_group()


if __name__ == "__main__":
    main()
