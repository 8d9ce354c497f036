"""Which new pods come to the scheduler, and that the API server can trust who says so."""

import asyncio
import base64
import json
import ssl
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from tests.support.certificates import TestAuthority
from tests.support.kube.claimed_pods import CLAIM, NEW_PODS
from tests.support.waiting import eventually_async

from tdcs.kube.errors import UnavailableError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CONFIG_MAPS, Resource
from tdcs.trust.roles import Role
from tdcs_scheduler.claim_list import ClaimList, claim_keys
from tdcs_scheduler.http_server import HttpAnswer, HttpRequest
from tdcs_scheduler.metrics import ExtenderMetrics
from tdcs_scheduler.view import DatasetView
from tdcs_scheduler.webhook import Webhook
from tdcs_scheduler.webhook_certificate import CertificateError, CertificateFiles


def webhook() -> tuple[Webhook, ExtenderMetrics]:
    metrics = ExtenderMetrics(view_age_seconds=lambda: 0.0, datasets=lambda: 0.0, waiting_pods=lambda: 0.0)
    view = DatasetView()
    for key in (("team", CLAIM), ("other", "checkpoints")):
        view.on_change(key, {"status": {}})
    return Webhook(view=view, scheduler_name="tdcs-scheduler", metrics=metrics), metrics


def review(pod: Object) -> bytes:
    request = {"uid": "u-1", "namespace": "team", "operation": "CREATE", "object": pod}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def post(app: Webhook, body: bytes, *, method: str = "POST", path: str = "/pods") -> HttpAnswer:
    return app.handle(HttpRequest(method, path, body))


@pytest.mark.parametrize("name", NEW_PODS)
async def test_the_webhook_gives_the_scheduler_to_pods_that_are_placed_by_data(name: str) -> None:
    app, metrics = webhook()
    pod = NEW_PODS[name].build(name=name, namespace="team")
    del pod["metadata"]["namespace"]  # the API server sends it next to the pod only

    answer = json.loads(post(app, review(pod)).body)["response"]

    assert (answer["uid"], answer["allowed"]) == ("u-1", True)
    ours = NEW_PODS[name].ours
    if ours:
        patch = json.loads(base64.b64decode(answer["patch"]))
        assert patch == [{"op": "add", "path": "/spec/schedulerName", "value": "tdcs-scheduler"}]
        assert answer["patchType"] == "JSONPatch"
    else:
        assert "patch" not in answer
    line = f'tdcs_extender_reviews_total{{placed_by_data="{str(ours).lower()}"}} 1.0'
    assert line.encode() in generate_latest(metrics.registry)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"request": {"uid": 7}}', b"\xff", b"[" * 5000])
async def test_what_is_no_review_is_refused_with_a_sentence(body: bytes) -> None:
    app, _ = webhook()
    answer = post(app, body)
    assert answer.status == 400
    assert answer.body.decode().startswith("this is no AdmissionReview of a pod: ")


async def test_a_review_without_end_is_refused_and_other_paths_are_not_served() -> None:
    app, _ = webhook()
    assert post(app, b" " * (5 * 2**20)).status == 413
    assert post(app, review({}), path="/").status == 404
    assert post(app, review({}), method="GET").status == 404


async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()


async def greeting(port: int, authority: TestAuthority, host: str = "127.0.0.1") -> bytes:
    """What a client gets that trusts this authority alone."""
    trusting = ssl.create_default_context(cadata=authority.pair.certificate.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=host)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_trusts_the_authority_can_call_also_after_the_files_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs_scheduler.webhook_certificate.CHECK_SECONDS", 0.01)
    before, after = TestAuthority("before"), TestAuthority("after")
    files = CertificateFiles(folder=before.folder(tmp_path, Role.OPERATOR))
    task = asyncio.create_task(files.run())
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=files.context) as server:
        port = server.sockets[0].getsockname()[1]
        assert await greeting(port, before) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            await greeting(port, before, host="other.example")
        # Files of no use change nothing, and are looked at again.
        (tmp_path / "tls.crt").write_text("none")
        with pytest.raises(CertificateError, match=r"tls.crt and tls.key are no certificate"):
            files.load()
        after.folder(tmp_path, Role.OPERATOR)

        async def trusted() -> bool:
            try:
                return await greeting(port, after) == b"hello"
            except (ssl.SSLError, ConnectionError):
                return False

        await eventually_async(trusted, deadline=20)
        assert not task.done()
    task.cancel()


def test_a_webhook_without_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="upgrade the chart's release"):
        CertificateFiles(folder=tmp_path)


class FakeApi:
    """Holds one object; it is away as often as it is said to be."""

    def __init__(self, live: Object | None, *, away: int = 0) -> None:
        self.live = live
        self.away = away
        self.written: list[Object] = []

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        if self.away:
            self.away -= 1
            raise UnavailableError(
                verb="get", resource=resource, namespace=namespace, name=name, code=503, reason="", detail=""
            )
        return self.live

    async def apply(self, resource: Resource, *, obj: Object) -> Object:
        assert resource is CONFIG_MAPS
        self.live = obj
        self.written.append(obj)
        return obj


async def test_the_list_of_claims_follows_the_datasets_and_writes_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tdcs_scheduler.claim_list.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("tdcs_scheduler.claim_list.CHECK_SECONDS", 0.01)
    datasets = {"team/images", "team/text"}
    api = FakeApi(None, away=1)
    claims = ClaimList(api=api, namespace="tdcs-system", datasets=datasets)  # type: ignore[arg-type]
    task = asyncio.create_task(claims.run())
    try:
        await eventually_async(lambda: len(api.written) == 1, deadline=20)
        assert api.written[0]["metadata"] == {"name": "tdcs-claims", "namespace": "tdcs-system"}
        assert api.written[0]["data"] == {"team.images": "", "team.text": ""}
        datasets.remove("team/text")
        claims.touch()
        await eventually_async(lambda: len(api.written) == 2, deadline=20)
        assert api.written[1]["data"] == {"team.images": ""}
    finally:
        task.cancel()


def test_claims_that_a_config_map_has_no_room_for_are_left_out_and_counted() -> None:
    many = [f"team/{'d' * 50}-{number:05d}" for number in range(20_000)]
    data, left_out = claim_keys(many)
    assert len(data) + left_out["team"] == 20_000
    assert left_out["team"] > 0
    assert len(json.dumps(data, separators=(",", ":"))) < 1_048_576
    assert claim_keys([]) == ({}, {})


@pytest.mark.threat("list-of-claims")
def test_no_namespace_takes_the_room_of_the_others_in_the_list_of_claims() -> None:
    many = [f"{'a' * 63}/{'x' * 55}{number:08}" for number in range(7_600)]
    few = [f"team-{team}/set-{number}" for team in "bcdefgh" for number in range(20)]
    data, left_out = claim_keys([*many, *few])
    assert {key.replace("/", ".") for key in few} <= data.keys()
    assert left_out == {"a" * 63: 7_740 - len(data)}
    assert list(data) == sorted(data)
    # Two that have too many have as many of them each.
    data, left_out = claim_keys(many + [claim.replace("a", "b") for claim in many])
    assert abs(left_out["a" * 63] - left_out["b" * 63]) <= 1


@pytest.mark.threat("list-of-claims")
async def test_claims_without_room_are_said_by_namespace_in_log_and_metric(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs_scheduler.claim_list.MOST_BYTES", 60)
    monkeypatch.setattr("tdcs_scheduler.claim_list.CHECK_SECONDS", 0.01)
    datasets = {f"large/{number:02}" for number in range(9)} | {"small/00"}
    api, counts = FakeApi(None), list[int]()
    claims = ClaimList(
        api=api,  # type: ignore[arg-type]
        namespace="tdcs-system",
        datasets=datasets,
        on_left_out=counts.append,
    )
    task = asyncio.create_task(claims.run())
    try:
        await eventually_async(lambda: len(counts) >= 2, deadline=20)
        assert counts[0] == 10 - len(api.written[0]["data"])
        messages = [text for text in caplog.messages if "no room" in text]
        assert messages == [f"the list of claims has no room for {counts[0]} of 10: large {counts[0]}"]
        datasets.clear()
        await eventually_async(lambda: counts[-1] == 0, deadline=20)
    finally:
        task.cancel()
