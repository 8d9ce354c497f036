"""The simulator knows zones: what crosses them with labels and without, at the same completion times."""

from dataclasses import replace

import pytest
from bench.simulation.zones import BAR, applied_before, compared, drawn_jobs
from tests.unit.labs.conftest import synthetic_jobs

from tdcs_labs.run import simulate
from tdcs_labs.scenario import Scenario
from tdcs_labs.schemes.zones import crossings_of_replicas
from tdcs_labs.workload import assign_work


def test_with_labels_a_fifth_crosses_zones_at_most_and_no_job_takes_longer() -> None:
    work = applied_before(assign_work(jobs=drawn_jobs(count=30, gap=900.0)))

    comparison = compared(work=work, scenario=Scenario(nodes=24, zones=3, auto_placement=True))

    assert comparison["crossZoneRatio"] <= BAR  # type: ignore[operator]
    assert comparison["meanJctRatio"] <= 1.005  # type: ignore[operator]


def test_zones_without_labels_change_nothing_but_what_is_counted() -> None:
    work = assign_work(jobs=synthetic_jobs(count=40))
    single = simulate(work=work, scenario=Scenario(nodes=12), scheme="tdcs")

    several = simulate(work=work, scenario=Scenario(nodes=12, zones=3, knows_zones=False), scheme="tdcs")

    assert several.cross_zone_bytes > 0
    assert replace(several, cross_zone_bytes=0.0, wall=0.0) == replace(single, wall=0.0)


@pytest.mark.parametrize(("near", "expected"), [(True, 2.0), (False, 5 * (1 - 6 / 30))])
def test_replicas_cross_zones_once_for_each_zone_with_labels(near: bool, expected: float) -> None:
    zones = {f"n{number}": (f"z{number // 2}",) for number in range(6)}

    assert crossings_of_replicas(list(zones), zones=zones, near=near) == pytest.approx(expected)
