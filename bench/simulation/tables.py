"""The tables of docs/simulation.md that come from the results of the sweep, for `bench/simulation/page.py`."""

import dataclasses

from bench.simulation.matrix import (
    MIXES,
    OPTED_OUT,
    SCHEMES,
    SEEDS,
    WINDOWS,
    Case,
    Ratio,
    Results,
    mean_hours,
    of_seeds,
    ratio,
)

#: The project's own aims for mean completion times: a mix, a scheme over tdcs, and the least ratio.
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
    """A Markdown table; nothing when there are no results for it."""
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def without_dashes(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The columns in which some row says something."""
    columns = [column for column in range(len(header)) if any(row[column] != "-" for row in rows)]
    return [header[column] for column in columns], [[row[column] for column in columns] for row in rows]


def weeks(week: int | None) -> str:
    """A part of the trace in words."""
    return "all" if week is None else f"{week} and {week + 1}"


def ratio_text(value: float, *, bar: float | None = None) -> str:
    """A ratio with two digits, near its bar with three: 0.99 and 0.99 can be on both sides of it."""
    return f"{value:.3f}" if bar is not None and abs(value / bar - 1) < 0.03 else f"{value:.2f}"


def seeds_text(count: int) -> str:
    """How many seeds."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def span(ratio: Ratio | None, *, bar: float | None = None, seeds: bool = False) -> str:
    """A ratio, and the least and most over the seeds; how many these are when asked, or when some lack."""
    if ratio is None:
        return "-"
    text = ratio_text(ratio.mean, bar=bar)
    if ratio.seeds > 1:
        text += f" ({ratio_text(ratio.least, bar=bar)} to {ratio_text(ratio.most, bar=bar)})"
    return text + (f", {seeds_text(ratio.seeds)}" if seeds or ratio.seeds < len(SEEDS) else "")


def bar_of(*, mix: str, scheme: str) -> float | None:
    """The bar of a scheme over tdcs, if it has one."""
    return next(
        (bar for mix_of_bar, scheme_of_bar, bar in BARS if (mix_of_bar, scheme_of_bar) == (mix, scheme)), None
    )


def mean_of(rows: dict[int, dict[str, object]], key: str) -> float:
    """The mean of a number over the seeds."""
    return sum(number(row, key) for row in rows.values()) / len(rows)


def whole(results: Results, *, mix: str) -> str:
    """All schemes on the whole trace."""
    rows = []
    for scheme in SCHEMES:
        rows_by_seed = of_seeds(results, mix=mix, scheme=scheme, week=None)
        if not rows_by_seed:
            continue
        rows.append(
            [
                scheme,
                str(len(rows_by_seed)),
                f"{mean_hours(list(rows_by_seed.values())):,.1f}",
                span(
                    ratio(results, mix=mix, week=None, over=scheme, under="tdcs"),
                    bar=bar_of(mix=mix, scheme=scheme),
                )
                if scheme != "tdcs"
                else "1",
                f"{mean_of(rows_by_seed, 'p50JctSeconds') / 3600:,.1f}",
                f"{mean_of(rows_by_seed, 'p99JctSeconds') / 3600:,.1f}",
                f"{mean_of(rows_by_seed, 'makespanSeconds') / 86400:,.1f}",
                f"{mean_of(rows_by_seed, 'gpuIdleFraction'):.2%}",
                f"{mean_of(rows_by_seed, 'remoteBytes') / 1e12:,.0f}",
                f"{mean_of(rows_by_seed, 'localFraction'):.0%}",
                f"{mean_of(rows_by_seed, 'evictions'):,.0f}",
                f"{mean_of(rows_by_seed, 'cpuSeconds'):.0f}",
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
        "CPU s",
    ]
    return table(header, rows)


def quick(results: Results) -> str:
    """All schemes on a single week, each mix and seed by itself."""
    rows = []
    for case, ours in results.items():
        if case.scheme != "tdcs" or case.weeks != 1:
            continue
        for scheme in SCHEMES[:4]:
            row = results.get(dataclasses.replace(case, scheme=scheme))
            if row is None:
                continue
            times = number(row, "meanJctSeconds") / number(ours, "meanJctSeconds")
            rows.append(
                [
                    case.mix,
                    str(case.seed),
                    scheme,
                    f"{number(row, 'meanJctSeconds') / 3600:,.2f}",
                    ratio_text(times, bar=bar_of(mix=case.mix, scheme=scheme)) if scheme != "tdcs" else "1",
                    f"{number(row, 'gpuIdleFraction'):.2%}",
                    f"{number(row, 'remoteBytes') / 1e12:,.0f}",
                    f"{number(row, 'localFraction'):.0%}",
                    f"{number(row, 'evictions'):,.0f}",
                    f"{number(row, 'cpuSeconds'):.0f}",
                ]
            )
    header = [
        "mix",
        "seed",
        "scheme",
        "mean h",
        "x tdcs",
        "GPU time stalled",
        "store TB",
        "read on own nodes",
        "evictions",
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
            span(
                ratio(results, mix=mix, week=week, over="oracle", under="tdcs"),
                bar=bar_of(mix=mix, scheme="oracle"),
            ),
        ]
        for scheme in ("alluxio-lru", "fluid-like"):
            theirs = of_seeds(results, mix=mix, scheme=scheme, week=week)
            bound = ratio(results, mix=mix, week=week, over=scheme, under="oracle")
            cells += [
                f"{mean_of(theirs, 'gpuIdleFraction'):.1%}" if theirs else "-",
                span(
                    ratio(results, mix=mix, week=week, over=scheme, under="tdcs"),
                    bar=bar_of(mix=mix, scheme=scheme),
                ),
                ratio_text(bound.mean, bar=bar_of(mix=mix, scheme=scheme)) if bound else "-",
            ]
        rows.append(cells)
    header = ["weeks", "seeds", "jobs", "tdcs mean h", "tdcs stalled", "oracle / tdcs"]
    for scheme in ("alluxio-lru", "fluid-like"):
        header += [f"{scheme} stalled", f"{scheme} / tdcs", f"{scheme} / oracle"]
    return table(header, rows)


def bars(results: Results) -> str:
    """What was asked for, what was reached on the whole trace and in two weeks at a time, and what could be."""
    rows = []
    for mix, scheme, bar in BARS:
        ratio_by_week: dict[int | None, Ratio] = {}
        bounds: dict[int | None, float] = {}
        for week in (None, *WINDOWS):
            ours = ratio(results, mix=mix, week=week, over=scheme, under="tdcs")
            bound = ratio(results, mix=mix, week=week, over=scheme, under="oracle")
            if ours is not None and bound is not None:
                ratio_by_week[week], bounds[week] = ours, bound.mean
        if not ratio_by_week:
            continue
        parts = {week: ratio_of_week for week, ratio_of_week in ratio_by_week.items() if week is not None}
        worst = min(parts, key=lambda week: parts[week].mean) if parts else None
        singles = ratios_by_seed(results, mix=mix, scheme=scheme)
        lowest = min(singles, key=singles.__getitem__, default=None)
        possible = [week for week in parts if bounds[week] >= bar]
        met = [week for week in parts if parts[week].mean >= bar]
        rows.append(
            [
                f"{mix}: {scheme} over tdcs",
                f">= {bar:.3g}",
                (
                    span(ratio_by_week[None], bar=bar, seeds=True)
                    + ("" if ratio_by_week[None].mean >= bar else ": missed")
                )
                if None in ratio_by_week
                else "-",
                f"{span(parts[worst], bar=bar)}, weeks {weeks(worst)}" if worst is not None else "-",
                of_windows(len(met), run=len(parts)),
                "-"
                if lowest is None
                else f"{singles[lowest]:.3f}, weeks {weeks(lowest[0])}, seed {lowest[1]}",
                f"{sum(single >= bar for single in singles.values())} of {len(singles)}",
                "-" if scheme == "oracle" else of_windows(len(possible), run=len(parts)),
            ]
        )
    header = [
        "mean completion time",
        "bar",
        "whole trace",
        "least of the windows",
        "windows that meet it",
        "least of a single seed",
        "single seeds that meet it",
        "windows where oracle, in the place of tdcs, meets it",
    ]
    return table(*without_dashes(header, rows))


def ratios_by_seed(results: Results, *, mix: str, scheme: str) -> dict[tuple[int, int], float]:
    """Mean completion times of a scheme over those of tdcs, by window and seed."""
    ratio_by_case = {}
    for week in WINDOWS:
        theirs = of_seeds(results, mix=mix, scheme=scheme, week=week)
        ours = of_seeds(results, mix=mix, scheme="tdcs", week=week)
        for seed in sorted(theirs.keys() & ours.keys()):
            ratio_by_case[week, seed] = mean_hours([theirs[seed]]) / mean_hours([ours[seed]])
    return ratio_by_case


def of_windows(count: int, *, run: int) -> str:
    """So many of the windows; those that were not run are not counted as anything."""
    return f"{count} of {run}" + (f" ({len(WINDOWS) - run} not run)" if run < len(WINDOWS) else "")


def chance(results: Results) -> float:
    """The most that the oracle's mean differs between seeds, to which no dataset matters, in any two weeks."""
    spreads = [0.0]
    for week in WINDOWS:
        hours = [
            mean_hours([row]) for row in of_seeds(results, mix="image", scheme="oracle", week=week).values()
        ]
        if hours:
            spreads.append(max(hours) / min(hours) - 1)
    return max(spreads)


def gpu_time(results: Results) -> str:
    """The GPU time that the same work takes, which no queue blurs: worst over the parts of the trace."""
    rows = []
    for mix in MIXES:
        for scheme in SCHEMES[1:]:
            time_by_week = {}
            for week in (None, *WINDOWS):
                ours = of_seeds(results, mix=mix, scheme="tdcs", week=week)
                theirs = of_seeds(results, mix=mix, scheme=scheme, week=week)
                if ours and theirs:
                    time_by_week[week] = (1 - mean_of(ours, "gpuIdleFraction")) / (
                        1 - mean_of(theirs, "gpuIdleFraction")
                    )
            if time_by_week:
                least, most = (
                    min(time_by_week, key=time_by_week.__getitem__),
                    max(time_by_week, key=time_by_week.__getitem__),
                )
                rows.append(
                    [
                        mix,
                        scheme,
                        f"{time_by_week[None]:.3f}" if None in time_by_week else "-",
                        f"{time_by_week[least]:.3f} ({weeks(least)})",
                        f"{time_by_week[most]:.3f} ({weeks(most)})",
                    ]
                )
    return table(
        *without_dashes(["mix", "scheme over tdcs", "whole trace", "least (weeks)", "most (weeks)"], rows)
    )


def stock(results: Results) -> str:
    """alluxio-lru with the client that stock Alluxio was published with."""
    rows = []
    for week in (*WINDOWS, None):
        untuned = ratio(results, mix="image", week=week, over="alluxio-lru", under="tdcs", client="stock")
        theirs = of_seeds(results, mix="image", scheme="alluxio-lru", week=week, client="stock")
        tuned = ratio(results, mix="image", week=week, over="alluxio-lru", under="tdcs")
        if untuned is not None:
            rows.append(
                [weeks(week), f"{mean_of(theirs, 'gpuIdleFraction'):.1%}", span(untuned), span(tuned)]
            )
    return table(["weeks", "stalled", "stock client / tdcs", "tuned client / tdcs"], rows)


def sharing(results: Results) -> str:
    """The sweep of who shares what."""
    rows = []
    for kind in ("all", "tenant", "versions"):
        rows_by_scheme = {
            scheme: results.get(Case(mix="image", scheme=scheme, first_week=4, sharing=kind))
            for scheme in SCHEMES[:4]
        }
        ours = rows_by_scheme.pop("tdcs")
        if ours is None:
            continue
        cells = [kind, f"{mean_hours([ours]):,.1f}", f"{number(ours, 'gpuIdleFraction'):.2%}"]
        cells += [
            f"{mean_hours([row]) / mean_hours([ours]):.2f}" if row else "-" for row in rows_by_scheme.values()
        ]
        rows.append(cells)
    header = ["sharing", "tdcs mean h", "tdcs stalled", *(f"{scheme} / tdcs" for scheme in SCHEMES[1:4])]
    # One kind alone compares nothing.
    return table(header, rows if len(rows) > 1 else [])


def placing_ratio(results: Results) -> float:
    """Mean completion times of jobs that are not placed by data over those that are: the mean over the windows."""
    ratios = [
        mean_hours([results[opted_out]]) / mean_hours([results[placed]])
        for mix in MIXES[:2]
        for week in WINDOWS
        if (placed := Case(mix=mix, scheme="tdcs", first_week=week)) in results
        and (opted_out := Case(mix=mix, scheme=OPTED_OUT, first_week=week)) in results
    ]
    return sum(ratios) / len(ratios) if ratios else 1.0


def placing(results: Results) -> str:
    """What it costs the queue that pods are placed by their data: one seed."""
    rows = []
    for mix in MIXES[:2]:
        for week in WINDOWS:
            cases = [
                results.get(Case(mix=mix, scheme=scheme, first_week=week))
                for scheme in ("tdcs", OPTED_OUT, "oracle")
            ]
            placed, opted_out, bound = cases
            if placed is None or opted_out is None or bound is None:
                continue
            hours = [f"{mean_hours([row]):,.1f}" for row in (placed, opted_out, bound)]
            rows.append(
                [
                    mix,
                    weeks(week),
                    *hours,
                    f"{number(placed, 'gpuIdleFraction'):.2%}",
                    f"{number(opted_out, 'gpuIdleFraction'):.2%}",
                    f"{number(placed, 'localFraction'):.0%}",
                    f"{number(opted_out, 'localFraction'):.0%}",
                ]
            )
    header = [
        "mix",
        "weeks",
        "tdcs mean h",
        "opted out mean h",
        "oracle mean h",
        "tdcs stalled",
        "opted out stalled",
        "tdcs reads on own nodes",
        "opted out reads on own nodes",
    ]
    return table(header, rows)
