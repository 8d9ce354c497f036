"""The eviction policies that are installed: the shipped ones and those of other packages, by entry point."""

import logging
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from tdcs.policy.eviction import ENTRY_POINTS, Policy, lru

_log = logging.getLogger(__name__)


def installed_policies() -> Mapping[str, Policy]:
    """The policies by the names that `spec.eviction.policy` gives them.

    One that cannot be loaded is left out, with a line in the log: Datasets that name it are told that it is missing.
    """
    # The default works without the package's metadata too, as in a checkout that was installed before an entry point.
    found: dict[str, Policy] = {"LRU": lru}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = point.load()
        except Exception:
            _log.exception("the eviction policy %s (%s) cannot be loaded", point.name, point.value)
    return MappingProxyType(found)
