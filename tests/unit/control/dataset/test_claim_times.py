"""How soon the claim of a Dataset is made again when it is deleted: at once, but not again and again."""

import time
from dataclasses import replace

from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.dataset.conftest import ZONES, engine_of

from tdcs.control.context import WorkKey
from tdcs.control.dataset.access.dataset_volume import QUICK_RETRY, SLOW_RETRY, ClaimTimes
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS

KEY = WorkKey(DATASETS, "n", "pictures")


def test_a_volume_that_is_not_released_is_looked_at_quickly_for_some_seconds_only() -> None:
    now = [100.0]
    times = ClaimTimes(clock=lambda: now[0])
    assert times.until_released(KEY, lost=True) == QUICK_RETRY
    now[0] += 4
    assert times.until_released(KEY, lost=True) == QUICK_RETRY
    now[0] += 2
    assert times.until_released(KEY, lost=True) == SLOW_RETRY
    assert times.until_released(KEY, lost=False) == 0
    assert times.until_released(KEY, lost=True) == QUICK_RETRY


def test_the_first_claim_that_is_lost_is_made_at_once_and_the_next_one_some_seconds_later() -> None:
    now = [100.0]
    times = ClaimTimes(clock=lambda: now[0])
    assert times.until_next(KEY) == 0
    times.made(KEY)
    now[0] += 1
    assert times.until_next(KEY) == 0
    times.made(KEY)
    for _ in range(5):
        now[0] += 1
        assert times.until_next(KEY) == SLOW_RETRY - 1
        now[0] += SLOW_RETRY - 1
        assert times.until_next(KEY) == 0
        times.made(KEY)
    now[0] += 61
    assert times.until_next(KEY) == 0
    times.made(KEY)
    times.drop(KEY)
    assert times.until_next(KEY) == 0


async def test_whoever_deletes_a_claim_again_and_again_does_not_keep_the_operator_at_work() -> None:
    ahead = [0.0]
    async with Cluster(
        engine=engine_of(),
        nodes={name: {} for name in ZONES},
        settings=replace(QUICK, survey_seconds=60.0),
        clock=lambda: time.monotonic() + ahead[0],
    ) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()
        await cluster.until_state("Ready")
        claims = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)
        await cluster.until(lambda: claims)
        await cluster.server.delete(PERSISTENT_VOLUME_CLAIMS, name="pictures", namespace="n")
        await cluster.until(lambda: claims, deadline=20)
        passes = cluster.passes
        await cluster.server.delete(PERSISTENT_VOLUME_CLAIMS, name="pictures", namespace="n")
        await cluster.until(lambda: cluster.passes > passes)
        await cluster.quiet()
        assert not claims
        ahead[0] = SLOW_RETRY
        await cluster.annotate("pictures", refresh="1")
        await cluster.until(lambda: claims)
