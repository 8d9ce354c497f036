"""The owner of a pod hears what is wrong with its annotation, by an event on that pod."""

import json

from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi

from tdcs_scheduler.app import Extender
from tdcs_scheduler.complaints import Complaints
from tdcs_scheduler.view import DatasetView


class Fresh:
    """A view that is up to date."""

    def is_synced(self) -> bool:
        return True

    def age_seconds(self) -> float:
        return 0.0


async def prioritize(app: Extender, *, annotation: str) -> None:
    metadata = {"name": "p", "namespace": "team", "uid": "u", "annotations": {"tdcs.io/datasets": annotation}}
    body = json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a"]}).encode()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body}

    async def send(message: object) -> None:
        pass

    await app({"type": "http", "method": "POST", "path": "/prioritize"}, receive, send)


async def test_a_bad_annotation_makes_one_event_on_the_pod() -> None:
    api = ScriptedApi()
    app = Extender(
        view=DatasetView(), freshness=Fresh(), stale_after_seconds=180, complain=Complaints(api=api)
    )
    for _ in range(3):  # kube-scheduler asks again and again
        await prioritize(app, annotation="oops")
    await eventually_async(lambda: bool(api.written), deadline=5, interval=0.01)
    assert len(api.written) == 1
    event = api.written[0][1]
    assert event["involvedObject"]["kind"] == "Pod"
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == ("p", "u")
    assert (event["type"], event["reason"]) == ("Warning", "BadDatasetsAnnotation")
    assert "annotation tdcs.io/datasets is 'oops'" in event["message"]
    assert "write a JSON list" in event["message"]
