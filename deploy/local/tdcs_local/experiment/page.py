"""The page docs/experiment.md and its picture, from the results of a run."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdcs_local.errors import LocalError
from tdcs_local.experiment import report
from tdcs_local.experiment.analysis import Bar, all_measured, bars, rows, run_of
from tdcs_local.experiment.plan import CACHE_BYTES, Configuration, Plan, Setting
from tdcs_local.experiment.prediction import READ_CPU_SECONDS, predicted_seconds, simulated_seconds
from tdcs_local.paths import CHECKOUT

RESULTS = CHECKOUT / "bench" / "results" / "experiment.json"
TEMPLATE = Path(__file__).with_name("page.md.in")
DOCS = CHECKOUT / "docs"
MOST_LATE_SECONDS = 0.1
"""Jobs of a run that begin further apart are spoken of."""
_BEFORE = (
    "The error is that of the prediction that was written down before the run, from the configuration alone."
)
_AFTER = (
    "The error is that of predictions that were computed after the run, from the configuration alone: before the run\n"
    "`tdcs predict` did not count processor time."
)


def write(results: Path, *, predict_again: bool = False) -> list[Path]:
    """Keep the results, and make the page and its picture of them; the files that were written.

    Args:
        results: the file of the results.
        predict_again: replace what was predicted before the run by what is predicted today.

    Raises:
        LocalError: No page can be made of them.
    """
    document = _read(results)
    if predict_again:
        document = predicted_again(document)
    page_text = text(document)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    page = DOCS / "experiment.md"
    page.write_text(page_text, encoding="utf-8")
    pictures = [DOCS / "images" / f"experiment.{ending}" for ending in ("svg", "png")]
    for picture in pictures:
        draw(document, picture)
    return [RESULTS, page, *pictures]


def _read(results: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        why = "" if all_measured(document) else "no run of it has ended"
    except (OSError, ValueError) as error:
        why = str(error)
    if why:
        raise LocalError(what=f"no page can be made of {results}", why=why, remedy="`make experiment`")
    return document


def predicted_again(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same results with what is predicted today from their configuration alone; the page says that this was after
    the run."""
    setting = _setting(document)
    runs = []
    for entry in document["runs"]:
        run = run_of(entry)
        predicted = predicted_seconds(run, setting, cache_bytes=CACHE_BYTES)
        runs.append({**entry, "predicted": predicted, "simulated": simulated_seconds(run, setting)})
    return {**document, "runs": runs, "predicted_again": True}


def text(document: Mapping[str, Any]) -> str:
    """The page."""
    setting, plan = _setting(document), _plan(document)
    measured = all_measured(document)
    loads = [run.load_average for run in measured]
    late = max(run.late_seconds for run in measured)
    least = min(row.repetitions for row in rows(measured))
    words = {
        "minutes": f"{document['minutes']:.0f}",
        "cpus": setting.cpus,
        "batch": setting.batch,
        "batch_seconds": f"{setting.batch_seconds:g}",
        "images": setting.images,
        "megabytes": f"{setting.total_bytes / 1e6:.1f}",
        "epochs": setting.epochs,
        "readers": setting.readers,
        "repetitions": f"{least} repetitions" if least > 1 else "one repetition",
        "slow_mbit": plan.slow_mbit,
        "fast_mbit": plan.fast_mbit,
        "bound": f"{setting.link_seconds(mbit=plan.slow_mbit) / setting.compute_seconds:.1f}",
        "table": report.markdown(rows(measured)),
        "bars": bar_lines(document),
        "load": f"{min(loads):.1f} to {max(loads):.1f}",
        "when": _AFTER if document.get("predicted_again") else _BEFORE,
        "fuse": f"{1000 * READ_CPU_SECONDS[Configuration.STOCK]:.1f}",
        "views": f"{1000 * READ_CPU_SECONDS[Configuration.SHARED]:.2f}",
        "late": f"; jobs of one run began at most {late:.1f} s apart" if late > MOST_LATE_SECONDS else "",
    }
    return TEMPLATE.read_text(encoding="utf-8").format(**words)


def bar_lines(document: Mapping[str, Any]) -> str:
    """The bars as a table."""
    return "\n".join(["| Bar | | Found |", "|---|---|---|", *map(_line, _bars(document))])


def draw(document: Mapping[str, Any], path: Path) -> None:
    """The picture of the link that is the bound."""
    report.draw(rows(all_measured(document)), mbit=_plan(document).slow_mbit, path=path)


def _line(bar: Bar) -> str:
    return f"| {bar.text} | {'met' if bar.met else '**missed**'} | {bar.outcome} |"


def _bars(document: Mapping[str, Any]) -> list[Bar]:
    setting = _setting(document)
    all_bars = bars(rows(all_measured(document)), compute_seconds=setting.epochs * setting.compute_seconds)
    if not document.get("predicted_again"):
        return all_bars
    *measured_bars, prediction = all_bars
    return [*measured_bars, replace(prediction, outcome=f"{prediction.outcome}; computed after the run")]


def _setting(document: Mapping[str, Any]) -> Setting:
    return Setting(**document["setting"])


def _plan(document: Mapping[str, Any]) -> Plan:
    return Plan(**{**document["plan"], "jobs": tuple(document["plan"]["jobs"])})
