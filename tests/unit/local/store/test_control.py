"""The store's control server over HTTP, with the link and the gateway played by the test."""

import hashlib
import http.client
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from deploy.images.store.tdcs_store import control as control_module
from deploy.images.store.tdcs_store import http as server_module
from deploy.images.store.tdcs_store.control import Control
from deploy.images.store.tdcs_store.state import load_link


@dataclass
class Pod:
    """The other containers of the pod: a link agent that obeys the file it is given, and a gateway."""

    wanted: Path
    obeys: bool = True
    wire: dict[str, int] = field(default_factory=lambda: {"egress": 0, "ingress": 0})
    link: str = "pod-1"
    sent: dict[str, dict[str, int]] = field(default_factory=dict)

    def answer(self, path: str) -> Any:
        if path == "/counters":
            return self.sent
        applied = asdict(load_link(self.wanted)) if self.obeys else {"egress": 1, "ingress": 1}
        return {"applied": applied, "wireBytes": self.wire, "link": self.link, "error": None}


@dataclass(frozen=True)
class Store:
    pod: Pod
    port: int

    def ask(
        self, method: str, path: str, body: Any = None, *, chunked: bool = False
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = iter([raw[:700], raw[700:]]) if chunked and raw else raw
        connection.request(method, path, sent, encode_chunked=chunked)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        json_said = answer.getheader("Content-Type") == "application/json"
        return answer.status, json.loads(text) if json_said else {"text": text}


def _serving(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(
        control_module, "APPLY_SECONDS", 60
    )  # a busy machine is not a link that does not obey
    pod = Pod(wanted=tmp_path / "state" / "link.json")

    class Others(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(pod.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    others = _serving(Others)
    url = f"http://127.0.0.1:{others.server_port}"
    own = _serving(server_module.handler(Control(root=tmp_path, link_url=f"{url}/", gateway_url=url)))
    yield Store(pod=pod, port=own.server_port)
    for server in (own, others):
        server.shutdown()
        server.server_close()


def test_a_rate_is_set_for_one_direction_and_the_other_stays(store: Store) -> None:
    store.ask("POST", "/v1/link", {"ingress": "10mbit"})
    assert store.ask("POST", "/v1/link", {"egress": "200mbit"}) == (
        200,
        {"egress": "200mbit", "ingress": "10mbit"},
    )
    _, status = store.ask("GET", "/v1/status")
    assert status["link"]["applied"] == {"egress": 200_000_000, "ingress": 10_000_000}


@pytest.mark.parametrize(
    "asked", [{}, {"egress": "fast"}, {"sideways": "1mbit"}, {"egress": "1mbit", "x": "1"}]
)
def test_a_wrong_link_is_refused_as_kubernetes_would_and_changes_nothing(
    store: Store, asked: dict[str, str]
) -> None:
    code, said = store.ask("POST", "/v1/link", asked)
    assert (code, said["kind"], said["status"], said["code"]) == (400, "Status", "Failure", 400)
    assert load_link(store.pod.wanted).egress is None


def test_a_link_that_does_not_obey_is_an_error_and_makes_the_store_unready(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.ask("GET", "/healthz")[0] == 200
    monkeypatch.setattr(control_module, "APPLY_SECONDS", 0.3)
    store.pod.obeys = False
    code, said = store.ask("POST", "/v1/link", {"egress": "5mbit"})
    assert code == 503
    assert "log of the container link" in said["message"]
    assert store.ask("GET", "/healthz")[0] == 503


def test_wire_bytes_go_on_over_a_new_pod(store: Store) -> None:
    store.pod.wire = {"egress": 100, "ingress": 7}
    store.ask("GET", "/v1/status")
    store.pod.link, store.pod.wire = "pod-2", {"egress": 30, "ingress": 1}
    assert store.ask("GET", "/v1/status")[1]["link"]["wireBytes"] == {"egress": 130, "ingress": 8}


def test_a_bucket_is_filled_and_shown_with_what_it_sent(store: Store) -> None:
    code, made = store.ask("POST", "/v1/datasets/abc", {"files": 3, "size": "1KiB", "seed": "1"})
    assert (code, made["totalFiles"], made["totalBytes"]) == (200, 3, 3072)
    store.pod.sent = {"abc": {"sentBytes": 1024, "gets": 1}, "other": {"sentBytes": 5, "gets": 1}}
    buckets = store.ask("GET", "/v1/status")[1]["buckets"]
    assert (buckets["abc"]["sentBytes"], buckets["abc"]["totalBytes"]) == (1024, 3072)
    assert (buckets["other"]["sentBytes"], buckets["other"]["totalBytes"]) == (5, None)
    text = store.ask("GET", "/metrics")[1]["text"]
    assert 'tdcs_store_sent_bytes_total{bucket="abc"} 1024\n' in text
    assert 'tdcs_store_link_bits_per_second{direction="egress"} +Inf\n' in text
    assert store.ask("GET", "/v1/datasets/abc")[1]["whole"] is True
    assert len(store.ask("GET", "/v1/datasets/abc/manifest")[1]["files"]) == 3


@pytest.mark.parametrize(
    "asked", [{}, {"files": 0, "size": "1", "seed": "1"}, {"files": "x", "size": "1", "seed": "1"}]
)
def test_a_wrong_filling_is_refused_by_the_buckets_name(store: Store, asked: dict[str, object]) -> None:
    code, said = store.ask("POST", "/v1/datasets/abc", asked)
    assert code == 400
    assert "abc" in said["message"]


@pytest.mark.parametrize("chunked", [False, True])
def test_an_archive_is_taken_with_a_length_or_in_chunks(store: Store, chunked: bool) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("7/a.jpg")
        entry.size = 2000
        tar.addfile(entry, io.BytesIO(b"j" * 2000))
    sha256 = hashlib.sha256(made.getvalue()).hexdigest()
    path = f"/v1/datasets/pics/archive?sha256={sha256}&parameters=%7B%22a%22%3A1%7D"
    code, said = store.ask("POST", path, made.getvalue(), chunked=chunked)
    assert (code, said["totalBytes"], said["parameters"]) == (200, 2000, {"a": 1})


def test_a_bucket_is_removed_with_all_that_it_has_and_can_be_filled_again(store: Store) -> None:
    filling = {"files": 3, "size": "1KiB", "seed": "1"}
    store.ask("POST", "/v1/datasets/abc", filling)
    code, removed = store.ask("DELETE", "/v1/datasets/abc")
    assert (code, removed["totalFiles"], removed["totalBytes"]) == (200, 3, 3072)
    assert store.ask("GET", "/v1/datasets/abc")[0] == 404
    assert "abc" not in store.ask("GET", "/v1/status")[1]["buckets"]
    code, said = store.ask("DELETE", "/v1/datasets/abc")
    assert (code, "nothing to remove" in said["message"]) == (404, True)
    assert store.ask("DELETE", "/v1/datasets/..")[0] == 400
    assert store.ask("POST", "/v1/datasets/abc", filling)[1]["totalFiles"] == 3


@pytest.mark.parametrize("path", ["/v1/datasets/none", "/v1/datasets/none/manifest", "/nowhere"])
def test_what_is_not_there_is_not_found(store: Store, path: str) -> None:
    assert store.ask("GET", path)[0] == 404
