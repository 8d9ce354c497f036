"""The local page's server: who may see it, and what it sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import TestServer
from tests.support.kube.api_stand_in import ApiStandIn
from tests.support.kube.live_world import cluster
from tests.support.waiting import eventually_async

from tdcs.cli.live.page_server import COOKIE, LiveServer
from tdcs.cli.live.watches import Watches
from tdcs.kube.client import connect


class Served:
    """A server that looks at an API server's stand-in, and a client of it."""

    def __init__(self, *, server: LiveServer, watches: Watches, url: str, session: ClientSession) -> None:
        self.server = server
        self.watches = watches
        self.url = url
        self.session = session

    async def log_in(self) -> None:
        async with self.session.get(f"{self.url}/?token={self.server.token}") as answer:
            assert answer.status == 200
            assert "<title>TDCS</title>" in await answer.text()

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        async with self.session.get(f"{self.url}/events") as answer:
            assert answer.status == 200
            name = ""
            async for line in answer.content:
                text = line.decode().strip()
                if text.startswith("event: "):
                    name = text.removeprefix("event: ")
                elif text.startswith("data: "):
                    yield name, json.loads(text.removeprefix("data: "))


@asynccontextmanager
async def served(api: ApiStandIn, folder: Path, *, namespace: str | None = None) -> AsyncIterator[Served]:
    client = await connect(kubeconfig=api.kubeconfig(folder))
    server = LiveServer(title="example")
    watches = Watches(api=client, namespace=namespace, fallback="vision", on_change=server.touch)
    server.watch(watches)
    following = asyncio.create_task(watches.run())
    async with (
        TestServer(server.application()) as http,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as session,
    ):
        yield Served(server=server, watches=watches, url=f"http://127.0.0.1:{http.port}", session=session)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await client.close()


async def test_only_who_has_the_printed_address_may_see_the_page(tmp_path: Path) -> None:
    with ApiStandIn({}) as api:
        async with served(api, tmp_path) as page:
            for path in ("/", "/events", "/page.js", "/?token=wrong"):
                async with page.session.get(f"{page.url}{path}") as answer:
                    assert answer.status == 403
                    assert "open the address that tdcs ui printed" in await answer.text()
            await page.log_in()
            (cookie,) = page.session.cookie_jar
            assert (cookie.key, cookie["httponly"], cookie["samesite"]) == (COOKIE, True, "Lax")
            async with page.session.get(f"{page.url}/page.js") as answer:
                assert answer.status == 200
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "http" not in policy
            # A web site whose name leads to this machine is refused, cookie or not.
            async with page.session.get(f"{page.url}/", headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
            async with page.session.post(f"{page.url}/events") as answer:
                assert answer.status == 405


async def test_all_rows_come_first_and_then_those_that_change(tmp_path: Path) -> None:
    objects = cluster(nodes=4, jobs=3)
    with ApiStandIn(objects) as api:
        async with served(api, tmp_path) as page, asyncio.timeout(30):
            await page.log_in()
            await page.watches.settled()
            events = page.events()
            name, first = await anext(events)
            assert (name, first["first"]) == ("rows", True)
            assert len(first["rows"]["nodes"]) == 4
            name, contact = await anext(events)
            assert (name, contact["settled"], contact["lostSince"]) == ("contact", True, 0)

            changed = {**objects["datasets"][0]}
            changed["status"] = {**changed["status"], "state": "Failed"}
            api.put("datasets", changed)
            async for name, event in events:
                if name == "rows" and "datasets" in event["rows"]:
                    break
            assert event["first"] is False
            (row,) = event["rows"]["datasets"].values()
            assert row["state"] == "Failed"


async def test_what_may_not_be_read_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    with ApiStandIn(cluster(nodes=4, jobs=2), forbidden=frozenset({"nodes", "pods"})) as api:
        async with served(api, tmp_path) as page, asyncio.timeout(30):
            await page.watches.settled()
            world = page.watches.world()
            assert world.limits == {
                "nodes": "you may not list nodes",
                "pods": "you may not list pods",
            }
            assert (world.nodes, world.pods) == (None, None)
            assert len(world.datasets) == 8


async def test_an_api_server_that_goes_away_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.cli.live.watches.CONTACT_SECONDS", 0.05)
    with ApiStandIn(cluster(nodes=2, jobs=1)) as api:
        async with served(api, tmp_path) as page, asyncio.timeout(60):
            await page.watches.settled()
            assert not page.watches.contact.problem
            api.__exit__()
            await eventually_async(lambda: page.watches.contact.lost_since, deadline=30)
            assert "Namespace default" in page.watches.contact.problem
            assert page.watches.world().nodes, "what was known is still shown"
