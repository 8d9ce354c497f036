"""Write docs/simulation.md and its plots from the results in bench/results. `make simulation-docs` runs it."""

import argparse
import re
import sys
import textwrap
from pathlib import Path

from bench.simulation import model_rows, rule_callers
from bench.simulation.change import change_table, change_text, changes
from bench.simulation.matrix import (
    MODEL,
    SCHEMES,
    STOCK_CLIENT,
    WINDOWS,
    Case,
    Results,
    is_older,
    mean_hours,
    of_seeds,
    read_results,
)
from bench.simulation.tables import (
    bars,
    chance,
    gpu_time,
    number,
    placing,
    placing_ratio,
    quick,
    sharing,
    stock,
    table,
    whole,
    windows,
)
from click.testing import CliRunner

from tdcs.cli.main import main as main_command
from tdcs_labs import paper
from tdcs_labs.plots import plot_bars
from tdcs_labs.workload import BURST_GAP, CORPORA, MIXES, MODELS


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
        [" and ".join(parts) or "entry points and tests", ", ".join(names)]
        for parts, names in sorted(by_callers.items(), key=lambda item: (-len(item[0]), item[0]))
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
    schemes = SCHEMES[:4]
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
                for scheme in schemes
            },
            ylabel="mean hours from submission to end",
            title=f"Two weeks of the trace at a time, mix {mix}",
        )


#: The rules that the text of the page says only the simulator calls.
SIMULATOR_ONLY = ("load_order.budget",)


def check_text() -> None:
    """Refuse to write a page whose text says something else about the rules than the sources do."""
    callers = rule_callers.callers()
    for name in SIMULATOR_ONLY:
        if callers[name] != ["simulator"]:
            raise SystemExit(
                f"simulation_page.md.in says that only the simulator calls {name}, but "
                f"{' and '.join(callers[name]) or 'nobody'} does; correct the section 'What these figures are for'"
            )


def predicted(scenario: Path) -> str:
    """What `tdcs predict` prints for a scenario, with its sentences wrapped."""
    done = CliRunner().invoke(main_command, ["predict", "--file", str(scenario)], catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"tdcs predict failed: {done.output}")
    return "\n".join(textwrap.fill(line, width=100) for line in done.stdout.splitlines())


def check_results(results: Results) -> None:
    """Refuse to write a page with figures of an older simulator."""
    if is_older(results):
        raise SystemExit(
            "some results are of an older simulator; remove bench/results/simulation.jsonl and run "
            "`make simulation-docs`"
        )


def speed(results: Results) -> str:
    """What two weeks take under tdcs, as measured during the sweep."""
    runs = [
        row for week in WINDOWS for row in of_seeds(results, mix="image", scheme="tdcs", week=week).values()
    ]

    def extent(key: str) -> str:
        values = sorted(number(row, key) for row in runs)
        least, most = f"{values[0]:.0f}", f"{values[-1]:.0f}"
        return least if least == most else f"{least} to {most}"

    return (
        f"{extent('cpuSeconds')} s of CPU time on one core, {extent('wallSeconds')} s of wall-clock time and "
        f"{extent('peakMegabytes')} MB of memory"
    )


def filled(template: str, *, parts: dict[str, str]) -> str:
    """The template with its parts; what stands between `@if NAME@` and `@end@` goes when the part is empty."""
    page_text = re.sub(
        r"@if (\w+)@\n(.*?)@end@\n",
        lambda match: match.group(2) if parts[match.group(1)] else "",
        template,
        flags=re.DOTALL,
    )
    for name, text in parts.items():
        page_text = page_text.replace(f"@{name}@", text)
    return page_text


def facts(results: Results) -> dict[str, str]:
    """The numbers that the text of the page quotes."""
    errors, without = model_rows.errors(), placing_ratio(results)
    return {
        "errors": ", ".join(f"{name} {error:+.1%}" for name, error in errors.items()),
        "speed": speed(results),
        "models": ", ".join(f"{model.name} {model.rate / 1e6:.0f}" for model in MODELS),
        "corpora": ", ".join(
            f"{corpus.name} {corpus.size_bytes / 1e9:,.0f} GB (weight {corpus.weight:g})"
            for corpus in CORPORA
        ),
        "mixes": "; ".join(f"`{name}` {'-'.join(map(str, shares))}" for name, shares in MIXES.items()),
        "gap": f"{BURST_GAP / 60:.0f}",
        "chance": f"{chance(results):.0%}",
        "placing_gain": f"{abs(without - 1):.0%} {'shorter' if without < 1 else 'longer'}",
        "stock_client": f"{STOCK_CLIENT / 1e6:.0f}",
        "model": str(MODEL),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    folder = Path(__file__).parent
    results_folder = folder.parent / "results"
    parser.add_argument("--results", type=Path, default=results_folder / "simulation.jsonl")
    parser.add_argument("--before", type=Path, default=results_folder / "simulation_before_leaving.jsonl")
    parser.add_argument("--docs", type=Path, default=folder.parents[1] / "docs")
    options = parser.parse_args()
    check_text()
    results = read_results(options.results)
    check_results(results)
    changed = changes(results, before=read_results(options.before))
    template = (folder / "page.md.in").read_text(encoding="utf-8")
    example = folder / "predict_example.yaml"
    parts = {
        **facts(results),
        "quick": quick(results),
        "example": example.read_text(encoding="utf-8").rstrip(),
        "example_output": predicted(example),
        "whole_image": whole(results, mix="image"),
        "whole_balanced": whole(results, mix="balanced"),
        "whole_language": whole(results, mix="language"),
        "windows_image": windows(results, mix="image"),
        "windows_language": windows(results, mix="language"),
        "sharing": sharing(results),
        "stock": stock(results),
        "placing": placing(results),
        "change": change_table(changed),
        "change_text": change_text(changed),
        "gpu_time": gpu_time(results),
        "bars": bars(results),
        "rules": rules(),
        **{f"plot_{mix}": picture(results, mix=mix) for mix in ("image", "language")},
        "paper": paper_table(),
    }
    plots(results, folder=options.docs / "images")
    (options.docs / "simulation.md").write_text(filled(template, parts=parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
