"""Which Datasets name which mount: an index over the live view, brought up to date where it is asked.

A pass over one Dataset would else look through all of them, and a thousand passes through a million.
"""

from collections.abc import Iterable, Mapping

from tdcs.api import names
from tdcs.model.kube_objects import Key, Object

Place = tuple[str, str]
"""Cache cluster and engine path."""


class DatasetPaths:
    """The Datasets of each mount, deleted ones too, as their statuses name it."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[Object, Place | None]] = {}
        self._users: dict[Place, dict[Key, None]] = {}
        self._last: list[Object] = []

    def users(self, datasets: Mapping[Key, Object], *, cluster: str, path: str) -> tuple[Key, ...]:
        self._refresh(datasets)
        return tuple(self._users.get((cluster, path), ()))

    def places(self, datasets: Mapping[Key, Object]) -> Iterable[Place]:
        """The mounts that some Dataset names; they can be asked for membership."""
        self._refresh(datasets)
        return self._users.keys()

    def _refresh(self, datasets: Mapping[Key, Object]) -> None:
        # Nothing has changed, most of the time: identity is compared first, at a fraction of what a look at each costs.
        objects = list(datasets.values())
        if objects == self._last:
            return
        self._last = objects
        seen = self._seen
        for key, obj in datasets.items():
            known = seen.get(key)
            if known is not None and known[0] is obj:
                continue
            path = (obj.get("status") or {}).get("mountPath")
            place = (names.cache_cluster_of(obj), str(path)) if path else None
            if known is None or known[1] != place:
                self._move(key, None if known is None else known[1], place)
            seen[key] = (obj, place)
        if len(seen) != len(datasets):
            for key in seen.keys() - datasets.keys():
                self._move(key, seen.pop(key)[1], None)

    def _move(self, key: Key, before: Place | None, after: Place | None) -> None:
        if before is not None:
            users = self._users[before]
            users.pop(key)
            if not users:
                del self._users[before]
        if after is not None:
            self._users.setdefault(after, {})[key] = None
