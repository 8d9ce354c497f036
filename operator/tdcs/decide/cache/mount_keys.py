"""Which Dataset's keys a mount uses for its source, if several Datasets share it."""

from enum import Enum


class KeysAnswer(Enum):
    """A source's answer to the present keys of a Dataset."""

    TAKEN = "it takes them"
    REFUSED = "it refuses them"
    SILENT = "it was asked, and said neither"
    AWAITED = "it has not been asked yet, or has not answered"


def may_mount(answer: KeysAnswer, *, shared: bool) -> bool:
    """Whether a source that is not mounted is mounted with the keys of one of its Datasets.

    Mounting sends a request to the source. If other Datasets wait for the same mount, unverified keys are not used.
    """
    return not shared or answer in {KeysAnswer.TAKEN, KeysAnswer.SILENT}


def gets_keys(
    answer: KeysAnswer,
    *,
    alone: bool,
    keys_known: bool,
    changed: bool,
    held: bool,
    held_by_others: bool,
    founded: bool,
) -> bool:
    """Whether an existing mount gets the keys of one of its Datasets, which differ from its present keys.

    The cache does not verify new keys of a mount, and all its readers use them from then on, so the source must have
    accepted them before. Without an answer, keys are used only if the mount belongs to a single namespace.

    Args:
        alone: whether all Datasets of the mount are in this one's namespace.
        keys_known: whether this process knows the mount's present keys; false after a restart.
        changed: whether the Dataset had the mount's keys, or others, before.
        held: whether a Dataset still has the mount's keys, and the source has not refused them.
        held_by_others: whether a Dataset of another namespace has them: no namespace reads with another's keys while
            its own are valid.
        founded: whether the mount was created with these keys.
    """
    if answer in {KeysAnswer.REFUSED, KeysAnswer.AWAITED}:
        return False
    if answer is KeysAnswer.SILENT and not alone and (keys_known or not founded):
        return False
    return not keys_known or not held or (changed and not held_by_others)
