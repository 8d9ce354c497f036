"""Children are written when they differ, never over a stranger's object."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kube.fake import ScriptedApi

from tdcs.kube.apply import Applier, ForeignObjectError, PredecessorError, covers, owner_reference
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import SERVICES

OWNER: Object = {
    "apiVersion": "tdcs.io/v1alpha2",
    "kind": "TrainingJob",
    "metadata": {"name": "train", "namespace": "n", "uid": "owner"},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def child_of(**spec: Any) -> Object:
    return {
        "metadata": {"name": "train", "namespace": "n", "ownerReferences": [owner_reference(OWNER)]},
        "spec": spec,
    }


async def test_a_child_is_made_and_then_left_alone() -> None:
    api = ScriptedApi()
    applier = Applier(api=api)
    live = await applier.apply(SERVICES, wanted=child_of(a=1), live=None, owner=OWNER)
    served = {**live, "spec": {**live["spec"], "defaulted": True}}
    assert await applier.apply(SERVICES, wanted=child_of(a=1), live=served, owner=OWNER) is served
    assert len(api.written) == 1


async def test_what_someone_else_changed_is_put_back() -> None:
    api = ScriptedApi()
    applier = Applier(api=api)
    live = await applier.apply(SERVICES, wanted=child_of(a=1), live=None, owner=OWNER)
    await applier.apply(SERVICES, wanted=child_of(a=1), live={**live, "spec": {"a": 2}}, owner=OWNER)
    assert len(api.written) == 2


async def test_a_field_that_is_no_longer_wanted_is_noticed() -> None:
    api = ScriptedApi()
    applier = Applier(api=api)
    live = await applier.apply(SERVICES, wanted=child_of(a=1, b=2), live=None, owner=OWNER)
    await applier.apply(SERVICES, wanted=child_of(a=1), live=live, owner=OWNER)
    assert len(api.written) == 2


async def test_what_the_server_writes_differently_is_not_written_forever() -> None:
    class Normalising(ScriptedApi):
        async def apply(self, resource: Any, *, obj: Object, dry_run: bool = False) -> Object:
            return {**await super().apply(resource, obj=obj), "spec": {"cpu": "1"}}

    api = Normalising()
    applier = Applier(api=api)
    live = await applier.apply(SERVICES, wanted=child_of(cpu="1000m"), live=None, owner=OWNER)
    for _ in range(3):
        live = await applier.apply(SERVICES, wanted=child_of(cpu="1000m"), live=live, owner=OWNER)
    assert len(api.written) == 1
    await applier.apply(
        SERVICES, wanted=child_of(cpu="1000m"), live={**live, "spec": {"cpu": "2"}}, owner=OWNER
    )
    assert len(api.written) == 2


def left_by(kind: str, name: str, *, uid: str = "before", **metadata: Any) -> Object:
    reference = {"apiVersion": "tdcs.io/v1alpha2", "kind": kind, "name": name, "uid": uid}
    return {"metadata": {"name": "train", "namespace": "n", "ownerReferences": [reference], **metadata}}


@pytest.mark.parametrize(
    ("live", "going"),
    [
        pytest.param(left_by("TrainingJob", "train"), True, id="left by an earlier object of the same name"),
        pytest.param(left_by("Other", "x", deletionTimestamp="now"), True, id="being deleted"),
        pytest.param(left_by("TrainingJob", "another"), False, id="of another object"),
        pytest.param(left_by("Dataset", "train"), False, id="of another kind"),
    ],
)
async def test_a_child_that_terminates_is_distinguished_from_a_strangers(live: Object, going: bool) -> None:
    api = ScriptedApi()
    with pytest.raises(ForeignObjectError) as refused:
        await Applier(api=api).apply(SERVICES, wanted=child_of(a=1), live=live, owner=OWNER)
    assert isinstance(refused.value, PredecessorError) is going
    assert ("is being deleted; TrainingJob train goes on" in str(refused.value)) is going
    assert api.written == []


async def test_a_strangers_object_is_left_alone() -> None:
    api = ScriptedApi()
    stranger = {"metadata": {"name": "train", "namespace": "n", "uid": "x"}, "spec": {}}
    with pytest.raises(ForeignObjectError, match="Service n/train exists and was not made for"):
        await Applier(api=api).apply(SERVICES, wanted=child_of(a=1), live=stranger, owner=OWNER)
    assert api.written == []


@given(value=JSON)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(value, value)


def test_more_than_wanted_is_fine_in_a_mapping_but_not_in_a_list() -> None:
    assert covers({"a": 1, "b": 2}, {"a": 1})
    assert not covers({"a": 1}, {"a": 1, "b": 2})
    assert covers([{"a": 1, "b": 2}], [{"a": 1}])
    assert not covers([1, 2], [1])
