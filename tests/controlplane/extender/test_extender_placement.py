"""The real kube-scheduler with the real extender: where pods land, and what happens when the extender does not
answer, or answers nonsense.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.controlplane.extender_world import (
    SCHEDULER,
    Extender,
    extender,
    landed,
    put_dataset,
    start_extender,
    start_scheduler,
)
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes, OwnControlPlane
from tests.support.kube import Kube, Object
from tests.support.kube.objects import gpu_pod
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually

__all__ = ["extender"]

GB = 10**9


def place(
    kube: Kube, *, namespace: str, name: str, count: int, annotation: str | None = None
) -> Counter[str]:
    """Create pods for the scheduler; how many of them landed on each node."""
    chosen = {"set": name}
    annotations = {} if annotation is None else {"tdcs.io/datasets": annotation}
    for number in range(count):
        kube.create(
            gpu_pod(
                name=f"{name}-{number}",
                namespace=namespace,
                scheduler=SCHEDULER,
                labels=chosen,
                annotations=annotations,
            )
        )
    return landed(kube, namespace=namespace, count=count, labels=chosen)


def job(*, namespace: str, annotation: str, pods: int) -> Object:
    pod = gpu_pod(name="x", namespace=namespace, scheduler=SCHEDULER)
    template = {
        "metadata": {"annotations": {"tdcs.io/datasets": annotation}},
        "spec": {**pod["spec"], "restartPolicy": "Never"},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": template},
    }


def test_a_pod_leaves_an_empty_node_with_its_data_to_larger_pods_until_no_other_has_room(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    begun, empty = fake_nodes(count=2, gpus=2)
    kube.create(gpu_pod(name="there", namespace=namespace, spec={"nodeName": begun}))
    annotation = put_dataset(extender, kube, namespace=namespace, held={empty: 2 * GB})
    leave_nodes = json.dumps({"nodes": [empty], "until": "2999-01-01T00:00:00Z"})
    for number, expected in enumerate([begun, empty]):
        annotations = {"tdcs.io/datasets": annotation, "tdcs.io/leave-nodes": leave_nodes}
        labels = {"set": f"small-{number}"}
        pod = gpu_pod(
            name=f"small-{number}",
            namespace=namespace,
            scheduler=SCHEDULER,
            labels=labels,
            annotations=annotations,
        )
        kube.create(pod)
        assert landed(kube, namespace=namespace, count=1, labels=labels) == {expected: 1}


def test_pods_of_a_job_land_on_the_nodes_that_hold_its_data(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=20, gpus=8)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[7]: 2 * GB, nodes[13]: 2 * GB})

    kube.create(job(namespace=namespace, annotation=annotation, pods=8))
    places = landed(kube, namespace=namespace, count=8, labels={"batch.kubernetes.io/job-name": "train"})

    assert set(places) <= {nodes[7], nodes[13]}, extender.process.tail()
    assert extender.answers("scored") >= 8


def test_the_node_with_more_data_fills_first_and_the_rest_overflows(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=4)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[2]: 4 * GB, nodes[6]: 1 * GB})

    places = place(kube, namespace=namespace, name="train", count=10, annotation=annotation)

    assert places[nodes[2]] == 4
    assert places[nodes[6]] == 4
    # The data is a preference: pods that find no room with it run elsewhere.
    assert sum(places.values()) == 10


def test_pods_follow_the_data_when_it_is_elsewhere(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=8)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[1]: 1 * GB})
    before = place(kube, namespace=namespace, name="before", count=3, annotation=annotation)

    put_dataset(extender, kube, namespace=namespace, held={nodes[8]: 1 * GB})
    after = place(kube, namespace=namespace, name="after", count=3, annotation=annotation)

    assert set(before) == {nodes[1]}
    assert set(after) == {nodes[8]}


def test_pods_without_the_annotation_are_spread_as_ever(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=8)
    put_dataset(extender, kube, namespace=namespace, held={nodes[1]: 1 * GB})

    places = place(kube, namespace=namespace, name="other", count=10)

    assert places == dict.fromkeys(nodes, 1)
    assert extender.answers("no_dataset") >= 9  # kube-scheduler does not ask when one node is left


@pytest.mark.failure_mode("extender-down-hangs")
def test_without_the_extender_pods_are_placed_without_regard_to_data_until_it_is_back(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=8)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[4]: 1 * GB})

    extender.process.kill()
    without = place(kube, namespace=namespace, name="without", count=10, annotation=annotation)

    extender.process.start()
    eventually(
        lambda: extender.scored(annotation) == {nodes[4]}, deadline=90, retry_on=(AssertionError, OSError)
    )
    back = place(kube, namespace=namespace, name="back", count=3, annotation=annotation)

    assert without == dict.fromkeys(nodes, 1)
    assert set(back) == {nodes[4]}


@pytest.mark.failure_mode("extender-down-hangs")
def test_an_extender_that_hangs_delays_a_pod_but_does_not_hold_it(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    extender = start_extender(control_plane)
    start_scheduler(control_plane, extender.url, patient=False)
    nodes = fake_nodes(count=5, gpus=8)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[4]: 1 * GB})

    extender.process.pause()
    try:
        places = place(kube, namespace=namespace, name="hung", count=5, annotation=annotation)
    finally:
        extender.process.resume()

    assert places == dict.fromkeys(nodes, 1)


@dataclass
class FixedAnswer:
    """A server in the extender's place, which gives every pod the answer that the test sets."""

    url: str
    status: int = 200
    body: str = "[]"
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and pod of each request so far."""


@contextmanager
def fixed_answer() -> Iterator[FixedAnswer]:
    (port,) = free_ports(1)
    answer = FixedAnswer(f"http://127.0.0.1:{port}")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer.asked.append((self.path, request["Pod"]["metadata"]["name"]))
            content = answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing to the run's output."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="fixed answer", daemon=True)
        thread.start()
        try:
            yield answer
        finally:
            server.shutdown()
            thread.join()


def test_an_extender_that_answers_nonsense_holds_no_pod_and_sends_none_astray(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=3, gpus=8)
    best = nodes[1]
    right = json.dumps([{"Host": best, "Score": 10}])
    wrong = {
        "error": (500, right),
        "no-json": (200, "the nodes are busy"),
        "fraction": (200, json.dumps([{"Host": best, "Score": 3.5}])),
        "stranger": (200, json.dumps([{"Host": "no-such-node", "Score": 10}])),
        "object": (200, json.dumps({"Host": best, "Score": 10})),
    }
    annotation = json.dumps([{"dataset": f"{namespace}/images", "copy": "0"}])
    with fixed_answer() as extender:
        start_scheduler(control_plane, extender.url)
        for name, (extender.status, extender.body) in wrong.items():
            before = len(extender.asked)
            places = place(kube, namespace=namespace, name=name, count=3, annotation=annotation)

            requests = extender.asked[before:]
            assert {("/prioritize", f"{name}-{number}") for number in range(3)} <= set(requests), name
            # As if there was no extender: an answer that was heeded would send all three to one node.
            assert places == dict.fromkeys(nodes, 1), name

        # The scheduler has not turned away from the extender: the next right answer counts.
        extender.status, extender.body = 200, right
        places = place(kube, namespace=namespace, name="right", count=3, annotation=annotation)
        assert places == {best: 3}


@pytest.mark.failure_mode("api-server-silent")
def test_health_is_red_while_the_api_server_is_silent_and_green_again_after(
    own_control_plane: OwnControlPlane,
) -> None:
    plane = own_control_plane(kwok=False)
    extender = start_extender(plane, stale_after=3)
    server = plane.process("kube-apiserver")

    server.kill()
    eventually(lambda: extender.get("/healthz")[0] == 503, deadline=90, describe=extender.process.tail)
    status, sentence = extender.get("/healthz")
    assert "nothing was heard from the API server" in sentence, status
    assert extender.get("/livez")[0] == 200

    server.start()
    eventually(lambda: extender.get("/healthz")[0] == 200, deadline=90, describe=extender.process.tail)


def test_a_port_that_is_taken_is_an_error_with_a_remedy(
    control_plane: ControlPlane, extender: Extender
) -> None:
    port = extender.url.rsplit(":", 1)[1]
    second = control_plane.run(name="second", argv=[sys.executable, "-m", "tdcs_scheduler", f"--port={port}"])

    eventually(lambda: not second.alive, deadline=90)

    assert (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port" in second.tail()
    )
