"""How much of a pipeline's time is lost to its order alone: four stages that sleep and compute nothing.

    flock /tmp/bench.lock python -m bench.training.bubbles

Each stage sleeps 20 ms forward and 20 ms backward, so no order can be faster than one mini-batch in 40 ms. Mode `stash`
keeps all stages busy; flushing 8 micro-batches leaves a bubble of (S - 1) / (M + S - 1) = 3 / 11, PyTorch's
Schedule1F1B (with its gloo defect mended, see tdcs_train.runtimes.torch_pipelining) has the same bound. Speeds are from
an empty pipeline to an empty one, of which filling and draining take 120 ms; in mode `stash` that of the full pipeline
stands beside it. `stash, one ahead` has one mini-batch more in flight for each stage behind a worker. Writes
results/bubbles.jsonl.
"""

import argparse
import datetime
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.training import loopback_job

STAGES, MICRO = 4, 8
AHEAD = {"stash": 0, "stash, one ahead": 1}
"""The ways of mode stash."""
SECONDS = 0.02


def worker(way: str, count: int) -> None:
    """One stage: prints the seconds of `count` mini- or micro-batches on rank 0."""
    import torch
    import torch.distributed as distributed
    from torch import nn

    from tdcs_train.peers.rendezvous import membership_from
    from tdcs_train.pipeline.plan_file import StagePlan
    from tdcs_train.pipeline.runtime import Pipeline, Recipe
    from tdcs_train.pipeline.worker import Settings
    from tdcs_train.runtimes.torch_pipelining import TorchPipeline

    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
            time.sleep(SECONDS)
            return values.clone()

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> Any:
            time.sleep(SECONDS)
            return gradients[0]

    class Sleeper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return Sleep.apply(values * self.scale)

    torch.set_num_threads(1)
    model = nn.Sequential(*(Sleeper() for _ in range(STAGES)))
    stages = tuple((f"node{2 + stage}",) for stage in range(STAGES))
    plan = StagePlan(stages, (1,) * STAGES, AHEAD.get(way, 0))
    figures: dict[str, float] = {}
    leaves = [str(stage) for stage in range(STAGES)]
    rank = int(os.environ["RANK"])

    def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return ((output - labels) ** 2).mean()

    recipe = Recipe(
        model=model,
        loss=loss,
        optimizer=lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
        learning_rate=0.0,
        settings=Settings(mode="stash" if way in AHEAD else "flush", micro_batches=MICRO),
        leaves=leaves,
    )
    if way == "torch":
        distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
        inputs, labels = torch.ones(MICRO, 4), torch.zeros(MICRO, 4)
        schedule = TorchPipeline(recipe, plan, inputs=inputs)
        seconds = 0.0
        for step in range(count // MICRO + 1):
            if step == 1:
                distributed.barrier()
                seconds = time.monotonic()
            schedule.step(inputs, labels)
        distributed.barrier()
        seconds = time.monotonic() - seconds
        distributed.destroy_process_group()
    else:
        with Pipeline(recipe, plan, membership_from(facts={}, timeout=60)) as pipeline:
            steps = count if way in AHEAD else count // MICRO
            item = (torch.ones(1, 4), torch.zeros(1, 4))
            items = iter([item] * (count + MICRO)) if pipeline.is_first else None
            pipeline.train(items, count=MICRO if way in AHEAD else 1)
            seconds = pipeline.train(items, count=steps).seconds
            ends = [event.end for event in pipeline.worker.events if event.act.direction == "backward"]
            if way in AHEAD:  # without what fills it, and what has no forward before it any more
                full = ends[2 * STAGES : -2 * STAGES]
                figures["full_seconds"] = (full[-1] - full[0]) / (len(full) - 1)
    if rank == 0:
        print(json.dumps({"way": way, "batches": count, "seconds": seconds, **figures}), flush=True)


def workers(way: str, count: int) -> None:
    """All stages of one way, as processes on this loopback interface; prints what the first one did."""
    words = ["-m", "bench.training.bubbles", "--worker", way, "--count", str(count)]
    first, *_ = loopback_job.run(words, name=way, workers=STAGES, within=300)
    print(first, end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=200, help="mini-batches, or micro-batches (default 200)")
    parser.add_argument("--ways", nargs="+", default=[*AHEAD, "flush", "torch"], help="all by default")
    parser.add_argument("--repeat", type=int, default=3, help="runs, ways interleaved (default 3)")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.count)
    elif options.all:
        for way in options.ways:
            workers(way, options.count)
    else:
        from bench.training import processes

        rows = []
        for _ in range(options.repeat):
            with tempfile.TemporaryDirectory() as scratch:
                words = ["-m", "bench.training.bubbles", "--all", "--count", str(options.count)]
                words += ["--ways", *options.ways]
                program = processes.start(words, scratch=Path(scratch), sleeps=True)
                rows += processes.answers([program], within=600)
        bound = 2 * SECONDS
        for row in rows:
            row["of_bound"] = round(row["batches"] * bound / row["seconds"], 4)
            if "full_seconds" in row:
                row["full_of_bound"] = round(bound / row.pop("full_seconds"), 4)
        processes.keep("bubbles", rows)


if __name__ == "__main__":
    main()
