"""The eviction policies that are installed: the shipped ones and those of other packages, by entry point."""

import logging
import math
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from tdcs.decide.cache.eviction_order import ENTRY_POINTS, EvictionCandidate, Policy, lru

_log = logging.getLogger(__name__)


def installed_policies() -> Mapping[str, Policy]:
    """The policies by the names that `spec.eviction.policy` gives them.

    One that cannot be loaded is left out, with a line in the log: Datasets that name it say that it is missing.
    """
    # The default works without the package's metadata too, as in a checkout that was installed before an entry point.
    policies: dict[str, Policy] = {"LRU": lru}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            policies[point.name] = _Guarded(name=point.name, policy=point.load())
        except Exception:
            _log.exception("the eviction policy %s (%s) cannot be loaded", point.name, point.value)
    return MappingProxyType(policies)


class _Guarded:
    """A policy that goes by the last use where it fails or gives no finite time: one that is wrong harms no Dataset
    with another. It is logged once.
    """

    def __init__(self, *, name: str, policy: Policy) -> None:
        self._name = name
        self._policy = policy
        self._reported = False

    def __call__(self, candidate: EvictionCandidate) -> float:
        try:
            time = float(self._policy(candidate))
            if math.isfinite(time):
                return time
            raise ValueError(f"{time} is no time")
        except Exception:
            if not self._reported:
                _log.exception(
                    "the eviction policy %s failed; Datasets with it go by their last use", self._name
                )
            self._reported = True
        return lru(candidate)
