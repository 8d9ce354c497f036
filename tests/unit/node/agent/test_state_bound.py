"""What an agent says stays small, whatever tenants call their files, and can always be said."""

import msgspec
import pytest

from tdcs.engine import agent_client
from tdcs.model.agent_state import (
    ALL_SLOTS,
    LONGEST_NAME,
    AgentState,
    CheckState,
    FailureCount,
    FileFailure,
    MountState,
    PartState,
)
from tdcs.node.agent.state_bound import NAMED_FILES, bounded, cut

FAILURES = tuple(
    FileFailure(path=f"{number:04}" + "ä" * 2000, code="BadName", reason="r" * 30_000) for number in range(50)
)


def failing(number: int) -> MountState:
    """A mount with more failing files than its agent names, all with the longest names and reasons that there are."""
    return MountState(
        mount=f"/datasets/{number:016x}",
        manifest="0" * 32,
        complete=ALL_SLOTS,
        present=ALL_SLOTS,
        failing=ALL_SLOTS,
        failing_here=ALL_SLOTS,
        failures={"BadName": FailureCount(files=1_000, bytes=1 << 50)},
        failed=FAILURES,
        check=CheckState(id="c", wrong=FAILURES, wrong_count=50),
        parts=(PartState(name="Dataset vision/imagenet", wanted_bytes=1 << 50, failed_bytes=1 << 50),),
    )


@pytest.mark.parametrize("mounts", [1, 250, 1_000])
@pytest.mark.failure_mode("files-fail-by-the-thousand")
def test_a_tenant_with_failing_files_of_long_names_makes_no_state_that_the_operator_refuses(
    mounts: int,
) -> None:
    states = {mount_state.mount: mount_state for mount_state in map(failing, range(mounts))}
    state = AgentState(node="n", instance="i", revision=1, mounts=bounded(states))
    packed = msgspec.msgpack.encode(state)
    assert len(packed) < 2_500 * mounts + (1 << 20) < agent_client._LARGEST_STATE
    assert msgspec.msgpack.decode(packed, type=AgentState) == state
    assert all(mount_state.failed_count == 1_000 for mount_state in state.mounts.values()), "counts are whole"


def test_mounts_share_the_names_that_a_state_has() -> None:
    states = bounded({mount_state.mount: mount_state for mount_state in map(failing, range(100))})
    assert {
        len(mount_state.failed) + len(mount_state.check.wrong)
        for mount_state in states.values()
        if mount_state.check
    } == {NAMED_FILES // 100}
    alone = bounded({"/m": failing(1), "/n": MountState(mount="/n")})["/m"]
    assert alone.check is not None
    assert (len(alone.failed), len(alone.check.wrong)) == (50, 50)


def test_a_name_that_is_no_text_can_be_said() -> None:
    state = MountState(mount="/m", failed=(FileFailure(path="caf\udce9", code="Denied", reason="\udcff"),))
    (failure,) = bounded({"/m": state})["/m"].failed
    assert (failure.path, failure.reason) == ("caf\\udce9", "\\udcff")
    assert msgspec.msgpack.encode(failure)
    assert len(FAILURES[0].path.encode()) <= LONGEST_NAME


def test_a_text_is_cut_between_characters() -> None:
    assert cut("ä" * 10, most=20) == "ä" * 10
    assert cut("ä" * 10, most=12) == "ä" * 4 + "…"
