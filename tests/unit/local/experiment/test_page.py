"""The page of the live experiment, made of results."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tdcs_local.errors import LocalError
from tdcs_local.experiment import page
from tdcs_local.experiment.analysis import Measured
from tdcs_local.experiment.plan import Configuration, Plan, Run, Setting

SETTING = Setting(images=216, total_bytes=23_540_000)
PLAN = Plan(jobs=(1,), repetitions=1)


def results(**seconds: float) -> dict[str, Any]:
    """Results of one run of each configuration that is named, with its seconds; all were predicted to take 10."""
    runs = [
        Measured(
            run=Run(configuration=Configuration[name], jobs=1, mbit=PLAN.slow_mbit, repetition=1),
            predicted=10.0 if name != "DIRECT" else 22.0,
            simulated=None,
            seconds=(taken,),
            images=648,
            source_bytes=5_000_000,
            load_average=1.5,
        ).document()
        for name, taken in seconds.items()
    ]
    return {"setting": asdict(SETTING), "plan": asdict(PLAN), "runs": runs, "minutes": 7.6}


def test_the_page_has_the_numbers_of_the_results() -> None:
    made = page.text(results(DIRECT=22.0, SHARED=5.5))
    assert "It took about 8\nminutes on 2 processors" in made
    assert "| 27 | 1 | direct | 29 | 1.00 | 22.0 | 22.0 | +0.0% |" in made
    assert "| 27 | 1 | shared | 118 | 4.00 | 5.5 | 10.0 | -45.0% |" in made
    assert "one repetition" in made
    assert "| shared over direct at least 3 where the link is the bound | met | least 4.00 |" in made
    assert "within 15% | **missed** | worst -45.0% (shared, 1 job, 27 Mbit/s) |" in made


def test_predictions_that_are_made_again_after_a_run_are_said_to_be() -> None:
    document = results(DIRECT=22.0, STOCK=12.0)
    again = page.predicted_again(document)
    before, after = "that was written down before the run", "that were computed after the run"
    assert (before in page.text(document), after in page.text(document)) == (True, False)
    assert (before in page.text(again), after in page.text(again)) == (False, True)
    assert "| stock Alluxio | 54 | 1.83 | 12.0 | 10.9 | +10.2% |" in page.text(again)
    assert "met | worst +10.2% (stock Alluxio, 1 job, 27 Mbit/s); computed after the run |" in page.text(
        again
    )
    for old, new in zip(document["runs"], again["runs"], strict=True):
        assert {**new, "predicted": 0, "simulated": 0} == {**old, "predicted": 0, "simulated": 0}


def test_a_run_that_was_broken_off_is_not_counted() -> None:
    whole = results(DIRECT=22.0, SHARED=5.5)
    broken = {**whole["runs"][1], "run": {**whole["runs"][1]["run"], "repetition": 2}}
    for field in ("seconds", "images", "source_bytes"):
        del broken[field]
    assert page.text({**whole, "runs": [*whole["runs"], broken]}) == page.text(whole)


@pytest.mark.parametrize(("late", "said"), [(0.05, False), (2.5, True)])
def test_jobs_that_did_not_begin_together_are_spoken_of(late: float, said: bool) -> None:
    document = results(DIRECT=22.0, SHARED=5.5)
    document["runs"][0]["late_seconds"] = late
    assert ("jobs of one run began at most 2.5 s apart" in page.text(document)) is said


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_picture_is_drawn(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"experiment.{ending}"
    page.draw(results(DIRECT=22.0, STOCK=9.0, PRELOADED=5.6, SHARED=5.5), path)
    assert path.stat().st_size > 1000


def test_the_page_in_the_docs_is_that_of_the_results_in_the_tree() -> None:
    document = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    assert (page.DOCS / "experiment.md").read_text(encoding="utf-8") == page.text(document)


@pytest.mark.parametrize("content", [None, '{"runs": []}', '{"runs": [{"run": {}, "predicted": 1.0}]}', "{"])
def test_without_a_run_there_is_no_page_but_what_to_do(content: str | None, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    if content is not None:
        results.write_text(content)
    with pytest.raises(LocalError, match=r"no page can be made of .*results.json") as refused:
        page.write(results)
    assert refused.value.remedy == "`make experiment`"
