"""Events are counted, not repeated, and their loss hurts nobody."""

from typing import Any

from tests.unit.kube.fake import ScriptedApi, error

from tdcs.kube.errors import ForbiddenError
from tdcs.kube.events import NOTE_LIMIT, EventRecorder
from tdcs.model.kube_objects import Object

NOW = "2026-01-01T00:00:00Z"


def about(*, namespace: str = "n") -> Object:
    metadata = {"name": "pictures", "uid": "u"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "tdcs.io/v1alpha2", "kind": "Dataset", "metadata": metadata}


def recorder(api: ScriptedApi) -> EventRecorder:
    return EventRecorder(api=api, component="tdcs-operator", now=lambda: NOW)


async def test_the_same_event_again_is_counted() -> None:
    api = ScriptedApi()
    for _ in range(2):
        await recorder(api).record(about=about(), reason="Loaded", message="all of it")
    (_, created), (verb, patch) = api.written
    assert created["involvedObject"]["name"] == "pictures"
    assert (verb, patch["count"]) == ("merge", 2)


async def test_another_message_is_another_event() -> None:
    api = ScriptedApi()
    for message in ("one", "two"):
        await recorder(api).record(about=about(), reason="Loaded", message=message)
    assert [verb for verb, _ in api.written] == ["create", "create"]


async def test_an_event_about_a_cluster_wide_object_goes_to_the_default_namespace() -> None:
    api = ScriptedApi()
    await recorder(api).record(about=about(namespace=""), reason="Ready", message="x" * 3000, type_="Warning")
    event = api.written[0][1]
    assert event["metadata"]["namespace"] == "default"
    assert event["type"] == "Warning"
    assert len(event["message"]) == NOTE_LIMIT


async def test_a_lost_event_is_no_failure() -> None:
    class Refusing(ScriptedApi):
        async def create(self, resource: Any, *, obj: Object, dry_run: bool = False) -> Object:
            raise error(ForbiddenError)

    await recorder(Refusing()).record(about=about(), reason="Loaded", message="all of it")
