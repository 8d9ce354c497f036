"""Whose keys a mount reads its source with, where several Datasets share it."""

from enum import Enum


class KeysAnswer(Enum):
    """What a source says of the present keys of a Dataset."""

    TAKEN = "it takes them"
    REFUSED = "it refuses them"
    SILENT = "it was asked, and said neither"
    AWAITED = "it has not been asked yet, or has not answered"


def may_mount(answer: KeysAnswer, *, shared: bool) -> bool:
    """Whether a source that is not mounted is mounted with the keys of one of its Datasets.

    Mounting asks the source. Where others wait for the same mount, keys that may be refused are not tried first.
    """
    return not shared or answer in {KeysAnswer.TAKEN, KeysAnswer.SILENT}


def gets_keys(
    answer: KeysAnswer,
    *,
    alone: bool,
    known: bool,
    changed: bool,
    held: bool,
    held_by_others: bool,
    founded: bool,
) -> bool:
    """Whether a mount that is there gets the keys of one of its Datasets, which are others than those that it has.

    The cache asks no source when a mount gets other keys, and all who share the mount read with them from then on: the
    source must have taken them before. One that says nothing decides only for a namespace that shares with no other.

    Args:
        alone: whether all Datasets of the mount are of this one's namespace.
        known: whether this process knows with which keys it is mounted; not after a restart.
        changed: whether the Dataset had the mount's keys, or others, before.
        held: whether some Dataset has the mount's keys still, and the source was not seen to refuse them.
        held_by_others: whether one of another namespace has: nobody reads with keys of another namespace while its own
            are good.
        founded: whether the mount was made with these keys.
    """
    if answer in {KeysAnswer.REFUSED, KeysAnswer.AWAITED}:
        return False
    if answer is KeysAnswer.SILENT and not alone and (known or not founded):
        return False
    return not known or not held or (changed and not held_by_others)
