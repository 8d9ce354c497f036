"""What agents do with the files of a first listing before it has ended."""

import enum
from collections.abc import Collection

from tdcs.model.agent_state import MountState


class EarlyStep(enum.Enum):
    """What agents do next."""

    LOAD = "load what the listing has so far"
    KEEP = "go on with what they were assigned"
    DROP = "drop what was loaded"


def early_step(
    *, files: int, is_wanted: bool, is_refused: bool, lacks_room: bool, holders: Collection[MountState]
) -> EarlyStep:
    """What agents do next. It follows from what they say themselves, whoever assigned it to them.

    Args:
        files: how many the listing has so far; 0: nothing that can be loaded.
        is_wanted: whether somebody wants all files of the source.
        is_refused: whether the last listing ended in that the source is not let in.
        lacks_room: whether some mount of the cache was granted less than it asks for.
        holders: what the agents say that have something of the mount.
    """
    if any(state.manifest and not state.early_files for state in holders):
        return EarlyStep.KEEP  # they have a version of it, though nobody names one now
    if not is_wanted or (is_refused and not files):
        return EarlyStep.DROP
    # Agents drop what a manifest does not name, and a listing that begins again has less at first.
    most_files = max((state.early_files for state in holders), default=0)
    if 0 < files >= most_files:
        return EarlyStep.LOAD
    # What is not loaded by the list of now is granted nothing, and would stay in the way of others.
    return EarlyStep.DROP if most_files and lacks_room else EarlyStep.KEEP
