"""Run the simulator over mixes, schemes, windows of the trace and kinds of sharing.

Every run becomes one line of a JSON Lines file; runs that are in the file already are not repeated, so
an interrupted sweep goes on where it stopped. `bench/simulation_page.py` makes the page from it. With
--summary it prints the bars as one JSON line instead of running anything.
"""

import argparse
import dataclasses
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tdcs.simulate.run import simulate
from tdcs.simulate.scenario import Scenario
from tdcs.simulate.trace import TraceJob, read_trace
from tdcs.simulate.workload import Sharing, assign_work

WEEK = 7 * 86_400.0
SCHEMES = ("tdcs", "oracle", "alluxio-lru", "fluid-like", "direct")
MIXES = ("image", "language", "balanced")
#: First weeks of the two-week windows; the weeks before hold a few jobs only.
WINDOWS = (2, 3, 4, 5, 6, 7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One run. `first_week` None means the whole trace; `jobs` limits it."""

    mix: str
    scheme: str
    first_week: int | None = None
    sharing: str = "tenant"

    def key(self) -> tuple[object, ...]:
        return dataclasses.astuple(self)


def cases() -> Iterator[Case]:
    """What is run, most telling first."""
    for scheme in SCHEMES:
        yield Case(mix="image", scheme=scheme)
    for scheme in SCHEMES[:4]:
        yield Case(mix="language", scheme=scheme)
    for week in WINDOWS:
        for scheme in SCHEMES[:4]:
            yield Case(mix="image", scheme=scheme, first_week=week)
    for sharing in ("versions", "all"):
        for scheme in SCHEMES[:4]:
            yield Case(mix="image", scheme=scheme, first_week=4, sharing=sharing)
    for scheme in SCHEMES:
        yield Case(mix="balanced", scheme=scheme)
    for week in WINDOWS:
        for scheme in SCHEMES[:4]:
            yield Case(mix="language", scheme=scheme, first_week=week)
    yield Case(mix="language", scheme="direct")


def window(*, jobs: Sequence[TraceJob], first_week: int | None) -> list[TraceJob]:
    """Two weeks of a trace, or all of it; times begin at the first job."""
    if first_week is None:
        return list(jobs)
    start = first_week * WEEK
    chosen = [job for job in jobs if start <= job.submitted < start + 2 * WEEK]
    return [dataclasses.replace(job, submitted=job.submitted - chosen[0].submitted) for job in chosen]


def run(*, case: Case, jobs: Sequence[TraceJob]) -> dict[str, object]:
    """Simulate one case; the CPU time tells the speed even on a busy machine."""
    part = window(jobs=jobs, first_week=case.first_week)
    work = assign_work(jobs=part, mix=case.mix, sharing=Sharing(case.sharing))
    began = time.process_time()
    result = simulate(work=work, scenario=Scenario(), scheme=case.scheme)
    return {
        **dataclasses.asdict(case),
        **result.document(),
        "cpuSeconds": round(time.process_time() - began, 2),
        "peakMegabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }


def read_results(path: Path) -> dict[tuple[object, ...], dict[str, object]]:
    """The results by their case."""
    results: dict[tuple[object, ...], dict[str, object]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            results[row["mix"], row["scheme"], row["first_week"], row["sharing"]] = row
    return results


def summary(results: dict[tuple[object, ...], dict[str, object]]) -> dict[str, object]:
    """Each bar of the trace as a number: ratios of mean completion times, worst over the windows."""

    def ratios(*, mix: str, scheme: str) -> dict[str, float]:
        found = {}
        for week in (None, *WINDOWS):
            ours = results.get((mix, "tdcs", week, "tenant"))
            theirs = results.get((mix, scheme, week, "tenant"))
            if ours and theirs:
                name = "all" if week is None else f"weeks {week}-{week + 1}"
                found[name] = round(
                    float(str(theirs["meanJctSeconds"])) / float(str(ours["meanJctSeconds"])), 3
                )
        return found

    whole = results.get(("image", "tdcs", None, "tenant"), {})
    return {
        "bench": "simulation_matrix",
        **{f"{mix}/{scheme}": ratios(mix=mix, scheme=scheme) for mix in MIXES for scheme in SCHEMES[1:]},
        "wholeTraceCpuSeconds": whole.get("cpuSeconds"),
        "wholeTracePeakMegabytes": whole.get("peakMegabytes"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", help="run only cases whose JSON contains this text")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.summary:
        print(json.dumps(summary(read_results(options.results))))
        return 0
    jobs = read_trace(path=options.trace)
    for case in cases():
        if case.key() in read_results(options.results):
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
