"""Network namespaces whose links have a rate and a latency, by a switch in this process.

Kernels without `netem` can shape a rate and not a latency. So each namespace has a TUN device, whose other end is a
thread here: it reads packets, gives each the time that the link takes for it, and writes it to the namespace of its
address when that time has come. Who measures runs in real time, and so do these threads.
"""

import contextlib
import fcntl
import os
import queue
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.training.network import Host

DEVICE = "eth0"
PACKET = 9000
"""Bytes of the largest packet."""
MOST_AHEAD = 0.1
"""Seconds of packets that wait for a link; then its sender does."""
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


@dataclass
class _Port:
    """A namespace's end: when its two directions are free, and what waits to be written."""

    descriptor: int
    sends_from: float = 0.0
    receives_from: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: "queue.Queue[tuple[float, bytes] | None]" = field(default_factory=queue.Queue)


@contextlib.contextmanager
def hosts(count: int, *, bits_per_second: float, latency: float) -> Iterator[list[Host]]:
    """`count` namespaces, each with a link of that rate in both directions; a packet arrives `latency` later."""
    stem = f"tdcs-delay-{os.getpid()}"
    machines = [Host(f"{stem}-{number}", f"10.78.0.{number + 1}") for number in range(count)]
    ports: list[_Port] = []
    try:
        for number, host in enumerate(machines):
            ports.append(_Port(_device(host, f"td{os.getpid()}n{number}")))
        threads = [
            threading.Thread(target=work, args=(ports, number, bits_per_second / 8, latency), daemon=True)
            for number in range(count)
            for work in (_read, _write)
        ]
        for thread in threads:
            thread.start()
        yield machines
    finally:
        for port in ports:
            port.waiting.put(None)
        for host in machines:
            subprocess.run(["ip", "netns", "delete", host.namespace], capture_output=True, check=False)
        for port in ports:
            os.close(port.descriptor)


def _device(host: Host, name: str) -> int:
    """A TUN device inside the namespace; its other end."""
    _run("ip", "netns", "add", host.namespace)
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    _run("ip", "link", "set", "dev", name, "netns", host.namespace)
    for words in (
        ("link", "set", "dev", name, "name", DEVICE),
        ("link", "set", "dev", DEVICE, "mtu", str(PACKET), "txqueuelen", "1000"),
        ("address", "add", f"{host.address}/24", "dev", DEVICE),
        ("link", "set", "dev", DEVICE, "up"),
        ("link", "set", "dev", "lo", "up"),
    ):
        _run("ip", "-n", host.namespace, *words)
    return descriptor


def _read(ports: list[_Port], own: int, rate: float, latency: float) -> None:
    _in_real_time()
    port = ports[own]
    while True:
        try:
            packet = os.read(port.descriptor, PACKET + 100)
        except OSError:
            return  # the namespace is gone
        if packet[0] >> 4 != 4 or not 1 <= packet[19] <= len(ports):
            continue
        target = ports[packet[19] - 1]
        seconds = len(packet) / rate
        now = time.monotonic()
        port.sends_from = max(port.sends_from, now) + seconds
        with target.lock:
            # A packet comes in while it goes out: only what others send to the same end makes it wait.
            target.receives_from = max(target.receives_from + seconds, port.sends_from + latency)
            target.waiting.put((target.receives_from, packet))
        if port.sends_from - now > MOST_AHEAD:
            time.sleep(port.sends_from - now - MOST_AHEAD)


def _write(ports: list[_Port], own: int, rate: float, latency: float) -> None:
    del rate, latency
    _in_real_time()
    port = ports[own]
    while (item := port.waiting.get()) is not None:
        moment, packet = item
        time.sleep(max(0.0, moment - time.monotonic()))
        try:
            os.write(port.descriptor, packet)
        except OSError:
            return


def _in_real_time() -> None:
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(11))


def _run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")
