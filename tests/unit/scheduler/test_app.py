"""The extender's answers, without a network: its handler is called as the server would."""

import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import generate_latest

from tdcs_scheduler.app import Extender
from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.http_server import HttpAnswer, HttpRequest
from tdcs_scheduler.main import LogFormat
from tdcs_scheduler.view import DatasetView

DATASET = {"status": {"totalBytes": 9, "copies": [{"id": "0", "nodes": [{"name": "a", "bytes": 9}]}]}}


@dataclass
class Clock:
    """A freshness that a test sets."""

    synced: bool = True
    age: float = 0.0

    def is_synced(self) -> bool:
        return self.synced

    def age_seconds(self) -> float:
        return self.age


def extender(freshness: Clock | None = None, **options: Any) -> Extender:
    view = DatasetView()
    view.on_change(("team", "images"), DATASET)
    return Extender(view=view, freshness=freshness or Clock(), stale_after_seconds=180, **options)


def ask(app: Extender, method: str, path: str, body: bytes = b"", *, port: int = 8900) -> HttpAnswer:
    return app.handle(HttpRequest(method, path, body, port))


def request(annotation: str | None = '[{"dataset": "team/images", "copy": "0"}]', uid: str = "u") -> bytes:
    annotations = {} if annotation is None else {"tdcs.io/datasets": annotation}
    metadata = {"name": "p", "namespace": "team", "uid": uid, "annotations": annotations}
    return json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a", "b"]}).encode()


async def metric(app: Extender, line: str) -> float:
    text = generate_latest(app.metrics.registry).decode()
    return float(next(sample for sample in text.splitlines() if sample.startswith(line + " ")).split()[-1])


async def test_prioritize_answers_with_the_nodes_that_hold_data() -> None:
    answer = ask(extender(), "POST", "/prioritize", request())

    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(answer.body) == [{"Host": "a", "Score": 10}]


async def test_a_pod_without_the_annotation_gets_an_empty_list() -> None:
    answer = ask(extender(), "POST", "/prioritize", request(annotation=None))

    assert (answer.status, answer.body) == (200, b"[]")


async def test_answers_and_refusals_are_counted_by_kind() -> None:
    app = extender()
    for body in (request(), request(), request(annotation=None), request(annotation="["), b"no json"):
        ask(app, "POST", "/prioritize", body)

    assert await metric(app, 'tdcs_extender_answers_total{kind="scored"}') == 2
    assert await metric(app, 'tdcs_extender_answers_total{kind="no_dataset"}') == 1
    assert await metric(app, 'tdcs_extender_answers_total{kind="bad_annotation"}') == 1
    assert await metric(app, "tdcs_extender_decode_errors_total") == 1
    assert await metric(app, "tdcs_extender_prioritize_seconds_count") == 4
    assert await metric(app, "tdcs_extender_datasets") == 1
    assert await metric(app, "tdcs_extender_waiting_pods") == 0


async def test_it_leaves_to_the_pods_that_wait_what_only_they_can_use() -> None:
    view = DatasetView()
    for name, nodes in (("images", "ab"), ("text", "a")):
        listed = [{"name": node, "bytes": 9} for node in nodes]
        view.on_change(
            ("team", name), {"status": {"totalBytes": 9, "copies": [{"id": "0", "nodes": listed}]}}
        )
    demand = Demand(view=view)
    app = Extender(view=view, freshness=Clock(), stale_after_seconds=180, demand=demand)
    for name, dataset in (("p", "images"), ("q", "text")):
        annotations = {"tdcs.io/datasets": json.dumps([{"dataset": f"team/{dataset}"}])}
        demand.on_pod(("team", name), waiting_pod({"metadata": {"annotations": annotations}}))

    answer = json.loads(ask(app, "POST", "/prioritize", request()).body)

    assert {host["Host"]: host["Score"] for host in answer} == {"a": 5, "b": 10}
    # Of p and q, p was asked about: it is its turn.
    assert await metric(app, "tdcs_extender_waiting_pods") == 1


async def test_a_bad_request_is_refused_with_a_sentence_and_the_next_one_is_served() -> None:
    app = extender()

    refused = ask(app, "POST", "/prioritize", b'{"Pod": 7}')
    assert refused.status == 400
    assert "no ExtenderArgs" in refused.body.decode()

    assert ask(app, "POST", "/prioritize", request()).status == 200


async def test_a_body_without_end_is_refused() -> None:
    app = extender()

    answer = ask(app, "POST", "/prioritize", b" " * 17 * 2**20)

    assert answer.status == 413
    assert await metric(app, "tdcs_extender_decode_errors_total") == 1


@pytest.mark.parametrize(
    ("freshness", "status", "sentence"),
    [
        (Clock(), 200, "ok"),
        (Clock(age=100), 200, "ok"),
        (Clock(synced=False), 503, "have not been listed"),
        (Clock(age=200), 503, "nothing was heard from the API server for 200 s"),
    ],
    ids=["fresh", "quiet", "not synced", "stale"],
)
async def test_health_is_red_while_the_view_is_not_to_be_trusted(
    freshness: Clock, status: int, sentence: str
) -> None:
    app = extender(freshness)

    answer = ask(app, "GET", "/healthz")

    assert answer.status == status
    assert sentence in answer.body.decode()
    # Restarting would lose what is known: only readiness is red.
    assert ask(app, "GET", "/livez").status == 200


async def test_a_stale_view_still_answers_and_its_age_is_a_metric() -> None:
    app = extender(Clock(age=1000))

    assert json.loads(ask(app, "POST", "/prioritize", request()).body) == [{"Host": "a", "Score": 10}]
    assert await metric(app, "tdcs_extender_view_age_seconds") == 1000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/prioritize", 405), ("POST", "/healthz", 405), ("POST", "/filter", 404)],
)
async def test_what_is_not_served_is_said(method: str, path: str, status: int) -> None:
    assert ask(extender(), method, path).status == status


async def test_a_bad_annotation_is_logged_once_a_pod(caplog: pytest.LogCaptureFixture) -> None:
    app = extender()
    with caplog.at_level(logging.WARNING):
        for uid in ("u1", "u1", "u2", "u1"):
            ask(app, "POST", "/prioritize", request(annotation="oops", uid=uid))

    assert len(caplog.records) == 2
    assert "pod team/p: it is scheduled without regard to its data" in caplog.text


async def test_answers_to_pods_that_name_what_does_not_exist_are_counted_apart() -> None:
    app = extender()
    for name in ("team/nowhere", "team/nowhere", "team/images"):
        ask(app, "POST", "/prioritize", request(annotation=json.dumps([{"dataset": name}])))

    assert await metric(app, 'tdcs_extender_answers_total{kind="unknown_dataset"}') == 2
    assert await metric(app, 'tdcs_extender_answers_total{kind="no_data"}') == 0


async def test_an_explaining_extender_says_why_in_json(caplog: pytest.LogCaptureFixture) -> None:
    app = extender(explain=True)
    with caplog.at_level(logging.INFO):
        ask(app, "POST", "/prioritize", request(annotation=None))
        ask(app, "POST", "/prioritize", request())

    (record,) = caplog.records
    logged = json.loads(record.getMessage())
    assert logged["pod"] == "team/p"
    assert logged["scores"] == {"a": 10}
    assert logged["candidates"] == 2
    assert logged["reason"] == "1 candidate holds data of 1 dataset"
    assert json.loads(LogFormat().format(record)) == logged
    plain_record = logging.LogRecord("tdcs_scheduler.main", logging.INFO, "", 0, "serving", None, None)
    assert LogFormat().format(plain_record).endswith(" INFO tdcs_scheduler.main: serving")


@pytest.mark.parametrize("names", [["a", 1], [["a"]]])
async def test_an_explaining_extender_refuses_names_that_are_no_strings(names: list[Any]) -> None:
    body = {**json.loads(request()), "NodeNames": names}
    answer = ask(extender(explain=True), "POST", "/prioritize", json.dumps(body).encode())

    assert answer.status == 400
    assert b"NodeNames" in answer.body


async def test_the_port_for_health_tells_it_but_no_scores() -> None:
    app = extender(health_port=8901)

    assert ask(app, "POST", "/prioritize", request(), port=8901).status == 404
    assert ask(app, "GET", "/healthz", port=8901).status == 200
    assert ask(app, "POST", "/prioritize", request(), port=8900).status == 200
