"""How fast the admission webhook answers, over HTTPS on loopback. Prints one JSON line.

The webhook is served by the extender's process that the chart runs, with 20 Datasets and pods that wait for them. The
client sends what the API server sends for a new pod, an AdmissionReview of some kilobytes, over one kept connection,
and waits for the whole answer. Every pod mounts ten claims; half of the pods mount claims of Datasets. From the root of
the checkout::

    python -m bench.control_plane.webhook_latency
"""

import argparse
import datetime
import json
import os
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path

from bench.control_plane.extender_latency import (
    WARM_UP,
    Extender,
    api_server,
    call,
    datasets,
    free_port,
    node_names,
    sent_pod,
    waiting_pods,
)

from tdcs.trust.certificates import Subject, make_authority, make_certificate
from tdcs.trust.roles import Role

P99_BAR_MILLISECONDS = 10.0


def review(*claims: str) -> bytes:
    """The call for a new pod that mounts these claims."""
    pod = sent_pod(*claims, claims=True)
    pod["spec"]["schedulerName"] = "default-scheduler"
    request = {"uid": "u-1", "namespace": "team", "operation": "CREATE", "object": pod}
    body = json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()
    head = (
        "POST /pods?timeout=5s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def certificate(folder: Path) -> Path:
    """A folder with a certificate for the webhook."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    authority = make_authority(name="bench", until=until)
    pair = make_certificate(
        subject=Subject(role=Role.OPERATOR, hosts=("127.0.0.1",)), authority=authority, until=until
    )
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return folder


def milliseconds(*, port: int, requests: list[bytes], calls: int) -> tuple[list[float], int]:
    """How long each call took, in order of size; and how many pods got the scheduler."""
    # That a client can trust the certificate is not what is measured.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    times, placed = [], 0
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain) as connection:
            for number in range(calls + WARM_UP):
                began = time.perf_counter()
                body = call(connection, requests[number % len(requests)])
                spent = time.perf_counter() - began
                if number >= WARM_UP:
                    times.append(1000 * spent)
                    placed += b"JSONPatch" in body
    return sorted(times), placed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    options = parser.parse_args()
    nodes = node_names(100)
    placed_datasets = datasets(count=20, nodes=nodes, holders=10)
    server = api_server(
        placed_datasets, pods=waiting_pods(count=100, placed_datasets=placed_datasets), nodes=nodes
    )
    ours = [f"team/d{number}" for number in range(10)]
    scratch = [f"team/scratch-{number}" for number in range(10)]
    with tempfile.TemporaryDirectory(prefix="webhook-latency-") as folder:
        port = free_port()
        extender = Extender(
            api_port=server.server_port,
            folder=Path(folder),
            options=[f"--webhook-port={port}", f"--webhook-certificate={certificate(Path(folder))}"],
        )
        try:
            times, placed = milliseconds(
                port=port, requests=[review(*ours), review(*scratch)], calls=options.calls
            )
        finally:
            extender.stop()
            server.shutdown()
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    figures = {
        "bench": "webhook_latency",
        "calls": options.calls,
        "p50Milliseconds": round(p50, 3),
        "p99Milliseconds": round(p99, 3),
        "placedByData": placed,
        "bar": {"p99": P99_BAR_MILLISECONDS},
        "cpus": os.cpu_count(),
        "load1m": round(os.getloadavg()[0], 1),
        "passed": p99 < P99_BAR_MILLISECONDS and placed == options.calls // 2,
    }
    print(json.dumps(figures))
    return 0 if figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
