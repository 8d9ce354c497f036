"""A training script for tests: a small chain in a pipeline; prints its losses and a digest of its weights."""

import argparse
import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tests.training import models, threads

from tdcs_train.errors import ended_by_input_errors
from tdcs_train.peers.rendezvous import membership_from
from tdcs_train.pipeline.plan_file import read_plan
from tdcs_train.pipeline.runtime import Pipeline, Recipe
from tdcs_train.pipeline.worker import Settings


def batches(first: int, step: int) -> Iterator[threads.Batch]:
    """Mini-batches by their number, so that a resumed job reads what an undisturbed one reads."""
    number = first
    while True:
        source = torch.Generator().manual_seed(number)
        inputs = torch.randn(8, 6, generator=source)
        yield inputs, inputs.abs().argmax(1) % 4
        number += step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--mode", default="stash")
    parser.add_argument("--vertical-sync", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--width", type=int, default=9, help="of the middle of the model")
    parser.add_argument(
        "--frozen", type=int, default=0, help="parameters of a stage that its optimizer leaves out"
    )
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument(
        "--killed", type=int, help="the rank that is killed when all others save a checkpoint"
    )
    options = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    membership = membership_from(facts={"script": os.environ.get("SCRIPT", "1")}, timeout=options.timeout)
    plan = read_plan(options.plan, workers=membership.world_size)
    recipe = Recipe(
        model=threads.chain([6, 10, options.width, 8, 4]),
        loss=models.cross_entropy,
        optimizer=lambda parameters, rate: torch.optim.SGD(
            parameters[options.frozen :], lr=rate, momentum=0.9
        ),
        learning_rate=0.05,
        settings=Settings(mode=options.mode, vertical_sync=options.vertical_sync, micro_batches=6),
    )
    with Pipeline(recipe, plan, membership) as pipeline:
        done = pipeline.resume(options.checkpoints) if options.checkpoints else 0
        print(f"resumed after {done}", flush=True)
        for _ in range(done // options.count, options.rounds):
            items = pipeline.done * (6 if options.mode == "flush" else 1)
            feed = batches(items + pipeline.place.replica, pipeline.place.own) if pipeline.is_first else None
            summary = pipeline.train(feed, count=options.count)
            if membership.rank == options.killed:
                os.kill(os.getpid(), signal.SIGKILL)
            if options.checkpoints:
                pipeline.save(options.checkpoints)
            print(json.dumps({"done": pipeline.done, "loss": summary.loss}), flush=True)
            time.sleep(options.pause)
        state = hashlib.sha256()
        for parameter in pipeline.worker.compute.parameters.values():
            state.update(parameter.detach().numpy().tobytes())
        versions = pipeline.worker.compute.weights.most_held
        print(json.dumps({"weights": state.hexdigest(), "versions": versions}), flush=True)


if __name__ == "__main__":
    with ended_by_input_errors():
        main()
