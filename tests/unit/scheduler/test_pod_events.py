"""The owner of a pod hears what is wrong with its annotation, by an event on that pod."""

import json

import pytest
from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi

from tdcs_scheduler.app import Extender
from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.serving import AnnotationEvents
from tdcs_scheduler.view import DatasetView


class Fresh:
    """A view that is up to date."""

    def is_synced(self) -> bool:
        return True

    def age_seconds(self) -> float:
        return 0.0


def prioritize(app: Extender, *, annotation: str) -> None:
    metadata = {"name": "p", "namespace": "team", "uid": "u", "annotations": {"tdcs.io/datasets": annotation}}
    body = json.dumps({"Pod": {"metadata": metadata}, "NodeNames": ["a", "b"]}).encode()
    app.prioritize(body)


@pytest.mark.failure_mode("annotation-unreadable")
async def test_a_bad_annotation_makes_one_event_on_the_pod() -> None:
    api = ScriptedApi()
    app = Extender(
        view=DatasetView(), freshness=Fresh(), stale_after_seconds=180, report=AnnotationEvents(api=api)
    )
    for _ in range(3):  # kube-scheduler asks again and again
        prioritize(app, annotation="oops")
    await eventually_async(lambda: bool(api.written), deadline=60, interval=0.01)
    assert len(api.written) == 1
    event = api.written[0][1]
    assert event["involvedObject"]["kind"] == "Pod"
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == ("p", "u")
    assert (event["type"], event["reason"]) == ("Warning", "BadDatasetsAnnotation")
    assert "annotation tdcs.io/datasets is 'oops'" in event["message"]
    assert "write a JSON list" in event["message"]


@pytest.mark.failure_mode("annotation-names-missing-dataset")
async def test_a_dataset_that_does_not_exist_makes_one_event_on_the_pod_that_names_it() -> None:
    api, view = ScriptedApi(), DatasetView()
    view.on_change(("team", "empty"), {"status": {}})
    view.on_change(("team", "broken"), {"status": {"copies": 7}})
    app = Extender(view=view, freshness=Fresh(), stale_after_seconds=180, report=AnnotationEvents(api=api))
    prioritize(app, annotation='[{"dataset": "team/empty"}, {"dataset": "team/broken"}]')  # nothing wrong
    for _ in range(3):
        prioritize(app, annotation='[{"dataset": "team/empty"}, {"dataset": "team/imagse", "copy": "0"}]')
    await eventually_async(lambda: bool(api.written), deadline=60, interval=0.01)
    assert len(api.written) == 1
    event = api.written[0][1]
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"]) == ("Pod", "u")
    assert (event["type"], event["reason"]) == ("Warning", "DatasetNotFound")
    assert event["message"] == (
        "there is no Dataset team/imagse, which the annotation tdcs.io/datasets names: it is scheduled without regard "
        "to its data. Correct the name (namespace/name), or create the Dataset before the pod"
    )


async def test_of_several_datasets_the_missing_one_is_named_and_the_others_count() -> None:
    api, view = ScriptedApi(), DatasetView()
    copy = {"id": "0", "nodes": [{"name": "a", "bytes": 9}]}
    view.on_change(("team", "images"), {"status": {"totalBytes": 9, "copies": [copy]}})
    app = Extender(view=view, freshness=Fresh(), stale_after_seconds=180, report=AnnotationEvents(api=api))
    prioritize(app, annotation='[{"dataset": "team/images"}, {"dataset": "team/labels"}]')
    await eventually_async(lambda: bool(api.written), deadline=60, interval=0.01)
    assert "there is no Dataset team/labels" in api.written[0][1]["message"]
    assert "it is scheduled with regard to the others only" in api.written[0][1]["message"]


async def test_event_of_a_pod_with_only_missing_datasets_does_not_say_others_count() -> None:
    api, view = ScriptedApi(), DatasetView()
    copy = {"id": "0", "nodes": [{"name": "a", "bytes": 9}]}
    view.on_change(("team", "images"), {"status": {"totalBytes": 9, "copies": [copy]}})
    demand = Demand(view=view)
    annotations = {"tdcs.io/datasets": '[{"dataset": "team/images"}]'}
    demand.on_pod(("team", "q"), waiting_pod({"metadata": {"annotations": annotations}}))
    app = Extender(
        view=view, freshness=Fresh(), stale_after_seconds=180, report=AnnotationEvents(api=api), demand=demand
    )
    prioritize(app, annotation='[{"dataset": "team/typo"}]')
    await eventually_async(lambda: bool(api.written), deadline=60, interval=0.01)
    assert "it is scheduled without regard to its data. " in api.written[0][1]["message"]
