"""The live view notices what happened while it was not looking."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.virtual_time import VirtualTimeLoop
from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi, Step, error, pod

from tdcs.kube import informer as module
from tdcs.kube.api import ObjectList, WatchEvent
from tdcs.kube.errors import GoneError, UnavailableError
from tdcs.kube.informer import Informer, backoff
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import PODS, Resource

Changes = list[tuple[str, str | None]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "backoff", lambda failures: 0.001)


@asynccontextmanager
async def running(api: ScriptedApi) -> AsyncIterator[tuple[Informer, Changes]]:
    """An informer of pods, with the changes that it reports as (name, version or None)."""
    changes: Changes = []

    def on_change(key: Key, _: Object | None, after: Object | None) -> None:
        changes.append((key[1], after["metadata"]["resourceVersion"] if after else None))

    informer = Informer(api=api, resource=PODS, on_change=on_change)
    task = asyncio.create_task(informer.run())
    try:
        yield informer, changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def listing(*pods: Object, version: int) -> ObjectList:
    return ObjectList(items=list(pods), resource_version=str(version))


async def test_events_change_the_view() -> None:
    api = ScriptedApi(
        lists=[listing(pod("a", 1), pod("b", 2), version=2)],
        watches=[
            [
                WatchEvent(type="MODIFIED", object=pod("a", 3)),
                WatchEvent(type="DELETED", object=pod("b", 4)),
                WatchEvent(type="ADDED", object=pod("c", 5)),
            ]
        ],
    )
    async with running(api) as (informer, changes):
        await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
        assert sorted(name for _, name in informer.store) == ["a", "c"]
        assert changes == [("a", "1"), ("b", "2"), ("a", "3"), ("b", None), ("c", "5")]
        assert api.watched_from == ["2", "5"]  # a watch that ends in order goes on where it was


async def test_a_deletion_that_falls_into_a_gap_is_noticed_by_the_next_list() -> None:
    api = ScriptedApi(
        lists=[listing(pod("a", 1), pod("b", 2), version=2), listing(pod("b", 9), version=9)],
        watches=[[error(GoneError)]],
    )
    async with running(api) as (informer, changes):
        await eventually_async(lambda: api.listed == 2 and len(api.watched_from) == 2, deadline=60)
        assert sorted(name for _, name in informer.store) == ["b"]
        assert changes == [("a", "1"), ("b", "2"), ("a", None), ("b", "9")]


async def test_objects_unchanged_in_a_new_list_are_not_reported_again() -> None:
    api = ScriptedApi(lists=[listing(pod("a", 1), version=2)], watches=[[error(GoneError)]])
    async with running(api) as (_, changes):
        await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
        assert changes == [("a", "1")]


async def test_bookmarks_move_the_place_to_continue_from() -> None:
    api = ScriptedApi(
        lists=[listing(version=2)],
        watches=[[WatchEvent(type="BOOKMARK", object={"metadata": {"resourceVersion": "70"}})]],
    )
    async with running(api) as (informer, changes):
        await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
        assert api.watched_from == ["2", "70"]
        assert (informer.store, changes) == ({}, [])


@pytest.mark.failure_mode("event-repeated-or-late")
async def test_events_that_come_twice_or_too_late_change_nothing() -> None:
    """A pod that was deleted must not come back by an older event: what is reserved for it would stay so."""

    def changed(name: str, version: int) -> WatchEvent:
        return WatchEvent(type="MODIFIED", object=pod(name, version))

    def deleted(name: str, version: int) -> WatchEvent:
        return WatchEvent(type="DELETED", object=pod(name, version))

    api = ScriptedApi(
        lists=[listing(pod("a", 1), pod("b", 2), version=2)],
        watches=[
            [
                *(changed("b", 2), changed("a", 5), changed("a", 5), changed("a", 4)),
                *(deleted("b", 7), deleted("b", 7), changed("b", 6)),
                WatchEvent(type="ADDED", object=pod("b", 9)),
                deleted("b", 7),
            ]
        ],
    )
    async with running(api) as (informer, changes):
        await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
        assert changes == [("a", "1"), ("b", "2"), ("a", "5"), ("b", None), ("b", "9")]
        assert api.watched_from == ["2", "9"]
        assert sorted(name for _, name in informer.store) == ["a", "b"]


async def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    odd = {"metadata": {**pod("a", 0)["metadata"], "resourceVersion": "v-1"}}
    api = ScriptedApi(
        lists=[listing(version=2)],
        watches=[[WatchEvent(type="ADDED", object=odd), WatchEvent(type="MODIFIED", object=pod("a", 1))]],
    )
    async with running(api) as (_, changes):
        await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
        assert changes == [("a", "v-1"), ("a", "1")]


async def test_a_server_that_was_restored_from_a_backup_is_believed_by_its_list() -> None:
    api = ScriptedApi(
        lists=[listing(pod("a", 90), pod("b", 91), version=91), listing(pod("a", 40), version=41)],
        watches=[[error(GoneError)], [WatchEvent(type="ADDED", object=pod("c", 42))]],
    )
    async with running(api) as (informer, _):
        await eventually_async(lambda: len(api.watched_from) == 3, deadline=60)
        assert {name: obj["metadata"]["resourceVersion"] for (_, name), obj in informer.store.items()} == {
            "a": "40",
            "c": "42",
        }


def bookmark(version: int) -> WatchEvent:
    return WatchEvent(type="BOOKMARK", object={"metadata": {"resourceVersion": str(version)}})


@pytest.mark.parametrize(
    "steps",
    [
        [bookmark(6)],
        [WatchEvent(type="ADDED", object=pod("new", 7))],
        [WatchEvent(type="DELETED", object=pod("gone", 7))],
        [WatchEvent(type="MODIFIED", object=pod("a", 1003)), WatchEvent(type="ADDED", object=pod("new", 7))],
        [WatchEvent(type="MODIFIED", object=pod("a", 1003)), bookmark(1002)],
    ],
    ids=["bookmark", "addition", "deletion", "addition-later", "bookmark-later"],
)
async def test_versions_that_go_back_while_it_is_followed_lead_to_a_new_list(
    steps: list[Step], caplog: pytest.LogCaptureFixture
) -> None:
    """A server whose store was restored has a history that the view does not know."""
    api = ScriptedApi(
        lists=[
            listing(pod("a", 900), pod("gone", 901), version=1000),
            listing(pod("a", 5), pod("new", 7), version=8),
        ],
        watches=[steps, [WatchEvent(type="ADDED", object=pod("b", 9))]],
    )
    async with running(api) as (informer, _):
        await eventually_async(lambda: len(api.watched_from) == 3, deadline=60)
        assert api.watched_from == ["1000", "8", "9"]
        assert {name: obj["metadata"]["resourceVersion"] for (_, name), obj in informer.store.items()} == {
            "a": "5",
            "new": "7",
            "b": "9",
        }
    assert "Pod: versions of the server went back" in caplog.text


async def test_a_server_whose_versions_go_back_each_time_is_asked_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure_counts: list[int] = []

    def pause(*, failures: int) -> float:
        failure_counts.append(failures)
        return 0.001 if failures < 5 else 60.0

    monkeypatch.setattr(module, "backoff", pause)
    api = ScriptedApi(lists=[listing(pod("a", 900), version=1000)], watches=[[bookmark(6)]] * 20)
    async with running(api):
        await eventually_async(lambda: failure_counts == [1, 2, 3, 4, 5], deadline=60)
        assert api.listed == 6


async def test_a_change_that_meets_a_defect_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[str, bool, bool]] = []

    def on_change(key: Key, before: Object | None, after: Object | None) -> None:
        heard.append((key[1], before is not None, after is not None))
        if key[1] == "bad":
            raise KeyError("spec")

    events: list[Step] = [
        WatchEvent(type="MODIFIED", object=pod("bad", 3)),
        WatchEvent(type="MODIFIED", object=pod("good", 4)),
        WatchEvent(type="DELETED", object=pod("bad", 5)),
        WatchEvent(type="DELETED", object=pod("good", 6)),
    ]
    api = ScriptedApi(lists=[listing(pod("bad", 1), pod("good", 2), version=2)], watches=[events])
    informer = Informer(api=api, resource=PODS, on_change=on_change)
    task = asyncio.create_task(informer.run())
    await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
    assert [change[0] for change in heard] == ["bad", "good"] * 3
    assert [change[1:] for change in heard] == [(False, True)] * 2 + [(True, True)] * 2 + [(True, False)] * 2
    assert informer.store == {}
    assert api.watched_from == ["2", "6"]  # nothing was listed or watched again because of it
    assert "Pod n/bad: a change of it met a defect" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_others_run_while_a_list_of_many_objects_is_taken_in() -> None:
    many = [pod(str(number), number + 1) for number in range(3 * module.AT_ONCE)]
    informer = Informer(api=ScriptedApi(lists=[listing(*many, version=9_999)]), resource=PODS)
    task, sizes = asyncio.create_task(informer.run()), set[int]()
    async with asyncio.timeout(60):
        while not informer.synced.is_set():
            sizes.add(len(informer.store))
            await asyncio.sleep(0)
    assert len(sizes) > 2
    assert len(informer.store) == len(many)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_is_away_is_asked_again() -> None:
    api = ScriptedApi(
        lists=[error(UnavailableError), error(UnavailableError), listing(pod("a", 1), version=1)],
    )
    async with running(api) as (informer, _):
        await asyncio.wait_for(informer.synced.wait(), timeout=60)
        assert api.listed == 3


async def test_a_watch_that_keeps_breaking_leads_to_a_new_list() -> None:
    api = ScriptedApi(lists=[listing(version=1)], watches=[[error(UnavailableError)] for _ in range(3)])
    async with running(api):
        await eventually_async(lambda: len(api.watched_from) == 4, deadline=60)
        assert api.listed == 3


class Curt(ScriptedApi):
    """An API server that ends each watch at once, in order or by saying that its version is too old."""

    def __init__(self, *, says_gone: bool) -> None:
        super().__init__()
        self._says_gone = says_gone

    async def watch(
        self, resource: Resource, *, resource_version: str, **_: object
    ) -> AsyncIterator[WatchEvent]:
        self.watched_from.append(resource_version)
        await asyncio.sleep(0)
        if self._says_gone:
            raise error(GoneError)
        for nothing in list[WatchEvent]():
            yield nothing


@pytest.mark.parametrize("says_gone", [False, True])
@pytest.mark.failure_mode("api-server-ends-watches")
async def test_a_server_that_ends_each_watch_at_once_is_asked_with_growing_pauses(
    says_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure_counts: list[int] = []

    def pause(*, failures: int) -> float:
        failure_counts.append(failures)
        return 0.001 if failures < 5 else 60.0

    monkeypatch.setattr(module, "backoff", pause)
    api = Curt(says_gone=says_gone)
    async with running(api):
        await eventually_async(lambda: failure_counts == [1, 2, 3, 4, 5], deadline=60)
        assert len(api.watched_from) == 6  # the first was followed by another one at once


async def test_silence_shows_in_the_age_of_the_last_contact() -> None:
    now = 0.0
    informer = Informer(api=ScriptedApi(), resource=PODS, clock=lambda: now)
    task = asyncio.create_task(informer.run())
    await asyncio.wait_for(informer.synced.wait(), timeout=60)
    now = 200.0
    assert informer.last_contact_age() == 200
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_pauses_double_up_to_a_bound_and_are_spread() -> None:
    for failures, ceiling in [(1, 0.5), (2, 1.0), (5, 8.0), (100, 10.0)]:
        pauses = {backoff(failures=failures) for _ in range(50)}
        assert ceiling / 2 <= min(pauses) < max(pauses) <= ceiling


async def test_of_many_objects_only_what_counts_is_kept() -> None:
    def keep(obj: Object) -> Object:
        return {"metadata": obj["metadata"], "kept": True}

    large = {**pod("b", 2), "spec": {"containers": ["much"]}}
    api = ScriptedApi(watches=[[WatchEvent(type="ADDED", object=large)]])
    informer = Informer(api=api, resource=PODS, fields="spec.nodeName!=", keep=keep)
    task = asyncio.create_task(informer.run())
    await eventually_async(lambda: ("n", "b") in informer.store, deadline=60, interval=0.01)
    assert informer.store["n", "b"] == {"metadata": large["metadata"], "kept": True}
    assert api.options == {"labels": None, "fields": "spec.nodeName!=", "keep": keep}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_is_taken_and_never_brings_anything_is_given_up_for_a_list() -> None:
    """Also when the next one is as silent: what has changed meanwhile is known by then."""
    lists = [
        listing(pod("a", 1), version=2),
        listing(pod("b", 9), version=9),
        listing(pod("c", 11), version=11),
    ]
    api = ScriptedApi(lists=list(lists))
    informer = Informer(api=api, resource=PODS, silence=0.05)
    task = asyncio.create_task(informer.run())
    await eventually_async(lambda: [name for _, name in informer.store] == ["c"], deadline=60)
    assert api.watched_from[:2] == ["2", "9"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_watch_that_brings_bookmarks_is_not_listed_again() -> None:
    """A quiet resource is no silent server: it has a bookmark a minute."""

    class Bookmarks(ScriptedApi):
        async def watch(self, resource: Resource, **options: object) -> AsyncIterator[WatchEvent]:
            self.watched_from.append(str(options["resource_version"]))
            for version in range(3, 33):
                await asyncio.sleep(60.0)
                yield WatchEvent(type="BOOKMARK", object={"metadata": {"resourceVersion": str(version)}})
            await asyncio.Event().wait()

    async def half_an_hour_and_a_silence() -> None:
        informer = Informer(api=api, resource=PODS)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(30 * 60 + module.SILENCE_SECONDS - 1)
        assert api.listed == 1
        await asyncio.sleep(2)
        assert api.listed == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    api = Bookmarks(lists=[listing(version=2)])
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(half_an_hour_and_a_silence())


@pytest.mark.failure_mode("etcd-restored-from-backup")
async def test_an_object_changed_at_the_same_version_is_reported_after_a_list() -> None:
    """A store that was restored from a backup gives versions out again that it had given before."""
    api = ScriptedApi(
        lists=[
            listing(pod("a", 105, labels={"of": "before"}), version=105),
            listing(pod("a", 105, labels={"of": "after"}), version=105),
        ],
        watches=[[error(GoneError)]],
    )
    async with running(api) as (informer, changes):
        await eventually_async(lambda: len(api.watched_from) == 2, deadline=60)
        assert informer.store["n", "a"]["metadata"]["labels"] == {"of": "after"}
        assert changes == [("a", "105"), ("a", "105")]
