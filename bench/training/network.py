"""Two or more network namespaces joined by a switch, each with a link of a given rate; removed with the block."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tdcs_train.ps.classes import DSCP

BURST = 128 << 10
"""Bytes that pass at once: two of the largest packets between veth interfaces."""
DEVICE = "eth0"
"""The interface inside each namespace."""


@dataclass(frozen=True)
class Host:
    """A namespace and its address."""

    namespace: str
    address: str


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """`count` namespaces with their interfaces on one bridge, in a namespace of its own."""
    stem = f"tdcs-bench-{os.getpid()}"
    switch = f"{stem}-switch"
    machines = [Host(f"{stem}-{number}", f"10.77.0.{number + 1}") for number in range(count)]
    try:
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, host in enumerate(machines):
            port = f"port{number}"
            _run("ip", "netns", "add", host.namespace)
            _run(
                *("ip", "-n", switch, "link", "add", port, "type", "veth"),
                *("peer", "name", DEVICE, "netns", host.namespace),
            )
            _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", DEVICE)
            _run("ip", "-n", host.namespace, "link", "set", DEVICE, "up")
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
        yield machines
    finally:
        for namespace in [switch, *(host.namespace for host in machines)]:
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def shape(made: Sequence[Host], *, bits_per_second: float) -> None:
    """Gives each host's link a rate in both directions by tbf: at its own end and at the switch's."""
    switch = _switch(made)
    burst = max(128 << 10, int(bits_per_second / 8 / 500))
    for number, host in enumerate(made):
        for namespace, device in ((host.namespace, DEVICE), (switch, f"port{number}")):
            _run(
                *("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf"),
                *("rate", f"{int(bits_per_second)}bit", "burst", str(burst), "limit", str(4 << 20)),
            )


def shape_to(made: Sequence[Host], *, to: int, bits_per_second: float) -> None:
    """Gives the link from the switch to one host a rate that knows no classes."""
    _run(
        *("tc", "-n", _switch(made), "qdisc", "replace", "dev", f"port{to}", "root", "tbf"),
        *("rate", f"{int(bits_per_second)}bit", "burst", str(BURST), "limit", str(1 << 20)),
    )


def shape_by_mark(made: Sequence[Host], *, to: int, bits_per_second: float) -> None:
    """Gives the link from the switch to one host a rate, shared by the mark of the packets: urgent classes first."""
    device = ("tc", "-n", _switch(made))
    port = ("dev", f"port{to}")
    rate, burst = f"{int(bits_per_second)}bit", ("burst", str(BURST), "cburst", str(BURST))
    _run(*device, "qdisc", "replace", *port, "root", "handle", "1:", "htb", "default", "11")
    parent = ("parent", "1:", "classid", "1:1", "htb", "rate", rate, *burst)
    _run(*device, "class", "add", *port, *parent)
    for priority, mark in enumerate(DSCP):
        child = ("parent", "1:1", "classid", f"1:{10 + priority}", "htb")
        least = f"{int(bits_per_second / 100)}bit"
        share = ("rate", least, "ceil", rate, "prio", str(len(DSCP) - 1 - priority), *burst)
        _run(*device, "class", "add", *port, *child, *share)
        match = ("u32", "match", "ip", "tos", hex(mark << 2), "0xfc", "flowid", f"1:{10 + priority}")
        _run(*device, "filter", "add", *port, "parent", "1:", "protocol", "ip", "prio", "1", *match)


def _switch(made: Sequence[Host]) -> str:
    return made[0].namespace.rpartition("-")[0] + "-switch"


def _run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")
