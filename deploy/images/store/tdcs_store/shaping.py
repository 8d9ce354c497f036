"""The pod's link as traffic control sees it: which commands make it, change its rate, and count its bytes.

Pure: the commands are run by :mod:`tdcs_store.link`. Only the S3 port is shaped, so that probes and the
control server never queue behind data. Outgoing data goes through an HTB class of the pod's own device,
incoming data is redirected to an intermediate device (ifb) and goes through the same kind of class there.
Unlimited is a rate that no pod network reaches, not a missing class: the byte counters keep counting.
Rates and counters are those of the wire: headers of Ethernet, IP and TCP included (about 4 % with an MTU
of 1500 bytes).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEVICE = "eth0"
INGRESS_DEVICE = "ifb0"
UNLIMITED = 100_000_000_000
QUEUE_SECONDS = 0.25
MIN_QUEUE, MAX_QUEUE = 256 * 1024, 8 * 1024 * 1024
"""Bytes. A queue must hold some segments of the largest size (64 KiB each) or a single flow starves itself."""
_QUANTUM = "65536"
_DATA, _LEAF = "1:10", "10:"

Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Link:
    """Rates in bits per second, None for unlimited. Egress is what leaves the store: downloads."""

    egress: int | None = None
    ingress: int | None = None


@dataclass(frozen=True, kw_only=True)
class WireBytes:
    """Bytes on the wire of the S3 port since the devices were set up."""

    egress: int = 0
    ingress: int = 0


def queue_bytes(rate: int | None) -> int:
    """How much may wait before the link: a quarter of a second's worth, within bounds."""
    return max(MIN_QUEUE, min(MAX_QUEUE, round((rate or UNLIMITED) / 8 * QUEUE_SECONDS)))


def setup(*, port: int) -> list[Command]:
    """Commands that put the classes and filters in place, unlimited, on devices that have none."""
    return [
        *_classes(DEVICE, default="20"),
        ("tc", "class", "add", "dev", DEVICE, "parent", "1:", "classid", "1:20", "htb", *_rate(None)),
        (*_filter("1:", "sport", port), "flowid", _DATA),
        ("ip", "link", "add", INGRESS_DEVICE, "type", "ifb"),
        ("ip", "link", "set", INGRESS_DEVICE, "up"),
        *_classes(INGRESS_DEVICE, default="10"),
        ("tc", "qdisc", "add", "dev", DEVICE, "handle", "ffff:", "ingress"),
        (*_filter("ffff:", "dport", port), "action", "mirred", "egress", "redirect", "dev", INGRESS_DEVICE),
    ]


def teardown() -> list[Command]:
    """Commands that remove what :func:`setup` made; each fails where its thing does not exist."""
    return [
        ("tc", "qdisc", "del", "dev", DEVICE, "root"),
        ("tc", "qdisc", "del", "dev", DEVICE, "ingress"),
        ("ip", "link", "del", INGRESS_DEVICE),
    ]


def change(link: Link) -> list[Command]:
    """Commands that set the rates, keeping connections, queued packets and counters."""
    commands: list[Command] = []
    for device, rate in ((DEVICE, link.egress), (INGRESS_DEVICE, link.ingress)):
        commands += [
            ("tc", "class", "change", "dev", device, "parent", "1:", "classid", _DATA, "htb", *_rate(rate)),
            ("tc", "qdisc", "change", "dev", device, "parent", _DATA, "handle", _LEAF, *_queue(rate)),
        ]
    return commands


def complete(qdiscs: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Whether everything that :func:`setup` makes is there, by ``tc -s -j qdisc show dev`` of each device.

    The filter into the intermediate device is the last command, but shows only in a filter listing; the
    ingress qdisc just before it stands for it, and a set-up that stopped between the two is made again
    because the process that ran it removes what it made when a command fails.
    """
    kinds = {device: {q["kind"] for q in listed} for device, listed in qdiscs.items()}
    return kinds.get(DEVICE, set()) >= {"htb", "bfifo", "ingress"} and kinds.get(INGRESS_DEVICE, set()) >= {
        "htb",
        "bfifo",
    }


def wire_bytes(qdiscs: Mapping[str, Sequence[Mapping[str, Any]]]) -> WireBytes:
    """The counters of the two data queues. Raises KeyError when a queue is missing."""
    counted = {}
    for device in (DEVICE, INGRESS_DEVICE):
        leaf = [q for q in qdiscs.get(device, ()) if q.get("handle") == _LEAF]
        if not leaf:
            raise KeyError(f"device {device} has no queue {_LEAF}: the link is not set up")
        counted[device] = int(leaf[0]["bytes"])
    return WireBytes(egress=counted[DEVICE], ingress=counted[INGRESS_DEVICE])


def _classes(device: str, *, default: str) -> list[Command]:
    return [
        ("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", default),
        ("tc", "class", "add", "dev", device, "parent", "1:", "classid", _DATA, "htb", *_rate(None)),
        ("tc", "qdisc", "add", "dev", device, "parent", _DATA, "handle", _LEAF, *_queue(None)),
    ]


def _filter(parent: str, side: str, port: int) -> Command:
    match = ("match", "ip", "protocol", "6", "0xff", "match", "ip", side, str(port), "0xffff")
    return (
        "tc",
        "filter",
        "add",
        "dev",
        DEVICE,
        "parent",
        parent,
        "protocol",
        "ip",
        "prio",
        "1",
        "u32",
        *match,
    )


def _rate(rate: int | None) -> Command:
    return ("rate", f"{rate or UNLIMITED}bit", "quantum", _QUANTUM)


def _queue(rate: int | None) -> Command:
    return ("bfifo", "limit", str(queue_bytes(rate)))
