"""How fast the extender answers and starts, over real HTTP on loopback. Prints one JSON line.

The extender is the process that the chart runs. An API server's stand-in gives it the Datasets and the pods that wait
for them (one list each, then a watch that stays quiet); the client sends what kube-scheduler sends: a Pod of some
kilobytes and the names of all candidate nodes, over one kept connection, and waits for the whole answer. Times are the
client's. From the root of the checkout::

    python bench/control_plane/extender_latency.py
"""

import argparse
import json
import math
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: Milliseconds by what is asked about: p50 and p99. Pods whose annotation names ten datasets have none.
BARS = {
    "prioritize5000": (1.0, 5.0),
    "prioritize5000BestIsFull": (1.0, 5.0),
    "prioritize5000TenClaims": (1.0, 5.0),
    "prioritize500": (0.3, 2.0),
}
#: Calls before the first that counts.
WARM_UP = 200
START_BAR_SECONDS, START_BAR_MEGABYTES = 5.0, 200.0


def node_names(count: int) -> list[str]:
    """Names as clouds give them."""
    return [f"gpu-pool-7f3c-{i:05d}" for i in range(count)]


def datasets(*, count: int, nodes: list[str], holders: int) -> list[dict[str, Any]]:
    """Datasets of one copy each, partitioned over some of the nodes."""
    draw = random.Random(1)  # noqa: S311  (a measurement, no secret)
    return [
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": f"d{i}", "namespace": "team", "resourceVersion": str(i + 1), "uid": str(i)},
            "spec": {"source": {"uri": f"s3://bucket/d{i}", "secretRef": {"name": "keys"}}},
            "status": {
                "totalBytes": holders * 10**9,
                "copies": [
                    {
                        "id": "0",
                        "nodes": [
                            {"name": node, "bytes": draw.randrange(1, 10**9)}
                            for node in draw.sample(nodes, min(holders, len(nodes)))
                        ],
                    }
                ],
            },
        }
        for i in range(count)
    ]


def waiting_pods(*, count: int, placed_datasets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods without a node that read one of these Datasets each, in turn."""
    pods = []
    for i in range(count):
        pod = sent_pod(f"team/{placed_datasets[i % len(placed_datasets)]['metadata']['name']}")
        pods.append(
            {**pod, "metadata": {**pod["metadata"], "name": f"waits-{i}", "resourceVersion": str(i + 1)}}
        )
    return pods


def zoned_nodes(names: Sequence[str]) -> list[dict[str, Any]]:
    """The nodes' objects, in three zones by turns."""
    return [
        {
            "metadata": {
                "name": name,
                "resourceVersion": "1",
                "labels": {
                    "topology.kubernetes.io/zone": f"eu-{'abc'[number % 3]}",
                    "topology.kubernetes.io/region": "eu",
                },
            }
        }
        for number, name in enumerate(names)
    ]


def api_server(
    items: list[dict[str, Any]], *, pods: list[dict[str, Any]], nodes: Sequence[str]
) -> ThreadingHTTPServer:
    """A server that lists these Datasets, pods and nodes, and whose watches say nothing."""
    answers = {
        plural: json.dumps({"metadata": {"resourceVersion": "1000000"}, "items": listed}).encode()
        for plural, listed in (("datasets", items), ("pods", pods), ("nodes", zoned_nodes(nodes)))
    }
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = self.path.partition("?")[0].rpartition("/")[2]
            if listed not in answers:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if "watch=" in self.path:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                stopped.wait()
                return
            answer = answers[listed]
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def shutdown(self) -> None:
            stopped.set()
            super().shutdown()

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Extender:
    """The extender's process, from its start until it is ready."""

    def __init__(self, *, api_port: int, folder: Path, options: Sequence[str] = ()) -> None:
        config = folder / "kubeconfig"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{api_port}"}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            ),
            encoding="utf-8",
        )
        self.port = free_port()
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tdcs_scheduler", f"--port={self.port}", *options],
            env={**os.environ, "KUBECONFIG": str(config)},
            stderr=(folder / "log").open("wb"),
        )
        while not self._ready():
            if self.process.poll() is not None or time.perf_counter() - began > 120:
                raise RuntimeError(f"the extender did not become ready:\n{(folder / 'log').read_text()}")
            time.sleep(0.01)
        self.start_seconds = time.perf_counter() - began

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def peak_megabytes(self) -> float:
        """The most memory it has had resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def cpu_seconds(self) -> float:
        """CPU time that it has used: unlike a latency it hardly depends on what else the machine does."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(timeout=30)


def sent_pod(*datasets: str, claims: bool = False) -> dict[str, Any]:
    """A pod of some kilobytes that reads datasets; `claims`: it only mounts their claims."""
    named = json.dumps([{"dataset": dataset, "copy": "0"} for dataset in datasets])
    volumes = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": dataset.partition("/")[2], "readOnly": True}}
        for i, dataset in enumerate(datasets)
    ]
    container = {
        "name": "trainer",
        "image": "registry.example/train:1",
        "env": [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(30)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
    }
    return {
        "metadata": {
            "name": "train-worker-0",
            "namespace": "team",
            "uid": "5b0f2f7c-6f0a-4a52-9a39-3f1a2c8d9e10",
            "labels": {f"label-{i}": "value" for i in range(10)},
            "annotations": {} if claims else {"tdcs.io/datasets": named},
        },
        "spec": {
            "containers": [container],
            "schedulerName": "tdcs-scheduler",
            **({"volumes": volumes} if claims else {}),
        },
        "status": {"phase": "Pending"},
    }


def request(*datasets: str, nodes: list[str], claims: bool = False) -> bytes:
    """A prioritize call, as kube-scheduler sends it."""
    arguments = {"Pod": sent_pod(*datasets, claims=claims), "Nodes": None, "NodeNames": nodes}
    body = json.dumps(arguments, separators=(",", ":")).encode()
    head = (
        "POST /prioritize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def call(connection: socket.socket, sent: bytes) -> bytes:
    """Send a request and take the whole answer; gives its body."""
    connection.sendall(sent)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 20)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))[15:]
    )
    while len(body) < length:
        body += connection.recv(1 << 20)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the extender answered {head.splitlines()[0]!r}: {body[:200]!r}")
    return body


def requests_by_case(placed_datasets: list[dict[str, Any]], *, nodes: list[str]) -> dict[str, list[bytes]]:
    """What is asked in turn, for each Dataset or group of Datasets."""
    names = [f"team/{dataset['metadata']['name']}" for dataset in placed_datasets]
    best = [
        max(dataset["status"]["copies"][0]["nodes"], key=lambda node: node["bytes"])["name"]
        for dataset in placed_datasets
    ]
    return {
        "prioritize5000": [request(name, nodes=nodes) for name in names],
        "prioritize5000BestIsFull": [
            request(name, nodes=[node for node in nodes if node != full])
            for name, full in zip(names, best, strict=True)
        ],
        "prioritize5000TenDatasets": [
            request(*names[start : start + 10], nodes=nodes) for start in range(0, len(names), 10)
        ],
        "prioritize5000TenClaims": [
            request(*names[start : start + 10], nodes=nodes, claims=True)
            for start in range(0, len(names), 10)
        ],
        "prioritize500": [request(name, nodes=nodes[:500]) for name in names],
    }


def latencies(*, port: int, requests: list[bytes], calls: int) -> tuple[list[float], float]:
    """Milliseconds of each call, in order of size; and the mean number of scored nodes."""
    scored, times = 0, []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(calls + WARM_UP):
            began = time.perf_counter()
            body = call(connection, requests[number % len(requests)])
            spent = time.perf_counter() - began
            # The first calls warm up both ends.
            if number >= WARM_UP:
                times.append(1000 * spent)
                scored += body.count(b'"Host"')
    return sorted(times), scored / calls


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--holders", type=int, default=64, help="nodes that hold a dataset")
    parser.add_argument("--waiting", type=int, default=1000, help="pods that wait for a node meanwhile")
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    nodes = node_names(5000)
    figures: dict[str, object] = {
        "bench": "extender_latency",
        "holders": options.holders,
        "waitingPods": options.waiting,
        "calls": options.calls,
    }
    passed = True
    with tempfile.TemporaryDirectory(prefix="extender-latency-") as folder:
        placed_datasets = datasets(count=500, nodes=nodes, holders=options.holders)
        server = api_server(
            placed_datasets,
            pods=waiting_pods(count=options.waiting, placed_datasets=placed_datasets),
            nodes=nodes,
        )
        starts, peaks = [], []
        for _ in range(options.starts):
            extender = Extender(api_port=server.server_port, folder=Path(folder))
            starts.append(extender.start_seconds)
            peaks.append(extender.peak_megabytes())
            extender.stop()
        server.shutdown()
        figures["coldStart"] = {
            "nodes": 5000,
            "datasets": 500,
            "secondsWorst": round(max(starts), 2),
            "peakMegabytes": round(max(peaks), 1),
            "bar": {"seconds": START_BAR_SECONDS, "megabytes": START_BAR_MEGABYTES},
        }
        passed &= max(starts) < START_BAR_SECONDS and max(peaks) < START_BAR_MEGABYTES
        placed_datasets = datasets(count=200, nodes=nodes, holders=options.holders)
        server = api_server(
            placed_datasets,
            pods=waiting_pods(count=options.waiting, placed_datasets=placed_datasets),
            nodes=nodes,
        )
        extender = Extender(api_port=server.server_port, folder=Path(folder))
        for case, requests in requests_by_case(placed_datasets, nodes=nodes).items():
            half, most = BARS.get(case, (math.inf, math.inf))
            before = extender.cpu_seconds()
            times, scored = latencies(port=extender.port, requests=requests, calls=options.calls)
            spent = extender.cpu_seconds() - before
            p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
            figures[case] = {
                "p50Milliseconds": round(p50, 3),
                "p99Milliseconds": round(p99, 3),
                "scoredMean": round(scored, 1),
                "cpuMillisecondsPerCall": round(1000 * spent / (options.calls + WARM_UP), 3),
                **({"bar": {"p50": half, "p99": most}} if case in BARS else {}),
            }
            passed &= p50 <= half and p99 <= most
        figures["peakMegabytes"] = round(extender.peak_megabytes(), 1)
        extender.stop()
        server.shutdown()
    figures |= {"cpus": os.cpu_count(), "load1m": round(os.getloadavg()[0], 1), "passed": passed}
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
