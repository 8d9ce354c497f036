"""kopf around the operator: it retries for as long as the operator waits."""

import itertools

import kopf

from tdcs.control.operator.kopf_adapter import Endless


def test_kopf_tries_forever_with_pauses_that_stay_short() -> None:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = Endless()
    for _ in range(2):  # each of its requests counts again
        pauses = list(itertools.islice(settings.networking.error_backoffs, 10_000))
        assert len(pauses) == 10_000
        assert pauses[0] <= 0.5
        assert 0 < min(pauses) <= max(pauses) <= 10
