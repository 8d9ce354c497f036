"""Links: in a shared folder, by who writes it, and on a node's disk, by a cache worker that was taken over."""

import pytest

from e2e.attacks.conftest import CACHE, INSIDE, SECRET, SECRETS, World
from e2e.support.pods import pod
from tdcs.api import names

TIER = f"/var/lib/tdcs/cache/{CACHE}"
BLOCKS = " ".join(f"{TIER}/{name}" for name in (names.BLOCK_FOLDER, names.AGENT_SPOOL, names.AGENT_WHOLE))
VIEWS = f"{TIER}/{names.VIEWS_FOLDER}"
KEY = f"{SECRETS}/key"
STATE = f"stat --format '%i %h %a %u %Y %Z' {SECRETS} {KEY}; ls -A {SECRETS}; cat {KEY}"
# Each block becomes a link to a file that is none of the cache's, and the folder of views one to a foreign folder.
PLANT = f"""
for block in $(find {BLOCKS} -type f); do mv "$block" "$block.moved"; ln -s {KEY} "$block"; echo "$block"; done
mkdir -p {TIER}
if [ -e {VIEWS} ]; then mv {VIEWS} {VIEWS}.moved; fi
ln -s {SECRETS} {VIEWS}
"""
READ = 'for f in a link deep/key; do echo "$f: $(timeout 20 cat /data/$f 2>&1)"; done'


@pytest.fixture(scope="module")
def before(world: World) -> str:
    """What the foreign folder is like while the Dataset is loaded."""
    return world.node.run(STATE)


@pytest.mark.threat("links-through-agents")
def test_links_that_lead_out_of_a_shared_folder_are_no_files_of_its_dataset(
    world: World, before: str
) -> None:
    world.tenant.until("shared", "Ready", status="True")
    assert world.tenant.dataset("shared")["status"]["totalFiles"] == 1


@pytest.mark.threat("link-as-source")
def test_a_link_to_a_folder_of_another_tenant_is_no_source(world: World, before: str) -> None:
    assert "symbolic link" in world.tenant.until("linked", reasons=["SourceRefused"])


@pytest.mark.threat("planted-links")
def test_links_that_a_worker_plants_on_its_disk_lead_the_node_plugin_nowhere(
    world: World, before: str, toolbox: str
) -> None:
    tenant, node = world.tenant, world.node
    planted = node.run(PLANT).split()
    assert planted
    reader = pod(
        "reader",
        image=toolbox,
        script=READ,
        namespace=tenant.namespace,
        nodeSelector={"kubernetes.io/hostname": node.name},
        container={"volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}],
    )
    tenant.create(reader)
    assert "remove the link" in tenant.event("reader", "a symbolic link is at")
    node.run(f"rm {VIEWS}")

    def ended() -> str | None:
        phase = (world.kubectl.get("pods", "reader", namespace=tenant.namespace) or {})["status"].get("phase")
        return None if phase in {"Succeeded", "Failed"} else f"it is {phase}"

    world.kubectl.wait(ended, what="pod reader did not end", seconds=150)
    read = world.kubectl("logs", "reader", "-n", tenant.namespace)
    print(read)
    assert f"a: {INSIDE}" in read
    assert SECRET not in read
    assert node.run(STATE) == before
