"""Which parallelism is fastest at which link speed, and whether the planner says so: two workers, a thread each.

    flock /tmp/bench.lock python -m bench.training.links

Each worker is in a network namespace of its own; tbf gives the link a rate at which averaging gradients takes about
0.2, 1 and 4 times the computation. The link is measured before each run. The model is profiled first, and the planner
is given the profile and the measured rate. Measured beside each other: one worker, data parallel (DDP over gloo), and
the pipeline with each straight cut. Writes results/links.jsonl.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench.training import network, processes

from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import document, plan_pipeline
from tdcs_train.plan.profile_text import parse

RATIOS = (0.2, 1.0, 4.0)
WORKER = "bench.training.links_worker"


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name, network.hosts(2) as hosts:
        scratch = Path(name)
        common = ["-m", WORKER, "--samples", str(options.samples), "--steps", str(options.steps)]
        words = [*common, "--profile", "/results/graph.txt"]
        processes.answers([processes.start(words, scratch=scratch)], within=300)
        graph = parse((scratch / "graph.txt").read_text())
        rows: list[dict[str, Any]] = [
            {
                "model_parameters": int(graph.parameter_bytes / 4),
                "samples": options.samples,
                "profiled_seconds": round(graph.seconds, 4),
            }
        ]
        for ratio in options.ratios:
            rate = graph.parameter_bytes / (graph.seconds * ratio)
            network.shape(hosts, bits_per_second=rate * 8)
            programs = [
                processes.start(
                    [*common, "--cuts", options.cuts, "--bytes", str(int(rate * 1.5) + (4 << 20))],
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
            found = processes.answers(programs, within=900)
            link = next(row["bytes_per_second"] for row in found if row["way"] == "link")
            speeds = {row["way"]: row["samples_per_second"] for row in found if row["way"] != "link"}
            rows.append(judged(graph, link=link, ratio=ratio, speeds=speeds, samples=options.samples))
            print(rows[-1], flush=True)
        return rows


def judged(
    graph: Any, *, link: float, ratio: float, speeds: dict[str, float], samples: int
) -> dict[str, Any]:
    """What the planner chose for the measured link, against what was measured."""
    plan = document(plan_pipeline(graph, Options(levels=(Level(machines=2, bandwidth=link),), fewer=True)))
    stages = plan["stages"]
    if len(stages) == 2:
        chosen = f"cut {len(stages[0]['nodes'])}"
    else:
        chosen = "data parallel" if stages[0]["replicas"] == 2 else "one worker"
    best = max(speeds, key=lambda way: speeds[way])
    measured = samples / speeds[chosen]
    return {
        "sync_over_compute": ratio,
        "link_bytes_per_second": round(link),
        "speeds": speeds,
        "chosen": chosen,
        "best": best,
        "chosen_of_best": round(speeds[chosen] / speeds[best], 3),
        "chosen_of_data_parallel": round(speeds[chosen] / speeds["data parallel"], 3),
        "predicted_seconds": round(plan["bottleneckSeconds"], 4),
        "measured_seconds": round(measured, 4),
        "predicted_of_measured": round(plan["bottleneckSeconds"] / measured, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=128, help="of a mini-batch (default 128)")
    parser.add_argument(
        "--steps", type=int, default=12, help="measured mini-batches of each way (default 12)"
    )
    parser.add_argument("--cuts", default="1,2,3,4,5,6,7,8,9,10,11", help="layers of the first stage")
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS)
    options = parser.parse_args()
    processes.keep("links", measure(options))


if __name__ == "__main__":
    main()
