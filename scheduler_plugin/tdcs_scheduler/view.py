"""Which bytes of which copy lie on which node, as the Datasets' status says: fed by an informer, read by every
score.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from tdcs.policy.scoring import CopyOnNodes

_log: Final = logging.getLogger(__name__)

Key = tuple[str, str]


class DatasetView:
    """The copies of every Dataset. Updates and reads happen in one thread."""

    def __init__(self) -> None:
        self._copies: Final[dict[str, Mapping[str, CopyOnNodes]]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def on_change(self, key: Key, dataset: Mapping[str, Any] | None) -> None:
        """Take the new state of the Dataset with this (namespace, name); None: it is gone."""
        name = "/".join(key)
        if dataset is None:
            self._copies.pop(name, None)
            return
        try:
            self._copies[name] = copies_of(dataset=dataset)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # What was known of it is better than nothing: blocks do not move while a status is broken.
            _log.warning("the status of Dataset %s cannot be read and is ignored: %r", name, error)

    def find(self, *, dataset: str, copy: str | None) -> CopyOnNodes | None:
        """A copy of the dataset `namespace/name`; for None, the best that any of its copies offers on each node.

        None if the dataset or this copy of it is not known.
        """
        copies = self._copies.get(dataset)
        if not copies:
            return None
        if copy is not None:
            return copies.get(copy)
        best: dict[str, int] = {}
        for each in copies.values():
            for node, held in each.node_bytes.items():
                best[node] = max(held, best.get(node, 0))
        return CopyOnNodes(total_bytes=max(each.total_bytes for each in copies.values()), node_bytes=best)


def copies_of(*, dataset: Mapping[str, Any]) -> dict[str, CopyOnNodes]:
    """The copies in a Dataset's status by their ids.

    Raises AttributeError, KeyError, TypeError or ValueError for a status that is not of the form of the API.
    """
    status = dataset.get("status") or {}
    total = int(status.get("totalBytes") or 0)
    return {
        str(copy["id"]): CopyOnNodes(
            total_bytes=total,
            node_bytes={str(node["name"]): int(node.get("bytes") or 0) for node in copy.get("nodes") or ()},
        )
        for copy in status.get("copies") or ()
    }
