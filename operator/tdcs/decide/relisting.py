"""How soon is a source listed again that agents find changed, while each listing finds it the same?

An agent and a listing may differ for good on one file: a store with two answers, a cache of attributes in between. Each
listing of the whole source costs as much as the first one.
"""

from typing import Final

_MOST_DOUBLINGS: Final = 60


def relisting_pause(unchanged: int, *, first: float, most: float) -> float:
    """Seconds after a listing until the next one.

    Args:
        unchanged: how many listings in turn found the source as it was.
        first: seconds after the first listing; each further one doubles them.
        most: of the seconds.
    """
    return min(first * 2.0 ** min(unchanged, _MOST_DOUBLINGS), max(first, most))
