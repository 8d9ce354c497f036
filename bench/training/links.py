"""Which parallelism is fastest at which link speed, and whether the planner says so: two workers, a thread each.

    flock /tmp/bench.lock python -m bench.training.links

Each worker is in a network namespace of its own; tbf gives the link a rate at which averaging gradients takes about
0.2, 1 and 4 times the computation. At each speed the link is measured first, and both workers profile the model,
updates included, at a time; the planner is given that profile and the measured rate. Measured beside each other: one
worker, data parallel (DDP over gloo), and the pipeline with each straight cut. Speeds of pipelines are from empty to
empty; the seconds of a mini-batch that the planner expects are held against those of a full pipeline. Some cuts are
measured with one mini-batch more in flight, too (`tdcs-train plan --ahead 1`), which hides transfers. Writes
results/links.jsonl.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.training import network, processes
from bench.training.records import read

from tdcs_train.plan.graph import Graph
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import Parallelism, document, plan_pipeline
from tdcs_train.plan.profile_text import parse

RATIOS = (0.2, 1.0, 4.0)
WORKER = "bench.training.links_worker"
AHEAD = ", one ahead"
"""Ends the name of a way with one mini-batch more in flight."""


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name, network.hosts(2) as hosts:
        scratch = Path(name)
        common = ["-m", WORKER, "--samples", str(options.samples), "--steps", str(options.steps)]
        (first,) = processes.answers([processes.start([*common, "--profile"], scratch=scratch)], within=300)
        graph = parse(first["text"])
        rows: list[dict[str, Any]] = [
            {
                "model_parameters": int(graph.parameter_bytes / 4),
                "samples": options.samples,
                "profiled_seconds": round(graph.seconds, 4),
            }
        ]
        if options.add:
            rows += [
                row
                for row in read("links")[1]
                if row.get("sync_over_compute", options.ratios[0]) not in options.ratios
            ]
        for ratio in options.ratios:
            rate = graph.parameter_bytes / (graph.seconds * ratio)
            network.shape(hosts, bits_per_second=rate * 8)
            programs = [
                processes.start(
                    [
                        *[*common, "--cuts", options.cuts, "--bytes", str(int(rate * 1.5) + (4 << 20))],
                        *["--ahead", *map(str, options.ahead)],
                    ],
                    scratch=scratch,
                    namespace=host.namespace,
                    environment={
                        "MASTER_ADDR": hosts[0].address,
                        "MASTER_PORT": "29000",
                        "RANK": str(rank),
                        "WORLD_SIZE": "2",
                        "GLOO_SOCKET_IFNAME": network.DEVICE,
                    },
                )
                for rank, host in enumerate(hosts)
            ]
            answers = processes.answers(programs, within=900)
            ways = {row["way"]: row for row in answers}
            link = ways.pop("link")["bytes_per_second"]
            then = parse(ways.pop("profile")["text"])
            rows.append(judged(then, link=link, ratio=ratio, ways=ways, samples=options.samples))
            print(rows[-1], flush=True)
        return rows[:1] + sorted(rows[1:], key=lambda row: float(row["sync_over_compute"]))


def judged(
    graph: Graph, *, link: float, ratio: float, ways: dict[str, dict[str, Any]], samples: int
) -> dict[str, Any]:
    """What the planner chose for the measured link, against what was measured."""
    options = Options(levels=(Level(machines=2, bandwidth=link),), fewer=True)
    pipeline = plan_pipeline(graph, options)
    plan = document(pipeline)
    stages = plan["stages"]
    chosen = pipeline.best.value
    if pipeline.best is Parallelism.PIPELINE:
        chosen = f"cut {len(stages[0]['nodes'])}"
    deeper = {way: ways.pop(way) for way in list(ways) if way.endswith(AHEAD)}
    speeds = {way: row["samples_per_second"] for way, row in ways.items()}
    best = max(speeds, key=lambda way: speeds[way])
    measured = ways[chosen].get("full_seconds", samples / speeds[chosen])
    ahead: dict[str, Any] = {}
    if chosen + AHEAD in deeper:
        measured_seconds = deeper[chosen + AHEAD]["full_seconds"]
        expected = document(plan_pipeline(graph, replace(options, ahead=1)))["expectedSeconds"]
        ahead = {
            "ahead_speed": deeper[chosen + AHEAD]["samples_per_second"],
            "ahead_expected_seconds": round(expected, 4),
            "ahead_measured_seconds": round(measured_seconds, 4),
            "bottleneck_of_ahead_measured": round(plan["bottleneckSeconds"] / measured_seconds, 3),
            "expected_of_ahead_measured": round(expected / measured_seconds, 3),
        }
    return {
        "sync_over_compute": ratio,
        "link_bytes_per_second": round(link),
        "profiled_seconds": round(graph.seconds, 4),
        "speeds": speeds,
        "chosen": chosen,
        "best": best,
        "chosen_of_best": round(speeds[chosen] / speeds[best], 3),
        "chosen_of_data_parallel": round(speeds[chosen] / speeds["data parallel"], 3),
        "bottleneck_seconds": round(plan["bottleneckSeconds"], 4),
        "expected_seconds": round(plan["expectedSeconds"], 4),
        "measured_seconds": round(measured, 4),
        "bottleneck_of_measured": round(plan["bottleneckSeconds"] / measured, 3),
        "expected_of_measured": round(plan["expectedSeconds"] / measured, 3),
        "compute_profiled": [round(stage["computeSeconds"], 4) for stage in stages],
        "compute_measured": ways[chosen].get("compute_seconds", []),
        **ahead,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=128, help="of a mini-batch (default 128)")
    parser.add_argument(
        "--steps", type=int, default=12, help="measured mini-batches of each way, 4 at least (default 12)"
    )
    parser.add_argument("--cuts", default="1,2,3,4,5,6,7,8,9,10,11", help="layers of the first stage")
    parser.add_argument(
        "--ahead", type=int, nargs="*", default=[6, 7, 8], help="cuts with one more in flight (default 6 7 8)"
    )
    parser.add_argument("--add", action="store_true", help="keep the rows of other ratios that are there")
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS)
    options = parser.parse_args()
    if options.steps < 4:
        parser.error("--steps: of fewer than 4 mini-batches none passes a full pipeline")
    processes.keep("links", measure(options))


if __name__ == "__main__":
    main()
