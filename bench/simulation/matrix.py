"""Run the simulator over mixes, schemes, windows of the trace, seeds and kinds of sharing.

A queue of gangs is chaotic, so what is compared is run with three seeds. A seed draws other models and
datasets for the jobs, and from the second on moves each submission by less than a second, which is
below what the trace resolves: so the scheme `oracle`, which no dataset matters to, shows how much
of a difference is chance.

Every run becomes one line of a JSON Lines file; runs that are in the file already are not repeated, so
an interrupted sweep goes on where it stopped. `bench/simulation/page.py` makes the page from it; the order is
such that a sweep that is stopped leaves something to say. With --quick it ends after one week with two seeds and the
windows with one, with --whole it goes on to the whole trace, which takes hours. With --summary it prints the bars as
one JSON line instead of running anything.
"""

import argparse
import dataclasses
import json
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tdcs_labs.run import simulate
from tdcs_labs.scenario import Scenario
from tdcs_labs.trace import TraceJob, read_trace
from tdcs_labs.workload import Sharing, assign_work

WEEK = 7 * 86_400.0
SCHEMES = ("tdcs", "oracle", "alluxio-lru", "fluid-like", "direct")
MIXES = ("image", "language", "balanced")
SEEDS = (1, 2, 3)
#: As `tdcs`, and no pod is placed by its data.
OPTED_OUT = "tdcs-opted-out"
#: First weeks of the two-week windows; the weeks before hold a few jobs only.
WINDOWS = (2, 3, 4, 5, 6, 7)
#: The week and the seeds of the quick sweep.
QUICK_WEEK, QUICK_SEEDS = 4, (1, 2)

#: Grows when what is simulated changes, so that older rows cannot be compared with newer ones. 1: the scheme `tdcs`
#: called rules of its own. 2: it calls the operator's grants, and `fluid-like` grows and loads its caches. 3: nodes are
#: set aside also while no GPU is free. 4: small pods of the scheme `tdcs` leave empty nodes to larger ones that wait.
MODEL = 4

#: The last change that a scheme was touched by, where that was an earlier one: its rows are as they would be now.
MODEL_OF_SCHEME = dict.fromkeys(("oracle", "alluxio-lru", "fluid-like", "direct", "tdcs-opted-out"), 3)


#: Bytes per second of a stock FUSE client: 28.77 % (published for stock Alluxio on V100) of the 9,301.6
#: images of 114,660 bytes per second that 8 V100 take.
STOCK_CLIENT = 0.2877 * 9301.6 * 114_660


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One run. `first_week` None means the whole trace, else so many `weeks` from there; `client` is the FUSE client,
    tuned or stock."""

    mix: str
    scheme: str
    first_week: int | None = None
    sharing: str = "tenant"
    seed: int = 1
    client: str = "tuned"
    weeks: int = 2

    def scenario(self) -> Scenario:
        return Scenario(fuse_rate=STOCK_CLIENT) if self.client == "stock" else Scenario()


def cases(*, whole: bool = False) -> Iterator[Case]:
    """What is run, most telling first; `whole`: the whole trace, too."""
    yield from quick_cases()
    for week in WINDOWS:
        for scheme in SCHEMES[:4]:
            yield Case(mix="language", scheme=scheme, first_week=week)
    for mix in MIXES[:2]:
        for week in WINDOWS:
            yield Case(mix=mix, scheme=OPTED_OUT, first_week=week)
    for week in WINDOWS:
        yield Case(mix="image", scheme="alluxio-lru", first_week=week, client="stock")
    for seed in SEEDS[1:]:
        for mix in MIXES[:2]:
            for week in WINDOWS:
                for scheme in SCHEMES[:4]:
                    yield Case(mix=mix, scheme=scheme, first_week=week, seed=seed)
    for sharing in ("versions", "all"):
        for scheme in SCHEMES[:4]:
            yield Case(mix="image", scheme=scheme, first_week=4, sharing=sharing)
    if whole:
        yield from whole_cases()


def quick_cases() -> Iterator[Case]:
    """One week with two seeds, and two weeks at a time with one, for a look at what a change does."""
    for mix in MIXES[:2]:
        for seed in QUICK_SEEDS:
            for scheme in SCHEMES[:4]:
                yield Case(mix=mix, scheme=scheme, first_week=QUICK_WEEK, seed=seed, weeks=1)
    for week in WINDOWS:
        for scheme in SCHEMES[:4]:
            yield Case(mix="image", scheme=scheme, first_week=week)


def whole_cases() -> Iterator[Case]:
    """The whole trace."""
    for seed in SEEDS:
        for mix in MIXES[:2]:
            for scheme in SCHEMES[:4]:
                yield Case(mix=mix, scheme=scheme, seed=seed)
    for scheme in SCHEMES[:4]:
        yield Case(mix="balanced", scheme=scheme)
    yield Case(mix="image", scheme="alluxio-lru", client="stock")
    for mix in MIXES:
        yield Case(mix=mix, scheme="direct")


#: The rows of the file of results by their case.
Results = dict[Case, dict[str, object]]


def window(*, jobs: Sequence[TraceJob], first_week: int | None, weeks: int = 2) -> list[TraceJob]:
    """Some weeks of a trace, or all of it; times begin at the first job."""
    if first_week is None:
        return list(jobs)
    start = first_week * WEEK
    chosen = [job for job in jobs if start <= job.submitted < start + weeks * WEEK]
    return [dataclasses.replace(job, submitted=job.submitted - chosen[0].submitted) for job in chosen]


def jittered(*, jobs: Sequence[TraceJob], seed: int) -> list[TraceJob]:
    """The jobs, each submitted less than a second later; as they are for the first seed."""
    if seed == SEEDS[0]:
        return list(jobs)
    draw = random.Random(seed)  # noqa: S311  (a simulation, no secret)
    moved = [dataclasses.replace(job, submitted=job.submitted + draw.random()) for job in jobs]
    return sorted(moved, key=lambda job: job.submitted)


def run(*, case: Case, jobs: Sequence[TraceJob]) -> dict[str, object]:
    """Simulate one case; the CPU time tells the speed even on a busy machine."""
    part = jittered(jobs=window(jobs=jobs, first_week=case.first_week, weeks=case.weeks), seed=case.seed)
    work = assign_work(jobs=part, mix=case.mix, seed=case.seed, sharing=Sharing(case.sharing))
    began = time.process_time()
    result = simulate(work=work, scenario=case.scenario(), scheme=case.scheme)
    return {
        **dataclasses.asdict(case),
        **result.document(),
        "model": model_of(case),
        "cpuSeconds": round(time.process_time() - began, 2),
        "peakMegabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }


def read_results(path: Path) -> Results:
    """The results by their case."""
    results: Results = {}
    if path.exists():
        names = {field.name for field in dataclasses.fields(Case)}
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            results[Case(**{name: value for name, value in row.items() if name in names})] = row
    return results


def model_of(case: Case) -> int:
    """The change of what is simulated that a case was last touched by."""
    return MODEL_OF_SCHEME.get(case.scheme, MODEL)


def is_older(results: Results) -> bool:
    """Whether some of the rows are of an older simulator."""
    return any(int(str(row.get("model", 1))) < model_of(case) for case, row in results.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """Mean completion times of a scheme over those of another: of the means over the seeds, and per seed."""

    mean: float
    least: float
    most: float
    seeds: int


def mean_hours(rows: Sequence[dict[str, object]]) -> float:
    """The mean completion time over several runs, in hours."""
    return sum(float(str(row["meanJctSeconds"])) for row in rows) / len(rows) / 3600


def of_seeds(
    results: Results, *, mix: str, scheme: str, week: int | None, client: str = "tuned"
) -> dict[int, dict[str, object]]:
    """The runs of one case by seed."""
    cases = {seed: Case(mix=mix, scheme=scheme, first_week=week, seed=seed, client=client) for seed in SEEDS}
    return {seed: results[case] for seed, case in cases.items() if case in results}


def ratio(
    results: Results, *, mix: str, week: int | None, over: str, under: str, client: str = "tuned"
) -> Ratio | None:
    """How many times as long the jobs of scheme `over` take as those of `under`; None when not run yet."""
    above = of_seeds(results, mix=mix, scheme=over, week=week, client=client)
    below = of_seeds(results, mix=mix, scheme=under, week=week)
    seeds = sorted(above.keys() & below.keys())
    if not seeds:
        return None
    ratios = [mean_hours([above[seed]]) / mean_hours([below[seed]]) for seed in seeds]
    mean = mean_hours([above[seed] for seed in seeds]) / mean_hours([below[seed] for seed in seeds])
    return Ratio(mean=mean, least=min(ratios), most=max(ratios), seeds=len(seeds))


def summary(results: Results) -> dict[str, object]:
    """Each bar of the trace as a number: ratios of mean completion times, over all and over each window.

    `bound` is the baseline over the oracle: what the best of all stores could gain there.
    """
    figures: dict[str, object] = {"bench": "simulation_matrix"}
    for mix in MIXES:
        for scheme in SCHEMES[1:]:
            parts = {}
            for week in (None, *WINDOWS):
                ours = ratio(results, mix=mix, week=week, over=scheme, under="tdcs")
                bound = ratio(results, mix=mix, week=week, over=scheme, under="oracle")
                if ours is not None and bound is not None:
                    parts["all" if week is None else f"weeks {week}-{week + 1}"] = {
                        "ratio": round(ours.mean, 3),
                        "bound": round(bound.mean, 3),
                        "seeds": ours.seeds,
                    }
            figures[f"{mix}/{scheme}"] = parts
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", help="run only cases whose JSON contains this text")
    parser.add_argument(
        "--quick", action="store_true", help="one week with two seeds, and the windows with one"
    )
    parser.add_argument("--whole", action="store_true", help="the whole trace, too")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.summary:
        print(json.dumps(summary(read_results(options.results))))
        return 0
    jobs = read_trace(path=options.trace)
    for case in quick_cases() if options.quick else cases(whole=options.whole):
        if case in read_results(options.results):
            continue
        if options.only and options.only not in json.dumps(dataclasses.asdict(case)):
            continue
        row = run(case=case, jobs=jobs)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
