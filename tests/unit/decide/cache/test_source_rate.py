"""A store's rate is what its loads keep up over a window while none of them is held back."""

from collections.abc import Iterable

import pytest

from tdcs.decide.cache.source_rate import Measurement, Timing, measure

TIMING = Timing(settle=5.0, window=10.0, again=300.0, between=60.0)


def after(
    measurement: Measurement, rates: Iterable[float], *, begin: float = 0.0, loads: tuple[str, ...] = ("one",)
) -> Measurement:
    """What is known after loads have read at these rates, one a second."""
    for number, rate in enumerate(rates):
        measurement = measure(measurement, now=begin + number, rate=rate, loads=loads, timing=TIMING)
    return measurement


@pytest.fixture
def measured() -> Measurement:
    measurement = after(Measurement(), [100.0] * 16)
    assert (measurement.rate, measurement.at, measurement.shared) == (100.0, 15.0, 100.0)
    return measurement


def test_nothing_is_shared_before_a_rate_was_kept_up_for_a_window() -> None:
    measurement = after(Measurement(), [0.0, 20.0, 400.0, 90.0, 100.0, *[100.0] * 10])
    assert measurement.rate is None
    assert measurement.shared is None
    measurement = after(measurement, [100.0], begin=15.0)
    assert measurement.shared == 100.0  # what was reported before the agents had settled does not count


def test_a_burst_that_is_shorter_than_the_window_counts_by_its_length() -> None:
    rates = [100.0] * 10 + [200.0] * 2 + [100.0] * 4
    assert after(Measurement(), rates).rate == pytest.approx(120.0)


def test_it_rises_while_others_are_held_back_and_does_not_fall(measured: Measurement) -> None:
    assert after(measured, [20.0] * 60, begin=16.0).rate == 100.0
    assert after(measured, [105.0] * 60, begin=16.0).rate == 100.0  # it varies
    risen = after(measured, [150.0] * 20, begin=16.0).rate
    assert risen is not None
    assert 140.0 < risen <= 150.0


def test_another_load_has_it_measured_again_with_nobody_held_back_but_not_too_soon(
    measured: Measurement,
) -> None:
    loads = ("one", "two")
    assert after(measured, [100.0], begin=16.0, loads=loads).shared == 100.0
    measurement = after(measured, [100.0], begin=75.0, loads=loads)
    assert measurement.shared is None
    measurement = after(measurement, [40.0] * 15, begin=76.0, loads=loads)
    assert measurement.shared == 70.0  # half of the way: a disturbance is no slower store
    assert measurement.loads == {"one", "two"}
    # One of them goes: nothing new to measure.
    assert after(measurement, [40.0], begin=200.0).shared == 70.0


def test_it_is_measured_again_now_and_then_while_a_load_goes_on(measured: Measurement) -> None:
    assert after(measured, [100.0], begin=314.0).shared == 100.0
    assert after(measured, [100.0], begin=315.0).shared is None


def test_what_is_known_outlives_a_pause_and_a_measurement_does_not(measured: Measurement) -> None:
    assert measure(measured, now=20.0, rate=0.0, loads=(), timing=TIMING).shared == 100.0
    under_way = after(Measurement(), [100.0] * 10)
    assert measure(under_way, now=20.0, rate=0.0, loads=(), timing=TIMING).began is None


def test_loads_that_read_nothing_are_no_measurement_and_the_first_byte_is_waited_for() -> None:
    silent = after(Measurement(), [0.0] * 60)
    assert (silent.rate, silent.shared) == (None, None)
    assert after(silent, [100.0] * 10, begin=60.0).shared is None
    assert after(silent, [100.0] * 11, begin=60.0).shared == 100.0


def test_what_is_known_is_not_halved_by_loads_that_read_nothing(measured: Measurement) -> None:
    silent = after(measured, [0.0] * 60, begin=315.0)
    assert silent.rate == 100.0
    assert silent.shared is None  # nobody is held back until it is measured
    again = after(silent, [80.0] * 30, begin=375.0)
    assert again.shared == 90.0
