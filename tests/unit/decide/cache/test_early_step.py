"""What agents do with the files of a first listing before it has ended."""

import pytest

from tdcs.decide.cache.early_step import EarlyStep, early_step
from tdcs.model.agent_state import MountState

LOAD, KEEP, DROP = EarlyStep
OF_VERSION = MountState(mount="/m", manifest="v")
UNKNOWN = MountState(mount="/m")


def of_listing(files: int) -> MountState:
    return MountState(mount="/m", manifest="e", early_files=files)


@pytest.mark.parametrize(
    ("files", "is_wanted", "is_refused", "holders", "step"),
    [
        pytest.param(0, True, False, [], KEEP, id="nothing is listed yet"),
        pytest.param(5, True, False, [], LOAD, id="the first pages"),
        pytest.param(5, True, False, [UNKNOWN], LOAD, id="an agent that waits for its manifest"),
        pytest.param(9, True, False, [of_listing(5), of_listing(9)], LOAD, id="as many files as agents know"),
        pytest.param(
            8, True, False, [of_listing(5), of_listing(9)], KEEP, id="fewer: the listing began again"
        ),
        pytest.param(5, True, True, [], LOAD, id="a source that was refused before, and is listed again"),
        pytest.param(0, True, True, [of_listing(5)], DROP, id="refused"),
        pytest.param(0, True, False, [of_listing(5)], KEEP, id="another operator has not begun to list"),
        pytest.param(5, False, False, [of_listing(5)], DROP, id="nobody wants all of it"),
        pytest.param(0, False, False, [of_listing(5)], DROP, id="nobody wants all of it, before a page"),
        pytest.param(
            0, True, True, [of_listing(5), OF_VERSION], KEEP, id="refused, and an agent has a version"
        ),
        pytest.param(9, True, False, [OF_VERSION], KEEP, id="an agent has a version that nobody names"),
        pytest.param(0, False, False, [OF_VERSION], KEEP, id="the same, and nobody wants all of it"),
    ],
)
def test_the_step_follows_from_the_listing_the_wants_and_what_agents_say(
    *, files: int, is_wanted: bool, is_refused: bool, holders: list[MountState], step: EarlyStep
) -> None:
    next_step = early_step(
        files=files, is_wanted=is_wanted, is_refused=is_refused, lacks_room=False, holders=holders
    )
    assert next_step is step


@pytest.mark.parametrize(
    ("files", "holders", "step"),
    [
        pytest.param(8, [of_listing(9)], DROP, id="what another list has brought is in the way"),
        pytest.param(9, [of_listing(9)], LOAD, id="what this list has brought has a grant"),
        pytest.param(0, [], KEEP, id="nothing is loaded"),
        pytest.param(0, [OF_VERSION], KEEP, id="a version"),
    ],
)
def test_where_room_is_lacking_what_was_loaded_by_another_list_is_dropped(
    files: int, holders: list[MountState], step: EarlyStep
) -> None:
    assert early_step(files=files, is_wanted=True, is_refused=False, lacks_room=True, holders=holders) is step
