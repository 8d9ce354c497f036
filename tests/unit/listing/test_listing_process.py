"""Listings in processes of their own: how many, how they end, what they say of errors."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import psutil
import pytest
from tests.support.waiting import eventually_async
from tests.unit.control.server import Server
from tests.unit.listing.conftest import MOUNT

from tdcs.api import names
from tdcs.control.dataset.mount.listing_gate import STUCK_AT_ONCE
from tdcs.control.operator.cache_factory import cluster_caches
from tdcs.control.operator.native_engine import NativeEngine
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.result import Failed, Request
from tdcs.model.agent_state import SourceAccess
from tdcs.model.cache_engine import (
    NO_KEYS,
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    NoSuchPathError,
    Source,
    SourceError,
)
from tdcs.trust.identity import Identity


def test_an_error_crosses_processes_and_loses_its_secrets() -> None:
    error = EngineUnavailableError(
        attempted="list /datasets/1f",
        reason="it said key-123",
        remedy="Wait",
        path="/datasets/1f",
        retryable=True,
    )

    again = Failed.of(error).error(secrets=["key-123"])

    assert type(again) is EngineUnavailableError
    assert again.retryable
    assert "key-123" not in str(again)
    assert "list /datasets/1f" in str(again)


@pytest.mark.parametrize(
    "kind",
    [EngineError, EngineUnavailableError, KeysRefusedError, LimitExceededError, NoSuchPathError, SourceError],
)
def test_an_error_keeps_its_class_from_one_process_to_the_other(kind: type[EngineError]) -> None:
    error = kind(attempted="list /datasets/1f", reason="so", remedy="mend it", path="/datasets/1f")
    assert type(Failed.of(error).error()) is kind


@pytest.fixture
def silent() -> Iterator[str]:
    """A store that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def lister(folder: ManifestFolder, silent: str) -> ProcessLister:
    """Of a source whose store never answers."""
    source = Source(uri="s3://b", options={"endpoint": silent}, credentials=NO_KEYS)
    return ProcessLister(folder=folder, source_of=lambda _: source)


def listing_processes() -> list[psutil.Process]:
    """Those that this process, or one that it started, has started and that have not ended."""
    children = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends at this moment
            if "tdcs.listing" in child.cmdline():
                children.append(child)
    return children


async def test_a_cancelled_listing_ends(lister: ProcessLister) -> None:
    task = asyncio.create_task(lister.list(path=MOUNT))
    await eventually_async(lambda: len(listing_processes()) == 1, deadline=30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert listing_processes() == []


async def test_the_operators_listings_are_bounded_by_its_gate_alone(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `ListingGate` gives way to others when a source hangs; a second bound would not."""
    begun = 0
    objects = SimpleNamespace(cache_cluster=lambda _name: {"spec": {}}, stateful_sets={})
    source = Source(uri="s3://b", options={"endpoint": "http://127.0.0.1:9"}, credentials=NO_KEYS)
    monkeypatch.setattr(NativeEngine, "source_of", lambda _engine, _path: source)

    async def hang(*words: object, **options: object) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", hang)
    async with aiohttp.ClientSession() as session:
        caches = cluster_caches(
            objects, api=Server(), namespace="tdcs", folder=folder, manifest_url="", session=session
        )
        listers = [caches.get(cluster=name).lister for name in ("one", "other")]
        tasks = [
            asyncio.create_task(lister.list(path=f"{MOUNT}{n}"))
            for n in range(STUCK_AT_ONCE)
            for lister in listers
        ]
        await eventually_async(lambda: begun == len(tasks), deadline=60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await caches.close()


@pytest.mark.parametrize("engine", ["Native", "Alluxio"])
async def test_a_listing_is_told_how_many_agents_there_shall_be(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(
        "tdcs.control.operator.cache_factory.ProcessLister", lambda **told: arguments.update(told)
    )
    labels = {names.LABEL_CACHE_CLUSTER: "c", names.LABEL_COMPONENT: names.COMPONENT_WORKER}
    objects = SimpleNamespace(
        cache_cluster=lambda _name: {"spec": {"engine": engine}},
        stateful_sets={
            ("tdcs", node): {"metadata": {"annotations": {names.ANNOTATION_NODE: node}, "labels": labels}}
            for node in "ab"
        },
    )
    async with aiohttp.ClientSession() as session:
        caches = cluster_caches(
            objects, api=Server(), namespace="tdcs", folder=folder, manifest_url="", session=session
        )
        caches.get(cluster="c")
        assert (arguments["nodes"](), arguments["expected"]()) == ({}, 2)
        await caches.close()


async def test_a_listing_process_that_is_killed_is_an_error_that_may_be_tried_again(
    lister: ProcessLister,
) -> None:
    task = asyncio.create_task(lister.list(path=MOUNT))
    await eventually_async(lambda: len(listing_processes()) == 1, deadline=30)
    listing_processes()[0].kill()

    with pytest.raises(EngineError, match="ended with -9") as failure:
        await task
    assert failure.value.retryable


async def test_a_listing_process_ends_with_whoever_started_it(folder: ManifestFolder, silent: str) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from tdcs.listing.folder import ManifestFolder\n"
        "from tdcs.listing.lister import ProcessLister\n"
        "from tdcs.model.cache_engine import Source\n"
        "source = Source(uri='s3://b', options={'endpoint': sys.argv[2]})\n"
        "lister = ProcessLister(folder=ManifestFolder(pathlib.Path(sys.argv[1])), source_of=lambda _: source)\n"
        "asyncio.run(lister.list(path='/datasets/1f'))\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(folder.path), silent)
    await eventually_async(lambda: len(listing_processes()) == 1, deadline=30)
    child = listing_processes()[0]
    parent.kill()
    await parent.wait()

    def ended() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return child.status() == psutil.STATUS_ZOMBIE  # its new parent has not asked for it
        return True

    await eventually_async(ended, deadline=30)


def test_a_listing_process_gets_the_certificate_that_it_shows() -> None:
    identity = Identity(b"certificate", b"key", b"authorities")
    assert identity.fingerprint
    source = SourceAccess(uri="file:///nfs")
    request = Request(path="/p", folder="/f", source=source, identity=identity)
    request_after = msgspec.json.decode(msgspec.json.encode(request), type=Request)
    assert request_after.identity == identity
    assert b"certificate" not in repr(request).encode()
