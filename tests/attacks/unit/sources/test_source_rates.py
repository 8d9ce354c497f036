"""A tenant that declares next to nothing as a store's bandwidth slows its own Datasets and no others."""

import pytest

from tdcs.control.dataset.bandwidth import SourceBandwidth, worth
from tdcs.decide.cache.load_order import Load

MB = 1_000_000
RATE = 256 * MB
OURS, SHARED, THEIRS = ("c", "/ours"), ("c", "/shared"), ("d", "/theirs")
STORE = "https://store.example.org"


def load(name: str, *, waiting: int = 1) -> Load:
    value = worth(waiting=waiting, reading=0, missing=100 * MB)
    return Load(name=name, missing_bytes=100 * MB, worth=value, waiting_jobs=waiting)


def shares(**attack: int | None) -> dict[tuple[str, str], int | None]:
    """What each mount may read when the attacker declares this, and the other one 256 MB/s."""
    bandwidth = SourceBandwidth(on_change=lambda cluster, path: None)
    declared: dict[tuple[str, str], dict[str, int | None]] = {
        OURS: {"ours": RATE},
        SHARED: {"ours": RATE, **attack},
        THEIRS: {**attack},
    }
    rates = {}
    for _ in range(2):  # the shares of the first pass do not know the later mounts
        for place, by in declared.items():
            rates[place] = bandwidth.share(place=place, store=STORE, declared=by, load=load(place[1]))
    return rates


@pytest.mark.threat("source-bandwidth")
def test_one_byte_a_second_slows_only_the_namespace_that_declares_it() -> None:
    attacked, alone = shares(theirs=1), shares()
    assert attacked[THEIRS] == 1
    ours, before = (sum(shares[place] or 0 for place in (OURS, SHARED)) for shares in (attacked, alone))
    assert before > 0.6 * RATE
    assert ours >= 0.98 * RATE


@pytest.mark.threat("source-bandwidth")
def test_a_namespace_without_a_limit_is_not_held_to_that_of_another_one() -> None:
    bandwidth = SourceBandwidth(on_change=lambda cluster, path: None)
    for _ in range(2):
        attacker = bandwidth.share(place=THEIRS, store=STORE, declared={"theirs": 1}, load=load("theirs"))
        mine = bandwidth.share(place=OURS, store=STORE, declared={"ours": None}, load=load("ours"))
        shared = bandwidth.share(
            place=SHARED, store=STORE, declared={"ours": None, "theirs": 1}, load=load("shared")
        )
    assert (attacker, mine, shared) == (1, None, None)
