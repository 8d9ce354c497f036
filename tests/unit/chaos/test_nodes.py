"""What TDCS has on a node is found, wherever it keeps it."""

import subprocess
from pathlib import Path

from e2e.chaos.checks import KINDS, Belongings, belongings_of, left_over
from e2e.chaos.nodes import BELONGINGS, STATE

from tdcs.api import names
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.csi.views.view_folders import STAGING

TIER = "cache/default"
MOUNT = "/datasets/abc"


def belongings(state: Path) -> Belongings:
    """What the node's script finds below another folder."""
    script = BELONGINGS.replace(STATE, str(state))
    return belongings_of(
        subprocess.run(["sh", "-ec", script], check=True, capture_output=True, text=True).stdout
    )


def test_everything_that_a_dataset_can_leave_on_a_node_is_seen(tmp_path: Path) -> None:
    disk = Disk(tmp_path / TIER)
    disk.prepare()
    before = belongings(tmp_path)
    assert before == Belongings()
    left = {
        "blocks": [
            f"{TIER}/{folder}/7"
            for folder in (names.BLOCK_FOLDER, names.AGENT_SPOOL, names.AGENT_KEPT, "agent/partial")
        ],
        "refused": [f"{TIER}/{names.refused_folder(mount=MOUNT)}/7"],
        "manifests": [
            f"{TIER}/{folder}/abc" for folder in (names.AGENT_MANIFESTS, f"{names.VIEWS_FOLDER}/{STAGING}")
        ],
        "registrations": [f"reader/{names.READER_VERSIONS}/default.abc"],
        "views": [f"{TIER}/{names.VIEWS_FOLDER}/key/abc"],
    }
    for kind, paths in left.items():
        for path in paths:
            file = tmp_path / path / "manifest" if kind == "views" else tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    found = left_over({"n": before}, {"n": belongings(tmp_path)}, kinds=KINDS)
    expected = [f"n: {kind} {tmp_path / path}" for kind, paths in left.items() for path in paths]
    expected.append(f"n: views {tmp_path / TIER}/{names.VIEWS_FOLDER}/key")  # of all versions of a Dataset
    assert sorted(found) == sorted(expected)
