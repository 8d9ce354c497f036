"""Says what a failure of the node's disk means for people: it is full, or somebody has planted a link on it."""

import errno


def explain_disk(error: OSError, *, at: str) -> str:
    """What failed, where, and what to do.

    Args:
        at: the folder that was worked on, for an error that names none.
    """
    what = f"{error.strerror or error} ({error.filename or at})"
    if error.errno == errno.ELOOP:  # as `tdcs.engine.confined_path` answers
        return (
            f"{what}: a symbolic link lies at {at} or above it, and TDCS makes none there and follows none; see who "
            "could write to the node's disk, such as a cache's pods, and remove the link"
        )
    return f"{what}; see whether the disk of {at} is full"
