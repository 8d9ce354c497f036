"""The store's link: the commands that shape it, and counters that never run backwards."""

from pathlib import Path

import pytest
from deploy.images.store.tdcs_store import shaping
from deploy.images.store.tdcs_store.shaping import Link, WireBytes
from deploy.images.store.tdcs_store.state import (
    Odometer,
    load_link,
    load_odometer,
    save_link,
    save_odometer,
)


def _qdiscs(*, sent: int = 0, received: int = 0) -> dict[str, list[dict[str, object]]]:
    leaf = {"kind": "bfifo", "handle": "10:", "parent": "1:10"}
    return {
        "eth0": [
            {"kind": "htb", "handle": "1:", "bytes": sent + 999},
            {**leaf, "bytes": sent},
            {"kind": "ingress", "handle": "ffff:", "bytes": 5},
        ],
        "ifb0": [{"kind": "htb", "handle": "1:", "bytes": received}, {**leaf, "bytes": received}],
    }


def test_each_direction_gets_its_own_rate() -> None:
    commands = [" ".join(command) for command in shaping.change(Link(egress=50_000_000, ingress=None))]
    assert any("dev eth0" in c and "rate 50000000bit" in c for c in commands)
    assert any("dev ifb0" in c and f"rate {shaping.UNLIMITED}bit" in c for c in commands)


def test_a_change_of_rate_never_deletes_what_counts() -> None:
    assert {command[2] for command in shaping.change(Link(egress=1_000_000, ingress=1_000_000))} == {"change"}


def test_only_the_s3_port_is_shaped() -> None:
    filters = [" ".join(c) for c in shaping.setup(port=7070) if c[:2] == ("tc", "filter")]
    assert ["sport 7070" in filters[0], "dport 7070" in filters[1]] == [True, True]
    assert len(filters) == 2


@pytest.mark.parametrize(
    ("rate", "queue"),
    [(100_000, shaping.MIN_QUEUE), (80_000_000, 2_500_000), (None, shaping.MAX_QUEUE)],
)
def test_the_queue_holds_a_quarter_of_a_second_within_bounds(rate: int | None, queue: int) -> None:
    assert shaping.queue_bytes(rate) == queue


def test_the_data_queues_are_what_counts() -> None:
    assert shaping.wire_bytes(_qdiscs(sent=7, received=3)) == WireBytes(egress=7, ingress=3)
    with pytest.raises(KeyError, match="ifb0"):
        shaping.wire_bytes({"eth0": _qdiscs()["eth0"]})


@pytest.mark.parametrize("lost", ["eth0", "ifb0"])
def test_a_link_that_lost_a_device_is_not_complete(lost: str) -> None:
    whole = _qdiscs()
    assert shaping.complete(whole)
    assert not shaping.complete({**whole, lost: []})


def test_the_odometer_goes_on_in_a_new_pod() -> None:
    odometer = Odometer().advanced(WireBytes(egress=100, ingress=10), link="pod-1")
    odometer = odometer.advanced(WireBytes(egress=150, ingress=10), link="pod-1")
    odometer = odometer.advanced(WireBytes(egress=400, ingress=0), link="pod-2")
    assert odometer.total == WireBytes(egress=550, ingress=10)


def test_the_odometer_goes_on_when_the_devices_were_made_again() -> None:
    odometer = Odometer().advanced(WireBytes(egress=100, ingress=10), link="pod-1")
    assert odometer.advanced(WireBytes(egress=5, ingress=0), link="pod-1").total.egress == 105


def test_rates_and_counters_are_kept(tmp_path: Path) -> None:
    assert load_link(tmp_path / "link.json") == Link()
    save_link(tmp_path / "link.json", Link(egress=5))
    assert load_link(tmp_path / "link.json") == Link(egress=5)
    odometer = Odometer().advanced(WireBytes(egress=1, ingress=2), link="x")
    save_odometer(tmp_path / "odometer.json", odometer)
    assert load_odometer(tmp_path / "odometer.json") == odometer


def test_a_broken_file_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "link.json").write_text("{")
    with pytest.raises(ValueError, match=r"link\.json.*delete it"):
        load_link(tmp_path / "link.json")
