"""`tdcs ui` in a real Chromium, and `tdcs top`, on a real API server: what is seen follows what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import yaml
from tests.controlplane.extender_world import CRDS
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes, OwnControlPlane
from tests.support.kube import Kube
from tests.support.kube.api_stand_in import ApiStandIn
from tests.support.kube.live_world import cluster
from tests.support.programs.browser import Browser

from tdcs_local import host
from tdcs_local.progress import Reporter

GB = 10**9


@pytest.fixture(scope="module", autouse=True)
def chromium() -> None:
    host.require_programs("chromium", reporter=Reporter())


@contextmanager
def serving(kubeconfig: Path) -> Iterator[str]:
    """The address of the page while the command runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tdcs.cli", "ui", "--port=0"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = re.search(r"http://127\.0\.0\.1:\S+", process.stdout.readline())
        assert url is not None
        yield url.group()
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


@asynccontextmanager
async def page_of(
    kubeconfig: Path, folder: Path, *, width: int = 1440, dark: bool = False
) -> AsyncIterator[Browser]:
    with serving(kubeconfig) as address:
        async with Browser(folder=folder, width=width, dark=dark) as browser:
            await browser.open(address)
            await browser.until("document.querySelector('#contact')?.dataset.state == 'live'")
            yield browser
            assert not browser.console
            outside = [url for url in browser.requests if not url.startswith(("http://127.0.0.1:", "data:"))]
            assert not outside


def put(kube: Kube, *, namespace: str, held: dict[str, int], state: str = "Loading") -> None:
    """A Dataset of which these nodes hold so much."""
    kube.apply(
        {
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": "images", "namespace": namespace},
            "spec": {"source": {"uri": f"s3://{namespace}/images", "secretRef": {"name": "keys"}}},
        }
    )
    copy = {"id": "0", "nodes": [{"name": node, "bytes": size} for node, size in held.items()]}
    status = {
        "state": state,
        "totalBytes": 4 * GB,
        "wantedBytes": 4 * GB,
        "loadedBytes": sum(held.values()),
        "copies": [copy],
    }
    kube.patch("Dataset", "images", {"status": status}, namespace=namespace, subresource="status")


async def test_the_page_follows_a_dataset_that_fills_and_needs_no_more_rights_than_its_user_has(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes, tmp_path: Path
) -> None:
    kube.install_crds(CRDS)
    (node,) = fake_nodes(count=1)
    put(kube, namespace=namespace, held={node: GB})
    rule = {"apiGroups": ["tdcs.io"], "resources": ["datasets"], "verbs": ["list", "watch"]}
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": "sees-datasets", "namespace": namespace}
    kube.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
    kube.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "sees-datasets"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        }
    )
    limited = control_plane.kubeconfig_as(service_account="default", namespace=namespace)
    config = yaml.safe_load(limited.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    limited.write_text(yaml.safe_dump(config))
    async with page_of(limited, tmp_path) as browser:
        await browser.until("document.querySelector('#datasets-list .row')")
        assert "25% of 3.7 GiB" in await browser.text("#datasets-list .row")
        banners = await browser.text("#banners")
        assert "you may not list nodes" in banners
        assert f"you may list datasets of namespace {namespace} only" in banners
        assert "you may not list trainingjobs" in await browser.text("#jobs-empty")
        # The node is known by what it holds.
        assert node in await browser.text("#nodes-list")

        put(kube, namespace=namespace, held={node: 4 * GB}, state="Ready")
        await browser.until(
            "document.querySelector('#datasets-list .row').innerText.includes('100% of 3.7 GiB')"
        )

    output = printed_once(limited)
    assert f"{namespace}/images" in output
    assert "you may not list nodes" in output


def printed_once(kubeconfig: Path) -> str:
    """What `tdcs top` prints where there is no terminal."""
    command = [sys.executable, "-m", "tdcs.cli", "top"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


async def test_a_page_that_loses_the_api_server_says_so_and_recovers(
    own_control_plane: OwnControlPlane, tmp_path: Path
) -> None:
    plane = own_control_plane(kwok=False)
    plane.kube.install_crds(CRDS)
    put(plane.kube, namespace="default", held={"a": GB})
    async with page_of(plane.kubeconfig, tmp_path) as browser:
        await browser.until("document.querySelector('#datasets-list .row')")

        plane.process("kube-apiserver").kill()
        await browser.until("document.querySelector('#contact').dataset.state == 'lost'")
        assert "The API server does not answer since" in await browser.text("#banners")
        assert "25% of 3.7 GiB" in await browser.text("#datasets-list .row"), "what was known is still shown"

        plane.process("kube-apiserver").start()
        put(plane.kube, namespace="default", held={"a": 2 * GB})
        await browser.until("document.querySelector('#contact').dataset.state == 'live'", seconds=60)
        await browser.until(
            "document.querySelector('#datasets-list .row').innerText.includes('50% of 3.7 GiB')", seconds=60
        )
        assert not await browser.text("#banners")


async def test_the_page_is_usable_by_keyboard_and_on_a_small_screen(tmp_path: Path) -> None:
    objects = cluster(nodes=12, jobs=10)
    states = [job["status"]["state"] for job in objects["trainingjobs"]]
    assert "Starting" in states
    with ApiStandIn(objects) as api:
        async with page_of(api.kubeconfig(tmp_path), tmp_path) as browser:
            await browser.until("document.body.dataset.rows > 20")
            running = f"{states.count('Running')} + {states.count('Starting')} starting"
            assert await browser.text("#stat-running") == running
            focused = "document.activeElement.dataset.key"
            await browser.press("1")
            assert await browser.evaluate(focused) == "gpu-000"
            await browser.press("ArrowRight")
            assert await browser.evaluate(focused) == "gpu-001"
            await browser.press("Enter")
            await browser.until("!document.querySelector('#detail').hidden")
            assert (await browser.text("#detail")).find("Node gpu-001") >= 0
            await browser.press("Escape")
            await browser.until("document.querySelector('#detail').hidden")
            await browser.press("/")
            for letter in "gpu-007":
                await browser.press(letter)
            await browser.until("document.querySelectorAll('#nodes-list .tile').length == 1")
            await browser.press("Escape")
            await browser.until("document.querySelectorAll('#nodes-list .tile').length == 12")
            await browser.press("3")
            first = await browser.evaluate(focused)
            await browser.press("Enter")
            chosen = await browser.evaluate(
                "document.querySelector('#jobs-list [aria-pressed=true]').dataset.key"
            )
            assert chosen == first
            assert await browser.evaluate("document.querySelectorAll('#nodes-list .linked').length") >= 1

            await browser.resize(390, 800, mobile=True)
            await browser.until("getComputedStyle(document.querySelector('.tabs')).display == 'flex'")
            await browser.evaluate("document.querySelector('.tabs [data-tab=datasets]').click()")
            is_visible = "section => getComputedStyle(document.getElementById(section)).display != 'none'"
            sections = await browser.evaluate(f"['nodes', 'jobs', 'datasets'].filter({is_visible})")
            assert sections == ["datasets"]
            wide = "document.documentElement.scrollWidth <= innerWidth"
            assert await browser.evaluate(wide), "nothing is to be scrolled sideways"


SIZES = ((390, 800), (1024, 768), (1400, 900), (2560, 1300))

CLIPPED = """
[...document.querySelectorAll('header *, #banners *, main *, aside *')].filter(each => {
  const style = getComputedStyle(each);
  const hides = !['visible', 'auto', 'scroll'].includes(style.overflowX);
  const shows = each.offsetParent && each.innerText && !each.matches('.hidden');
  return hides && shows && each.scrollWidth > each.clientWidth + 1;
}).map(each => `${each.className}: ${each.innerText.slice(0, 80)}`)
"""

IN_VIEW = """
(() => {
  const row = document.querySelector('#datasets-list .linked').getBoundingClientRect();
  const list = document.querySelector('#datasets-list').getBoundingClientRect();
  return row.top >= list.top - 1 && Math.min(row.bottom, row.top + 20) <= list.bottom + 1;
})()
"""


@pytest.mark.parametrize(
    ("nodes", "jobs", "dark"), [(3, 5, False), (300, 500, True)], ids=["small light", "large dark"]
)
async def test_every_size_of_page_shows_problems_first_and_clips_nothing(
    nodes: int, jobs: int, dark: bool, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("TDCS_SCREENSHOTS", tmp_path))
    with ApiStandIn(cluster(nodes=nodes, jobs=jobs, troubles=True)) as api:
        async with page_of(api.kubeconfig(tmp_path), tmp_path, dark=dark) as browser:
            await browser.until(f"document.body.dataset.rows > {nodes + jobs}")
            first = "#banners > :first-child"
            assert "3 objects need a person" in await browser.text(first)
            assert "refuses the keys of Secret keys: Access Denied" in await browser.text(f"{first} li")
            data = await browser.text("#datasets-list")
            assert "size not known" in data, "nothing is said to be 100% of 0 bytes"
            assert " 0 bytes" not in data
            last = "[...document.querySelectorAll('#nodes-list button')].at(-1).dataset.key"
            assert str(await browser.evaluate(last)).startswith("a-control-plane")
            state = "[...document.querySelectorAll('#jobs-list button')].find(each => /Deleting/.test(each.title))"
            assert await browser.evaluate(f"{state}.querySelector('.state').dataset.rank") == "4"

            await browser.evaluate("document.querySelector('#banners .link').click()")
            await browser.until("document.querySelector('#detail').innerText.includes('Access Denied')")
            await browser.press("Escape")
            for width, height in SIZES:
                await browser.resize(width, height, mobile=width < 500)
                await browser.press("3")
                await browser.press("Enter")
                await browser.until("!document.querySelector('#detail').hidden")
                if width > 800:
                    await browser.until(IN_VIEW)
                assert await browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
                assert await browser.evaluate(CLIPPED) == [], width
                if width == 2560:
                    wide = "document.querySelector('#nodes-list .tile').clientWidth >= 50"
                    assert await browser.evaluate(wide), "there is room for tiles that can be seen"
                shot = await browser.screenshot()
                (shots / f"{nodes}-nodes-{width}{'-dark' if dark else ''}.png").write_bytes(shot)
                await browser.press("Escape")
                await browser.until("document.querySelector('#detail').hidden")
