"""Write docs/simulation.md and its plots from the results in bench/results. `make simulation-docs` runs it."""

import argparse
import json
import sys
from pathlib import Path

from bench import model_rows
from bench.simulation_matrix import SCHEMES, WINDOWS, read_results

from tdcs.simulate import paper
from tdcs.simulate.plots import plot_bars
from tdcs.simulate.workload import BURST_GAP, CORPORA, MIXES, MODELS

Results = dict[tuple[object, ...], dict[str, object]]


def number(row: dict[str, object], key: str) -> float:
    """A number of a result."""
    return float(str(row[key]))


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a sentence when there are no results for it."""
    if not rows:
        return "Not measured yet: run `make simulation-docs`."
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def whole(results: Results, *, mix: str) -> str:
    """All schemes on the whole trace."""
    ours = results.get((mix, "tdcs", None, "tenant"))
    rows = []
    for scheme in SCHEMES:
        row = results.get((mix, scheme, None, "tenant"))
        if row is None or ours is None:
            continue
        rows.append(
            [
                scheme,
                f"{number(row, 'meanJctSeconds') / 3600:,.1f}",
                f"{number(row, 'meanJctSeconds') / number(ours, 'meanJctSeconds'):.2f}",
                f"{number(row, 'p50JctSeconds') / 3600:,.1f}",
                f"{number(row, 'p99JctSeconds') / 3600:,.1f}",
                f"{number(row, 'makespanSeconds') / 86400:,.1f}",
                f"{number(row, 'gpuIdleFraction'):.2%}",
                f"{number(row, 'remoteBytes') / 1e12:,.0f}",
                f"{number(row, 'evictions'):,.0f}",
                f"{number(row, 'clones'):,.0f}",
                f"{number(row, 'cpuSeconds'):.0f}",
            ]
        )
    header = [
        "scheme",
        "mean h",
        "x tdcs",
        "median h",
        "p99 h",
        "makespan d",
        "GPU time stalled",
        "store TB",
        "evictions",
        "clones",
        "CPU s",
    ]
    return table(header, rows)


def windows(results: Results, *, mix: str) -> str:
    """Two weeks at a time: mean completion time over that of tdcs."""
    rows = []
    for week in (*WINDOWS, None):
        ours = results.get((mix, "tdcs", week, "tenant"))
        if ours is None:
            continue
        cells = [
            "all" if week is None else f"{week} and {week + 1}",
            f"{number(ours, 'jobs'):,.0f}",
            f"{number(ours, 'meanJctSeconds') / 3600:,.1f}",
            f"{number(ours, 'gpuIdleFraction'):.2%}",
        ]
        for scheme in ("oracle", "alluxio-lru", "fluid-like"):
            row = results.get((mix, scheme, week, "tenant"))
            if row is None:
                cells.append("-")
                continue
            ratio = number(row, "meanJctSeconds") / number(ours, "meanJctSeconds")
            stalled = f" ({number(row, 'gpuIdleFraction'):.1%})" if scheme != "oracle" else ""
            cells.append(f"{ratio:.2f}{stalled}")
        rows.append(cells)
    return table(
        ["weeks", "jobs", "tdcs mean h", "tdcs stalled", "oracle", "alluxio-lru", "fluid-like"], rows
    )


def bars(results: Results) -> str:
    """What was asked for, what was reached on the whole trace, and in the worst two weeks."""

    def ratios(mix: str, scheme: str) -> dict[int | None, float]:
        found = {}
        for week in (None, *WINDOWS):
            ours, row = results.get((mix, "tdcs", week, "tenant")), results.get((mix, scheme, week, "tenant"))
            if ours and row:
                found[week] = number(row, "meanJctSeconds") / number(ours, "meanJctSeconds")
        return found

    rows = []
    for mix, scheme, bar in (
        ("image", "alluxio-lru", 2.0),
        ("image", "fluid-like", 2.0),
        ("language", "alluxio-lru", 0.99),
        ("language", "fluid-like", 0.99),
        ("image", "oracle", 1 / 1.15),
        ("language", "oracle", 1 / 1.15),
    ):
        found = ratios(mix, scheme)
        if not found:
            continue
        parts = {week: ratio for week, ratio in found.items() if week is not None}
        worst = min(parts, key=lambda week: parts[week]) if parts else None
        rows.append(
            [
                f"{mix}: {scheme} over tdcs",
                f">= {bar:.2f}",
                f"{found[None]:.2f}" + ("" if found[None] >= bar else " (missed)") if None in found else "-",
                f"{parts[worst]:.2f}, weeks {worst} and {worst + 1}" if worst is not None else "-",
                f"{sum(ratio >= bar for ratio in parts.values())} of {len(parts)}",
            ]
        )
    return table(
        ["mean completion time", "bar", "whole trace", "worst two weeks", "two weeks that meet it"], rows
    )


def shown_weeks(results: Results, *, mix: str) -> list[int]:
    """The windows that have a result for each scheme of the plots."""
    return [w for w in WINDOWS if all((mix, scheme, w, "tenant") in results for scheme in SCHEMES[:4])]


def picture(results: Results, *, mix: str) -> str:
    """The reference to a mix's plot, when there is one."""
    if not shown_weeks(results, mix=mix):
        return ""
    return f"![Two weeks at a time, mix {mix}](images/simulation-{mix}.svg)"


def sharing(results: Results) -> str:
    """The sweep of who shares what."""
    rows = []
    for kind in ("all", "tenant", "versions"):
        ours = results.get(("image", "tdcs", 4, kind))
        if ours is None:
            continue
        cells = [kind, f"{number(ours, 'meanJctSeconds') / 3600:,.1f}"]
        for scheme in ("oracle", "alluxio-lru", "fluid-like"):
            row = results.get(("image", scheme, 4, kind))
            cells.append(
                f"{number(row, 'meanJctSeconds') / number(ours, 'meanJctSeconds'):.2f}" if row else "-"
            )
        rows.append(cells)
    return table(["sharing", "tdcs mean h", "oracle", "alluxio-lru", "fluid-like"], rows)


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
        weeks = shown_weeks(results, mix=mix)
        if not weeks:
            continue
        groups = [f"weeks {week}-{week + 1}" for week in weeks]
        plot_bars(
            path=folder / f"simulation-{mix}.svg",
            groups=groups,
            bars={
                scheme: [
                    number(results[mix, scheme, week, "tenant"], "meanJctSeconds") / 3600 for week in weeks
                ]
                for scheme in shown
            },
            ylabel="mean hours from submission to end",
            title=f"Two weeks of the trace at a time, mix {mix}",
        )


def facts(results: Results) -> dict[str, str]:
    """The numbers that the text of the page quotes."""
    ours = results["image", "tdcs", None, "tenant"]
    errors = model_rows.errors()
    placed = Path(__file__).parent / "results" / "placement.json"
    placement = json.loads(placed.read_text(encoding="utf-8")) if placed.exists() else None
    return {
        "placement": (
            f"On {placement['instances']} random instances the policy reaches {placement['mean']:.1%} of the optimum "
            f"on average and {placement['worst']:.1%} at worst; {placement['belowBar']} instances are below 95 %. "
            f"HiGHS proved {placement['provenOptimal']} optima within its time; for the others its upper bound "
            f"stands in, so the true ratios are better. The policy takes {placement['policyMillisecondsMean']:.0f} ms "
            "per instance on average."
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
        "sharing": sharing(results),
        "bars": bars(results),
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
