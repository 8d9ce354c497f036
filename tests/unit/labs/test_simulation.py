"""Whole runs: what must hold for every scheme, and how the schemes compare.

``TDCS_SIMULATED_JOBS=400`` has so many jobs in the runs that are compared.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.labs.conftest import synthetic_jobs, write_trace

from tdcs.cli.main import main
from tdcs.decide.place.slot_nodes import RESERVE_RATIO
from tdcs_labs.engine import Simulation
from tdcs_labs.run import SCHEMES, simulate
from tdcs_labs.scenario import Scenario, pods_of
from tdcs_labs.store import StoreLimits
from tdcs_labs.trace import TraceJob, read_trace
from tdcs_labs.workload import Sharing, WorkItem, assign_work

JOBS = int(os.environ.get("TDCS_SIMULATED_JOBS", "200"))
SMALL = Scenario(
    nodes=8, cache_bytes=200e9, store=StoreLimits(bytes_per_second=5e8, requests_per_second=4000)
)
PHILLY = Path(__file__).parents[3].parent / "shared" / "data" / "philly-2017-09-to-11.csv"
KEYS = [
    "scheme", "jobs", "meanJctSeconds", "p50JctSeconds", "p99JctSeconds", "makespanSeconds", "gpuIdleFraction",
    "remoteBytes", "localFraction", "evictions", "wallSeconds",
]  # fmt: skip
#: What the run was given, after what came out.
INPUTS = [
    "trace", "limit", "mix", "sharing", "seed", "nodes", "gpusPerNode", "remoteGbps", "remoteRequests",
    "cacheGbPerNode", "nicGbps", "jobsPerCopy", "onLimit",
]  # fmt: skip


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_job_reads_all_its_bytes_and_none_runs_faster_than_its_gpus(scheme: str) -> None:
    work = assign_work(jobs=synthetic_jobs(count=150))
    run = Simulation(work=work, scenario=SMALL, scheme=SCHEMES[scheme])
    run.run()
    for job, item in zip(run.jobs, work, strict=True):
        assert job.started >= item.job.submitted
        assert job.ended - job.started >= item.job.duration * (1 - 1e-6)
        assert job.read_bytes == pytest.approx(job.work, rel=1e-6, abs=10)
        assert 0 <= job.remote_bytes <= job.read_bytes * (1 + 1e-9)
        assert 0 <= job.local_bytes <= job.read_bytes * (1 + 1e-9)
    assert set(run.cluster.free.values()) == {SMALL.gpus_per_node}


def test_jobs_over_the_limit_of_a_copy_wait_less_with_clones_that_cost_the_store_nothing() -> None:
    work = assign_work(jobs=synthetic_jobs(count=60), sharing=Sharing.ALL)
    results = {}
    for clones in (False, True):
        scenario = dataclasses.replace(SMALL, cache_bytes=2e12, jobs_per_copy=2, clones=clones)
        run = Simulation(work=work, scenario=scenario, scheme=SCHEMES["tdcs"])
        share = run._share

        def checked(*, run: Simulation = run, share: Any = share, **more: Any) -> None:
            assert all(len(jobs) <= 2 for jobs in run.cluster.readers.values())
            share(**more)

        run._share = checked  # type: ignore[method-assign]
        run.run()
        results[clones] = run
    waits = {clones: sum(job.started - job.submitted for job in run.jobs) for clones, run in results.items()}
    assert waits[True] < waits[False]
    assert results[True].scheme.loaded_bytes <= results[False].scheme.loaded_bytes * 1.02
    assert any(job.copy for job in results[True].jobs)
    assert not any(job.copy for job in results[False].jobs)


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_gpus_and_store_are_never_used_twice(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked after every event of a run: no node's GPUs, no node's cache and not the store is over-committed."""
    run = Simulation(work=assign_work(jobs=synthetic_jobs(count=80)), scenario=SMALL, scheme=SCHEMES[scheme])
    share = run._share
    events = 0

    def checked(**kwargs: object) -> None:
        nonlocal events
        events += 1
        share(**kwargs)  # type: ignore[arg-type]
        used = dict.fromkeys(run.cluster.free, 0)
        for job in run.cluster.running.values():
            for node, gpus in zip(job.nodes, job.pods, strict=True):
                used[node] += gpus
        assert all(used[node] + run.cluster.free[node] == SMALL.gpus_per_node for node in used)
        reading = sum(job.rate * job.miss * job.cost for job in run.cluster.running.values())
        loading = sum(load.rate * load.cost for load in getattr(run.scheme, "loading", {}).values())
        assert reading + loading <= 1 + 1e-6
        room = getattr(run.scheme, "room", {})
        assert all(-1 <= free <= SMALL.cache_bytes + 1 for free in room.values())

    monkeypatch.setattr(run, "_share", checked)
    run.run()
    assert events > 80


ALL_SCHEMES = """\
import sys
from tdcs.cli.main import main
for scheme in sys.argv[2:]:
    main(
        ["simulate", "trace", "--trace", sys.argv[1], "--nodes", "8", "--scheme", scheme,
         "--cache-gb-per-node", "100", "--json"],
        standalone_mode=False,
    )
"""  # one process for all: to begin takes longer than to run


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What two processes print of a run with each scheme."""
    trace = write_trace(tmp_path_factory.mktemp("trace") / "trace.csv", synthetic_jobs(count=JOBS // 4))
    rows: dict[str, list[dict[str, Any]]] = {scheme: [] for scheme in SCHEMES}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", ALL_SCHEMES, str(trace), *SCHEMES],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        for scheme, line in zip(SCHEMES, done.stdout.splitlines(), strict=True):
            rows[scheme].append(json.loads(line))
    return rows


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_the_same_seed_gives_the_same_run_in_another_process(
    scheme: str, printed: dict[str, list[dict[str, Any]]]
) -> None:
    first, second = printed[scheme]
    assert list(first) == list(second) == KEYS + INPUTS
    assert (first["scheme"], first["nodes"], first["cacheGbPerNode"], first["limit"]) == (
        scheme,
        8,
        100,
        None,
    )
    assert {**first, "wallSeconds": 0} == {**second, "wallSeconds": 0}


@pytest.mark.parametrize("module", ["tdcs.cli", "tdcs.cli.main"])
def test_the_command_runs_as_a_module(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "version"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip()


def test_with_everything_fast_all_schemes_take_the_time_of_the_trace() -> None:
    plenty = Scenario(
        nodes=8, cache_bytes=1e14, nic_rate=1e13, fuse_rate=1e13, native_rate=1e13,
        store=StoreLimits(bytes_per_second=1e15),
    )  # fmt: skip
    work = assign_work(jobs=synthetic_jobs(count=100))
    oracle = simulate(work=work, scenario=plenty, scheme="oracle")
    for scheme in SCHEMES:
        result = simulate(work=work, scenario=plenty, scheme=scheme)
        assert result.gpu_idle_fraction == pytest.approx(0.0, abs=1e-6)
        if scheme in ("direct", "alluxio-lru"):
            # The same placement too, so every single job is the same.
            assert result.completions == pytest.approx(oracle.completions, rel=1e-6)


def test_a_single_job_takes_the_time_that_can_be_reckoned_by_hand() -> None:
    job = TraceJob(submitted=0.0, duration=10_000.0, gpus=8, tenant="a")
    item = next(
        item
        for seed in range(99)
        for item in assign_work(jobs=[job], seed=seed)
        if item.dataset.name == "a/imagenet-1k" and item.model.name == "resnet50"
    )
    scenario = Scenario(nodes=2, page_cache_bytes=1.0, store=StoreLimits(bytes_per_second=3e8))
    read = 8 * 75e6 * 10_000.0
    direct = simulate(work=[item], scenario=scenario, scheme="direct")
    assert direct.makespan == pytest.approx(read / 3e8, rel=1e-6)
    assert direct.remote_bytes == pytest.approx(read, rel=1e-6)
    cached = simulate(work=[item], scenario=scenario, scheme="fluid-like")
    first_epoch = 146.9e9 / 3e8
    assert cached.makespan == pytest.approx(first_epoch + (read - 146.9e9) / 6e8, rel=0.01)
    assert cached.remote_bytes == pytest.approx(146.9e9, rel=0.01)
    # Loading takes what the running job leaves, at least half: the job is done before first epoch plus rest.
    ours = simulate(work=[item], scenario=scenario, scheme="tdcs")
    assert 10_000 < ours.makespan <= cached.makespan * 1.02


def test_a_scarce_store_hurts_least_where_the_policies_decide() -> None:
    work = assign_work(jobs=synthetic_jobs(count=JOBS), mix="image")
    compared = ("oracle", "tdcs", "alluxio-lru", "direct")
    results = {scheme: simulate(work=work, scenario=SMALL, scheme=scheme) for scheme in compared}
    assert results["oracle"].gpu_idle_fraction == 0.0
    assert results["tdcs"].remote_bytes < results["alluxio-lru"].remote_bytes < results["direct"].remote_bytes
    assert results["tdcs"].mean_jct < results["alluxio-lru"].mean_jct < results["direct"].mean_jct


def test_no_more_is_read_locally_than_a_node_can_hold_however_fast_everything_is() -> None:
    """A cache of half of the set: what the page cache leaves finds half of its bytes, on whichever node it is read."""
    work = assign_work(jobs=synthetic_jobs(count=60), mix="image")
    (size,) = {item.dataset.size_bytes for item in work if item.dataset.name.endswith("imagenet-1k")}
    work = [item for item in work if item.dataset.size_bytes == size]
    half = dataclasses.replace(
        SMALL, cache_bytes=size / 2 / (1 - RESERVE_RATIO), page_cache_bytes=1.0, auto_placement=True
    )
    bound = simulate(work=work, scenario=half, scheme="oracle")
    near = simulate(work=work, scenario=half, scheme="oracle-near")
    assert near.local_fraction == pytest.approx(0.5, rel=1e-6)
    assert near.completions == pytest.approx(bound.completions, rel=1e-9)
    enough = dataclasses.replace(half, cache_bytes=2 * size)
    assert simulate(work=work, scenario=enough, scheme="oracle-near").local_fraction == pytest.approx(1.0)
    for scenario in (half, enough):
        ours = simulate(work=work, scenario=dataclasses.replace(scenario, grows=True), scheme="tdcs")
        assert ours.local_fraction <= simulate(
            work=work, scenario=scenario, scheme="oracle-near"
        ).local_fraction * (1 + 1e-9)


def test_a_copy_stays_on_a_node_for_the_job_that_found_it_there() -> None:
    """On two nodes a long job has the copy come to the second one, and a longer one begins there when it has ended: the
    copy is there until that ends, too."""
    jobs = [
        TraceJob(submitted=0.0, duration=40_000.0, gpus=8, tenant="a"),
        TraceJob(submitted=1.0, duration=3_000.0, gpus=8, tenant="a"),
        TraceJob(submitted=2.0, duration=30_000.0, gpus=8, tenant="a"),
        TraceJob(submitted=6_000.0, duration=100.0, gpus=8, tenant="b"),  # the cache is granted again
    ]
    items = {item.dataset.name: item for item in assign_work(jobs=synthetic_jobs(count=200), mix="image")}
    item_by_tenant = {tenant: items[f"{tenant}/imagenet-1k"] for tenant in "ab"}
    work = [
        WorkItem(job=job, model=item_by_tenant[job.tenant].model, dataset=item_by_tenant[job.tenant].dataset)
        for job in jobs
    ]
    scenario = dataclasses.replace(
        SMALL, nodes=2, page_cache_bytes=1.0, cache_bytes=1e12, auto_placement=True, grows=True
    )
    simulation = Simulation(work=work, scenario=scenario, scheme=SCHEMES["tdcs"])
    simulation.run()
    last = simulation.jobs[2]
    assert last.local_bytes / last.read_bytes > 0.99


def test_a_prefix_of_a_trace_gets_the_same_work_as_the_whole() -> None:
    jobs = synthetic_jobs(count=100)
    whole, part = assign_work(jobs=jobs), assign_work(jobs=jobs[:40])
    assert [(item.model, item.dataset) for item in whole[:40]] == [
        (item.model, item.dataset) for item in part
    ]
    assert assign_work(jobs=jobs, seed=2) != whole


def test_sharing_decides_how_many_datasets_there_are() -> None:
    jobs = synthetic_jobs(count=400)
    count = {
        sharing: len({item.dataset.name for item in assign_work(jobs=jobs, sharing=sharing)})
        for sharing in Sharing
    }
    assert count[Sharing.ALL] <= 7
    assert count[Sharing.ALL] < count[Sharing.TENANT] < count[Sharing.VERSIONS]


@pytest.mark.parametrize(
    ("gpus", "pods"), [(1, (1,)), (8, (8,)), (12, (6, 6)), (16, (8, 8)), (17, (6, 6, 5)), (24, (8, 8, 8))]
)
def test_a_job_takes_the_fewest_pods(gpus: int, pods: tuple[int, ...]) -> None:
    assert pods_of(gpus=gpus, gpus_per_node=8) == pods


def test_the_command_shows_a_table_and_draws(trace_file: Path, tmp_path: Path) -> None:
    plot = tmp_path / "run.png"
    options = ["--trace", str(trace_file), "--nodes", "4", "--limit", "50", "--plot", str(plot)]
    result = CliRunner().invoke(main, ["simulate", "trace", *options])
    assert result.exit_code == 0, result.output
    assert "mean completion time" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(
    not PHILLY.exists(), reason=f"the Philly trace is not at {PHILLY.name} next to the checkout"
)
def test_on_a_part_of_the_real_trace_the_policies_come_near_the_bound_and_lose_to_no_other() -> None:
    jobs = [job for job in read_trace(path=PHILLY) if 30.5 * 86_400 <= job.submitted < 30.75 * 86_400]
    jobs = [dataclasses.replace(job, submitted=job.submitted - jobs[0].submitted) for job in jobs]
    mean_jct = {}
    for scheme in ("tdcs", "oracle", "alluxio-lru", "fluid-like"):
        mean_jct[scheme] = simulate(work=assign_work(jobs=jobs), scenario=Scenario(), scheme=scheme).mean_jct
    assert mean_jct["tdcs"] <= 1.15 * mean_jct["oracle"]
    assert mean_jct["tdcs"] <= 1.01 * min(mean_jct["alluxio-lru"], mean_jct["fluid-like"])


def test_tenants_that_take_turns_wait_more_evenly_than_behind_one_that_queues_all_at_once() -> None:
    """One tenant submits many jobs; seconds later each of the others submits one."""
    jobs = [TraceJob(submitted=float(number), duration=600.0, gpus=8, tenant="many") for number in range(60)]
    jobs += [
        TraceJob(submitted=60.0 + number, duration=600.0, gpus=8, tenant=f"few-{number}")
        for number in range(6)
    ]
    results = {
        fair: simulate(
            work=assign_work(jobs=jobs),
            scenario=dataclasses.replace(SMALL, nodes=2, fair_share=fair),
            scheme="oracle",
        )
        for fair in (False, True)
    }
    plain, fair = results[False].fairness(), results[True].fairness()
    assert fair["worstSlowdown"] < plain["worstSlowdown"]
    assert max(results[True].slowdowns[f"few-{number}"] for number in range(6)) < (
        min(results[False].slowdowns[f"few-{number}"] for number in range(6)) / 2
    )
    assert results[True].makespan == pytest.approx(results[False].makespan, rel=0.05)
