"""What a cached byte is worth: who gets the cache first.

A dataset of `d` bytes that jobs read at `f` bytes per second costs the store ``f (1 - c/d)`` when `c`
bytes of it are cached, so one more cached byte saves ``f/d`` bytes per second. The cache therefore goes
to the datasets in the order of f/d, each whole before the next (the greedy rule of SiloD, EuroSys
2023; it is optimal for a divisible cache).
"""


def saved_per_byte(*, size_bytes: float, demand: float) -> float:
    """What one cached byte of a dataset saves the store, in the unit of the demand.

    Args:
        size_bytes: the whole dataset.
        demand: what its jobs read, such as bytes per second; where that is not known, their number.
    """
    return demand / size_bytes if size_bytes > 0 else 0.0
