"""The planner against the plans that PipeDream published, by its own profiles."""

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tdcs_train.plan.evaluation import bottleneck_seconds
from tdcs_train.plan.optimizer import best_blocks
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import Parallelism, PipelinePlan, plan_pipeline
from tdcs_train.plan.profile_text import parse

ONE = (1e9,)
TWO = (1e10, 1e9)
Stages = tuple[tuple[float | None, int], ...]

ROWS: dict[str, tuple[str, tuple[int, ...], tuple[float, ...], dict[str, object], float, float, float, Stages]] = {
    "vgg16 on 2": ("vgg16", (2,), ONE, {}, 0.411042, 1.636, 2.164, ((0.381063, 1), (0.291472, 1))),
    "vgg16 on 4": ("vgg16", (4,), ONE, {}, 0.205521, 3.272, 2.838, ((0.514238, 3), (0.158297, 1))),
    "vgg16 on 8": ("vgg16", (8,), ONE, {}, 0.103833, 6.477, 3.142, ((0.622120, 7), (0.050415, 1))),
    "vgg16 on 4 with a slow link": (
        "vgg16", (4,), (1e8,), {}, 0.622120, 1.081, 6.942, ((0.622120, 1), (0.040265, 2), (0.010150, 1)),
    ),
    "vgg16 on 2 times 2": (
        "vgg16", (2, 2), TWO, {}, 0.257813, 2.609, 1.833, ((0.514238, 2), (0.064331, 1), (0.093966, 1)),
    ),
    "vgg16 on 4 straight without transfers": (
        "vgg16", (4,), ONE, {"straight": True, "activation_ratio": math.inf}, 0.216450, 3.107, 2.694,
        ((0.216450, 1), (None, 1), (None, 1), (None, 1)),
    ),
    "alexnet on 4": ("alexnet", (4,), ONE, {}, 0.034217, 2.494, 5.980, ((0.076308, 3), (0.009013, 1))),
    "alexnet on 2 times 2": (
        "alexnet", (2, 2), TWO, {}, 0.039142, 2.180, 3.979, ((0.076308, 2), (0.004809, 1), (0.004204, 1)),
    ),
    "resnet50 on 4": ("resnet50", (4,), ONE, {}, 0.162881, 2.722, 1.151, ((0.295283, 2), (0.148136, 2))),
    "gnmt on 4": (
        "gnmt", (4,), ONE, {}, 0.025868, 3.457, 23.336, ((0.021096, 1), (None, 1), (None, 1), (0.025868, 1)),
    ),
}  # fmt: skip


def planned(folder: Path, row: str) -> PipelinePlan:
    """The plan of a row of the table."""
    name, counts, bandwidths, choices, *_ = ROWS[row]
    return plan_pipeline(
        parse((folder / f"{name}.txt").read_text(), source=name), options(row, choices, counts, bandwidths)
    )


def options(
    row: str, choices: dict[str, object], counts: tuple[int, ...], bandwidths: tuple[float, ...]
) -> Options:
    """The options of a row."""
    del row
    levels = tuple(
        Level(machines=count, bandwidth=bandwidth)
        for count, bandwidth in zip(counts, bandwidths, strict=True)
    )
    return Options(levels=levels, sync="ps", **choices)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS)
def test_the_published_plan_is_found(published: Path, row: str) -> None:
    *_, bottleneck, versus_one, versus_data_parallel, stages = ROWS[row]
    plan = planned(published, row)
    assert plan.bottleneck_seconds == pytest.approx(bottleneck, abs=1e-6)
    assert plan.one_worker_seconds / plan.bottleneck_seconds == pytest.approx(versus_one, abs=1e-3)
    assert plan.data_parallel_seconds / plan.bottleneck_seconds == pytest.approx(
        versus_data_parallel, abs=1e-3
    )
    assert [stage.replicas for stage in plan.stages] == [replicas for _, replicas in stages]
    for stage, (seconds, _) in zip(plan.stages, stages, strict=True):
        if seconds is not None:
            assert stage.compute_seconds == pytest.approx(seconds, abs=1e-6)


def test_three_workers_of_vgg16_hold_the_layers_up_to_the_third_pool(published: Path) -> None:
    first, second = planned(published, "vgg16 on 4").stages
    assert first.nodes[-1] == "node18"
    assert second.nodes[0] == "node19"
    assert [first.warmup, second.warmup] == [1, 0]


def test_a_pipeline_that_waits_longer_than_one_worker_computes_is_not_advised(
    published: Path,
) -> None:
    graph = parse((published / "vgg16.txt").read_text())
    slow = Options(levels=(Level(machines=4, bandwidth=1e8),), sync="ps", ahead=0)
    plan = plan_pipeline(graph, slow)
    assert plan.bottleneck_seconds < plan.one_worker_seconds < plan.expected_seconds
    assert plan.advice == "one worker is best here"
    assert planned(published, "vgg16 on 4").advice == "a pipeline of 2 stages, 3-1 workers, is best here"


def test_the_whole_table_is_planned_in_five_seconds(published: Path) -> None:
    before = time.process_time()
    for row in ROWS:
        planned(published, row)
    assert time.process_time() - before < 5


def test_resnet50_on_64_workers_is_planned_in_ten_seconds(published: Path) -> None:
    graph = parse((published / "resnet50.txt").read_text())
    setting = Options(levels=(Level(machines=64, bandwidth=1e9),), sync="ps")
    before = time.process_time()
    blocks = best_blocks(graph, setting)
    assert time.process_time() - before < 10
    assert sum(block.replicas for block in blocks) == 64
    # 34.9 times one worker: a plan that is evaluated by the formulas, not by the search.
    assert graph.seconds / bottleneck_seconds(blocks, graph, setting) > 34


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_0"])
def test_the_other_published_profiles_can_be_planned(published: Path, name: str) -> None:
    graph = parse((published / f"{name}.txt").read_text())
    ring = Options(levels=(Level(machines=4, bandwidth=1e9),), sync="ring")
    plan = plan_pipeline(graph, replace(ring, published=True))
    assert plan.workers == 4
    assert plan.bottleneck_seconds <= plan.data_parallel_seconds
    # Gradients that travel while backward goes on take no longer than after it.
    assert plan_pipeline(graph, ring).data_parallel_seconds <= plan.data_parallel_seconds


@pytest.mark.parametrize(
    ("workers", "shape", "seconds"), [(16, (7, 6, 3), 0.047801), (2, (1, 1), 0.276674)], ids=["on 16", "on 2"]
)
def test_resnet50_is_planned_as_published_with_transfers_hidden_by_more_in_flight(
    published: Path, workers: int, shape: tuple[int, ...], seconds: float
) -> None:
    graph = parse((published / "resnet50.txt").read_text())
    levels = (Level(machines=workers, bandwidth=1e9),)
    as_published = plan_pipeline(graph, Options(levels=levels, sync="ps", published=True))
    assert (as_published.replicas, as_published.ahead) == (shape, 0)
    assert as_published.expected_seconds == pytest.approx(seconds, abs=1e-6)
    assert as_published.best is Parallelism.PIPELINE
    strict = plan_pipeline(graph, Options(levels=levels, sync="ps", ahead=0))
    assert strict.replicas == shape
    assert strict.expected_seconds > strict.data_parallel_seconds, (
        "with the published number in flight it waits"
    )
    assert strict.best is Parallelism.DATA_PARALLEL
    chosen = plan_pipeline(graph, Options(levels=levels, sync="ps"))
    assert (chosen.replicas, chosen.best) == (shape, Parallelism.PIPELINE)
    assert chosen.ahead > 0
    assert chosen.expected_seconds < chosen.data_parallel_seconds


@pytest.mark.parametrize("name", ["alexnet", "gnmt", "resnet18", "resnet50", "squeezenet1_0", "vgg16"])
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_more_mini_batches_in_flight_never_stop_a_published_pipeline(
    published: Path, name: str, workers: int
) -> None:
    graph = parse((published / f"{name}.txt").read_text())
    seconds = [
        plan_pipeline(
            graph, Options(levels=(Level(machines=workers, bandwidth=1e9),), ahead=ahead)
        ).expected_seconds
        for ahead in (0, 1, 2)
    ]
    assert max(seconds[1:]) <= seconds[0] * (1 + 1e-9)
