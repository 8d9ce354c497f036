"""Write docs/simulation.md and its plots from the results in bench/results. `make simulation-docs` runs it."""

import argparse
import json
import sys
from pathlib import Path

from bench import model_rows, rule_callers
from bench.simulation_matrix import (
    MIXES as SWEPT,
)
from bench.simulation_matrix import (
    SCHEMES,
    STOCK_CLIENT,
    WINDOWS,
    Case,
    Ratio,
    Results,
    mean_hours,
    of_seeds,
    ratio,
    read_results,
)

from tdcs.simulate import paper
from tdcs.simulate.plots import plot_bars
from tdcs.simulate.workload import BURST_GAP, CORPORA, MIXES, MODELS

#: What is asked of the mean completion times: a mix, a scheme over tdcs, and the least ratio.
BARS = (
    ("image", "alluxio-lru", 2.0),
    ("image", "fluid-like", 2.0),
    ("language", "alluxio-lru", 0.99),
    ("language", "fluid-like", 0.99),
    ("image", "oracle", 1 / 1.15),
    ("language", "oracle", 1 / 1.15),
)


def number(row: dict[str, object], key: str) -> float:
    """A number of a result."""
    return float(str(row[key]))


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a sentence when there are no results for it."""
    if not rows:
        return "Not measured yet: run `make simulation-docs`."
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def weeks(week: int | None) -> str:
    """A part of the trace in words."""
    return "all" if week is None else f"{week} and {week + 1}"


def span(found: Ratio | None) -> str:
    """A ratio, and the least and most over the seeds."""
    if found is None:
        return "-"
    return f"{found.mean:.2f}" + (f" ({found.least:.2f} to {found.most:.2f})" if found.seeds > 1 else "")


def mean_of(rows: dict[int, dict[str, object]], key: str) -> float:
    """The mean of a number over the seeds."""
    return sum(number(row, key) for row in rows.values()) / len(rows)


def whole(results: Results, *, mix: str) -> str:
    """All schemes on the whole trace."""
    rows = []
    for scheme in SCHEMES:
        found = of_seeds(results, mix=mix, scheme=scheme, week=None)
        if not found:
            continue
        rows.append(
            [
                scheme,
                str(len(found)),
                f"{mean_hours(list(found.values())):,.1f}",
                span(ratio(results, mix=mix, week=None, over=scheme, under="tdcs")),
                f"{mean_of(found, 'p50JctSeconds') / 3600:,.1f}",
                f"{mean_of(found, 'p99JctSeconds') / 3600:,.1f}",
                f"{mean_of(found, 'makespanSeconds') / 86400:,.1f}",
                f"{mean_of(found, 'gpuIdleFraction'):.2%}",
                f"{mean_of(found, 'remoteBytes') / 1e12:,.0f}",
                f"{mean_of(found, 'localFraction'):.0%}",
                f"{mean_of(found, 'evictions'):,.0f}",
                f"{mean_of(found, 'clones'):,.0f}",
                f"{mean_of(found, 'cpuSeconds'):.0f}",
            ]
        )
    header = [
        "scheme",
        "seeds",
        "mean h",
        "x tdcs",
        "median h",
        "p99 h",
        "makespan d",
        "GPU time stalled",
        "store TB",
        "read on own nodes",
        "evictions",
        "clones",
        "CPU s",
    ]
    return table(header, rows)


def windows(results: Results, *, mix: str) -> str:
    """Two weeks at a time: mean completion times over that of tdcs, and over that of the oracle."""
    rows = []
    for week in (*WINDOWS, None):
        ours = of_seeds(results, mix=mix, scheme="tdcs", week=week)
        if not ours:
            continue
        cells = [
            weeks(week),
            str(len(ours)),
            f"{mean_of(ours, 'jobs'):,.0f}",
            f"{mean_hours(list(ours.values())):,.1f}",
            f"{mean_of(ours, 'gpuIdleFraction'):.2%}",
            span(ratio(results, mix=mix, week=week, over="oracle", under="tdcs")),
        ]
        for scheme in ("alluxio-lru", "fluid-like"):
            theirs = of_seeds(results, mix=mix, scheme=scheme, week=week)
            bound = ratio(results, mix=mix, week=week, over=scheme, under="oracle")
            cells += [
                f"{mean_of(theirs, 'gpuIdleFraction'):.1%}" if theirs else "-",
                span(ratio(results, mix=mix, week=week, over=scheme, under="tdcs")),
                f"{bound.mean:.2f}" if bound else "-",
            ]
        rows.append(cells)
    header = ["weeks", "seeds", "jobs", "tdcs mean h", "tdcs stalled", "oracle / tdcs"]
    for scheme in ("alluxio-lru", "fluid-like"):
        header += [f"{scheme} stalled", f"{scheme} / tdcs", f"{scheme} / oracle: the bound"]
    return table(header, rows)


def bars(results: Results) -> str:
    """What was asked for, what was reached on the whole trace and in two weeks at a time, and what could be."""
    rows = []
    for mix, scheme, bar in BARS:
        found: dict[int | None, Ratio] = {}
        bounds: dict[int | None, float] = {}
        for week in (None, *WINDOWS):
            ours = ratio(results, mix=mix, week=week, over=scheme, under="tdcs")
            bound = ratio(results, mix=mix, week=week, over=scheme, under="oracle")
            if ours is not None and bound is not None:
                found[week], bounds[week] = ours, bound.mean
        if not found:
            continue
        parts = {week: one for week, one in found.items() if week is not None}
        worst = min(parts, key=lambda week: parts[week].mean) if parts else None
        possible = [week for week in parts if bounds[week] >= bar]
        met = [week for week in parts if parts[week].mean >= bar]
        rows.append(
            [
                f"{mix}: {scheme} over tdcs",
                f">= {bar:.2f}",
                (span(found[None]) + ("" if found[None].mean >= bar else ", missed"))
                if None in found
                else "-",
                f"{span(parts[worst])}, weeks {weeks(worst)}" if worst is not None else "-",
                f"{len(met)} of {len(parts)}",
                "-" if scheme == "oracle" else f"{len(possible)} of {len(parts)}",
            ]
        )
    return table(
        [
            "mean completion time",
            "bar",
            "whole trace",
            "worst two weeks",
            "two weeks that meet it",
            "two weeks in which even the oracle would",
        ],
        rows,
    )


def gpu_time(results: Results) -> str:
    """The GPU time that the same work takes, which no queue blurs: worst over the parts of the trace."""
    rows = []
    for mix in SWEPT:
        for scheme in SCHEMES[1:]:
            found = {}
            for week in (None, *WINDOWS):
                ours = of_seeds(results, mix=mix, scheme="tdcs", week=week)
                theirs = of_seeds(results, mix=mix, scheme=scheme, week=week)
                if ours and theirs:
                    found[week] = (1 - mean_of(ours, "gpuIdleFraction")) / (
                        1 - mean_of(theirs, "gpuIdleFraction")
                    )
            if found:
                least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
                rows.append(
                    [
                        mix,
                        scheme,
                        f"{found[None]:.3f}" if None in found else "-",
                        f"{found[least]:.3f} ({weeks(least)})",
                        f"{found[most]:.3f} ({weeks(most)})",
                    ]
                )
    return table(["mix", "scheme over tdcs", "whole trace", "least (weeks)", "most (weeks)"], rows)


def stock(results: Results) -> str:
    """alluxio-lru with the client that stock Alluxio was published with."""
    rows = []
    for week in (*WINDOWS, None):
        found = ratio(results, mix="image", week=week, over="alluxio-lru", under="tdcs", client="stock")
        theirs = of_seeds(results, mix="image", scheme="alluxio-lru", week=week, client="stock")
        tuned = ratio(results, mix="image", week=week, over="alluxio-lru", under="tdcs")
        if found is not None:
            rows.append([weeks(week), f"{mean_of(theirs, 'gpuIdleFraction'):.1%}", span(found), span(tuned)])
    return table(["weeks", "stalled", "stock client / tdcs", "tuned client / tdcs"], rows)


def shown_weeks(results: Results, *, mix: str) -> list[int]:
    """The windows that have a result for each scheme of the plots."""
    return [
        week
        for week in WINDOWS
        if all(Case(mix=mix, scheme=scheme, first_week=week) in results for scheme in SCHEMES[:4])
    ]


def picture(results: Results, *, mix: str) -> str:
    """The reference to a mix's plot, when there is one."""
    if not shown_weeks(results, mix=mix):
        return ""
    return f"![Two weeks at a time, mix {mix}](images/simulation-{mix}.svg)"


def sharing(results: Results) -> str:
    """The sweep of who shares what."""
    rows = []
    for kind in ("all", "tenant", "versions"):
        found = {
            scheme: results.get(Case(mix="image", scheme=scheme, first_week=4, sharing=kind))
            for scheme in SCHEMES[:4]
        }
        ours = found.pop("tdcs")
        if ours is None:
            continue
        cells = [kind, f"{mean_hours([ours]):,.1f}", f"{number(ours, 'gpuIdleFraction'):.2%}"]
        cells += [f"{mean_hours([row]) / mean_hours([ours]):.2f}" if row else "-" for row in found.values()]
        rows.append(cells)
    return table(["sharing", "tdcs mean h", "tdcs stalled", *SCHEMES[1:4]], rows)


def paper_table() -> str:
    """The paper's figure."""
    rows = []
    for row in paper.rows():
        checks = "; ".join(
            f"{check.published.name}: {check.ratio:.3f} {'holds' if check.holds else 'FAILS'}"
            for check in row.checks
        )
        rows.append(
            [
                str(row.gpus),
                row.configuration,
                f"{row.images_per_second:,.0f}",
                f"{row.ratio_to_direct:.2f}",
                checks,
            ]
        )
    return table(["GPUs", "configuration", "images/s", "x direct", "published ranges"], rows)


def rules() -> str:
    """The rules by who calls them."""
    by_callers: dict[tuple[str, ...], list[str]] = {}
    for rule, parts in sorted(rule_callers.callers().items()):
        by_callers.setdefault(tuple(parts), []).append(f"`{rule}`")
    rows = [
        [" and ".join(parts) or "nobody yet", ", ".join(found)]
        for parts, found in sorted(by_callers.items(), key=lambda item: (-len(item[0]), item[0]))
    ]
    return table(["called by", "rules"], rows)


def plots(results: Results, *, folder: Path) -> None:
    """The pictures of the page."""
    rows = list(paper.rows())
    plot_bars(
        path=folder / "simulation-paper.svg",
        groups=[f"{gpus} GPUs" for gpus in paper.SIZES],
        bars={
            name: [row.images_per_second for row in rows if row.configuration == name]
            for name in paper.CONFIGURATIONS
        },
        ylabel="images per second",
        title="ResNet50 on ImageNet, modelled",
    )
    shown = SCHEMES[:4]
    for mix in ("image", "language"):
        chosen = shown_weeks(results, mix=mix)
        if not chosen:
            continue
        plot_bars(
            path=folder / f"simulation-{mix}.svg",
            groups=[f"weeks {week}-{week + 1}" for week in chosen],
            bars={
                scheme: [
                    mean_hours(list(of_seeds(results, mix=mix, scheme=scheme, week=week).values()))
                    for week in chosen
                ]
                for scheme in shown
            },
            ylabel="mean hours from submission to end",
            title=f"Two weeks of the trace at a time, mix {mix}",
        )


def facts(results: Results) -> dict[str, str]:
    """The numbers that the text of the page quotes."""
    ours = results[Case(mix="image", scheme="tdcs")]
    errors = model_rows.errors()
    placed = Path(__file__).parent / "results" / "placement.json"
    placement = json.loads(placed.read_text(encoding="utf-8")) if placed.exists() else None
    return {
        "placement": (
            f"On {placement['instances']} random instances the policy reaches {placement['mean']:.2%} of the optimum "
            f"on average and {placement['worst']:.1%} at worst; {placement['shareAtBar']:.1%} of the instances reach "
            f"95 %, {placement['belowBar']} do not. HiGHS proved {placement['provenOptimal']} optima within its time, "
            f"and on these the policy reaches {placement['meanOfProven']:.2%} on average and "
            f"{placement['worstOfProven']:.1%} at worst; for the others the solver's upper bound stands in, so the "
            f"true ratios are better. The policy takes {placement['policyMillisecondsMean']:.0f} ms per instance on "
            "average."
            if placement
            else "Not measured yet: run `bench/placement_optimum.py`."
        ),
        "errors": ", ".join(f"{name} {error:+.1%}" for name, error in errors.items()),
        "cpu": f"{number(ours, 'cpuSeconds'):.0f}",
        "memory": f"{number(ours, 'peakMegabytes'):.0f}",
        "models": ", ".join(f"{one.name} {one.rate / 1e6:.0f}" for one in MODELS),
        "corpora": ", ".join(
            f"{one.name} {one.size_bytes / 1e9:,.0f} GB (weight {one.weight:g})" for one in CORPORA
        ),
        "mixes": "; ".join(f"`{name}` {'-'.join(map(str, shares))}" for name, shares in MIXES.items()),
        "gap": f"{BURST_GAP / 60:.0f}",
        "stock_client": f"{STOCK_CLIENT / 1e6:.0f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).parent
    parser.add_argument("--results", type=Path, default=here / "results" / "simulation.jsonl")
    parser.add_argument("--docs", type=Path, default=here.parent / "docs")
    options = parser.parse_args()
    results = read_results(options.results)
    template = (here / "simulation_page.md.in").read_text(encoding="utf-8")
    parts = {
        **facts(results),
        "whole_image": whole(results, mix="image"),
        "whole_balanced": whole(results, mix="balanced"),
        "whole_language": whole(results, mix="language"),
        "windows_image": windows(results, mix="image"),
        "windows_language": windows(results, mix="language"),
        "windows_balanced": windows(results, mix="balanced"),
        "sharing": sharing(results),
        "stock": stock(results),
        "gpu_time": gpu_time(results),
        "bars": bars(results),
        "rules": rules(),
        **{f"plot_{mix}": picture(results, mix=mix) for mix in ("image", "language")},
        "paper": paper_table(),
    }
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    plots(results, folder=options.docs / "images")
    (options.docs / "simulation.md").write_text(template, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
