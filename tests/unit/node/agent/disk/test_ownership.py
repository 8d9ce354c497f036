"""A tier's folder is given to the user of worker and agent, and nothing that a link leads to."""

import contextlib
import os
import stat
from pathlib import Path

import pytest

from tdcs.node.agent.disk.ownership import give_tier

USER = 65532

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def owners(folder: Path) -> set[int]:
    """Whose a folder and all in it are."""
    return {folder.stat().st_uid, *(file.lstat().st_uid for file in folder.rglob("*"))}


@pytest.mark.threat("root-in-cache-pod")
def test_blocks_and_the_agents_folder_become_the_users_and_views_stay_roots(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    for folder in ("alluxioworker/.tmp_blocks/1", "agent/spool", "views/d/v"):
        (tier / folder).mkdir(parents=True)
        (tier / folder / "7").write_bytes(b"x")
    assert give_tier(tier, user=USER) == 7
    assert owners(tier / "alluxioworker") == owners(tier / "agent") == {USER}
    assert owners(tier / "views") == {0}
    # The user makes folders beside them, and cannot rename root's.
    assert (tier.stat().st_uid, tier.stat().st_gid, stat.S_IMODE(tier.stat().st_mode)) == (0, USER, 0o1775)
    (tier / "agent/checks").mkdir()  # as a newer version's preparation does, as root
    assert give_tier(tier, user=USER) == 1
    assert give_tier(tier, user=USER) == 0
    assert give_tier(tier, user=0) == 8  # and back, for a cache with shared folders


@pytest.mark.threat("reader-taken")
def test_the_folders_of_views_and_agent_are_made_before_the_group_can_make_any(
    tmp_path: Path,
) -> None:
    """The remote-read client is of the group: in a folder of its own it could exchange what root puts there."""
    tier = tmp_path / "tier"
    give_tier(tier, user=USER)
    for name, user in (("views", 0), ("agent", USER), ("alluxioworker", USER)):
        status = (tier / name).stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode) & 0o022) == (user, 0), name


def test_what_a_killed_preparation_left_is_given_away_by_the_next(tmp_path: Path) -> None:
    blocks = tmp_path / "alluxioworker"
    blocks.mkdir()
    for number in range(4):
        (blocks / str(number)).touch()
    os.chown(blocks / "0", USER, USER)
    assert give_tier(tmp_path, user=USER) == 5  # the agent's folder, too, which is made for it
    assert owners(blocks) == {USER}


@pytest.mark.parametrize("where", ["alluxioworker", "agent", "agent/spool", "alluxioworker/7", "tier"])
@pytest.mark.threat("root-in-cache-pod")
def test_what_a_planted_link_leads_to_stays_roots(tmp_path: Path, where: str) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "secret").touch()
    tier = tmp_path / "tier"
    if where == "tier":
        tier.symlink_to(outside)
    else:
        link = tier / where
        link.parent.mkdir(parents=True)
        link.symlink_to(outside)
    with contextlib.suppress(OSError):
        give_tier(tier, user=USER)
    assert owners(outside) == {0}
