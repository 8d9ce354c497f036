"""A scheduler extender, here a few lines of the test's own, decides where the real scheduler puts pods."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.kube.describe import describe
from tests.support.kube.objects import gpu_pod
from tests.support.waiting import eventually

PODS = 10


@contextmanager
def extender(*, favourites: set[str]) -> Iterator[tuple[str, list[Any]]]:
    """An extender on loopback that gives ``favourites`` the highest score; its URL, and the calls it got."""
    calls: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls.append((self.path, request))
            scores = [{"Host": name, "Score": 10} for name in request["NodeNames"] if name in favourites]
            body = json.dumps(scores).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: a failed test reports the calls."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        server.server_close()


def place(control_plane: ControlPlane, *, namespace: str, scheduler: str) -> list[str]:
    """Create pods for a scheduler, and say on which nodes they landed."""
    kube = control_plane.kube
    chosen = {"scheduler": scheduler}
    kube.create_many(
        gpu_pod(name=f"{scheduler}-{i}", namespace=namespace, scheduler=scheduler, labels=chosen)
        for i in range(PODS)
    )

    def nodes() -> list[str]:
        pods = kube.list("Pod", namespace=namespace, labels=chosen)
        return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

    eventually(
        lambda: len(nodes()) == PODS, deadline=120, describe=lambda: describe(kube, namespace=namespace)
    )
    return nodes()


def test_an_extender_moves_pods_to_the_nodes_it_scores(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    names = fake_nodes(count=20, gpus=8)
    favourites = set(names[7:9])  # room for 16 pods
    with extender(favourites=favourites) as (url, calls):
        profile = {"schedulerName": "with-extender", "percentageOfNodesToScore": 100}
        with_extender = {
            "urlPrefix": url,
            "prioritizeVerb": "prioritize",
            "weight": 10,
            "nodeCacheCapable": True,
        }
        control_plane.start_scheduler(
            name="scheduler-with-extender", config={"profiles": [profile], "extenders": [with_extender]}
        )
        moved = place(control_plane, namespace=namespace, scheduler="with-extender")
    unmoved = place(control_plane, namespace=namespace, scheduler="default-scheduler")

    assert set(moved) <= favourites, calls
    assert [path for path, _ in calls] == ["/prioritize"] * PODS
    assert all(set(request["NodeNames"]) <= set(names) for _, request in calls)
    # Left to itself the scheduler spreads them: a pod a node, and the favourites are no longer empty.
    assert len(set(unmoved)) == PODS
    assert not set(unmoved) & favourites
