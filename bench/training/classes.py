"""Two workers on one link: an urgent tensor of one worker that meets a large one of the other.

    python -m bench.training.classes

A server and two workers, each in a network namespace of its own; the link to the server has a rate. Worker 0 sends a
tensor of the most urgent class, alone and while worker 1 sends a larger one of the least urgent class. Ordering at the
workers cannot help here, since each has one tensor only. Measured with a link that knows no classes (tbf) and with one
that honours the mark in the packets (htb by DSCP). Needs root. Writes results/classes.jsonl.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.training import classes_worker, network
from bench.training.records import keep

LINKS: dict[str, Callable[..., None]] = {
    "one class for all (tbf)": network.shape_to,
    "by the mark (htb by DSCP)": network.shape_by_mark,
}


class Program:
    """A process of the benchmark: a word on its input, a line of JSON as the answer."""

    def __init__(self, namespace: str, *words: object) -> None:
        command = ["nice", "-n", "-15", "ip", "netns", "exec", namespace, sys.executable, "-m"]
        command += [classes_worker.__name__, *map(str, words)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a program of the benchmark ended with {self._process.wait(10)}")
        message: dict[str, Any] = json.loads(line)
        return message

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def seconds(server: Program, workers: list[Program], *, busy: bool) -> float:
    """From the moment at which worker 0 sends until the server has its tensor."""
    if busy:
        workers[1].say("send")
        workers[1].answer()
        time.sleep(0.1)  # its connection is at the rate of the link by then
    workers[0].say("send")
    sent = workers[0].answer()["sent"]
    arrived: dict[int, float] = {}
    for _ in range(1 + busy):
        message = server.answer()
        arrived[message["worker"]] = message["arrived"]
    return float(arrived[0] - sent)


def measured(shape: Callable[..., None], options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Seconds alone and beside the other worker, in turn."""
    with network.hosts(3) as hosts:
        shape(hosts, to=0, bits_per_second=options.mbit * 1e6)
        sizes = [options.bytes, 3 * options.bytes]
        server = Program(hosts[0].namespace, "serve", *sizes)
        workers = [
            Program(hosts[1 + rank].namespace, "send", rank, hosts[0].address, size)
            for rank, size in enumerate(sizes)
        ]
        try:
            server.answer()
            seconds(server, workers, busy=False)
            pairs = [
                [seconds(server, workers, busy=busy) for busy in (False, True)] for _ in range(options.rounds)
            ]
        finally:
            for program in [*workers, server]:
                program.end()
    return [alone for alone, _ in pairs], [contended for _, contended in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mbit", type=float, default=200.0, help="rate of the link (default 200)")
    parser.add_argument("--bytes", type=int, default=8 << 20, help="of the urgent tensor (default 8 MiB)")
    parser.add_argument("--rounds", type=int, default=5, help="of each link (default 5)")
    options = parser.parse_args()
    rows = []
    for link, shape in LINKS.items():
        alone, contended = measured(shape, options)
        rows.append(
            {
                "link": link,
                "Mbit/s": options.mbit,
                "bytes": options.bytes,
                "seconds alone (median)": round(statistics.median(alone), 4),
                "seconds beside another (median)": round(statistics.median(contended), 4),
                "lowest beside another": round(min(contended), 4),
                "highest beside another": round(max(contended), 4),
                "beside another over alone": round(
                    statistics.median(contended) / statistics.median(alone), 3
                ),
            }
        )
    keep("classes", rows)


if __name__ == "__main__":
    main()
