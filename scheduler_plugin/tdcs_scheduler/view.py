"""Which bytes of which copy are on which node, as the Datasets' status says: fed by an informer, read by every
score.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tdcs.api import names
from tdcs.decide.place.dataset_copies import CopyOnNodes, merged, preferring

_log: Final = logging.getLogger(__name__)

Key = tuple[str, str]


class DatasetView:
    """The copies of every Dataset. Updates and reads happen in one thread.

    What a pod sees of a Dataset is worked out when the Dataset changes, and not when a pod asks.
    """

    def __init__(self) -> None:
        self._copies: Final[dict[str, Mapping[str | None, CopyOnNodes]]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def __contains__(self, dataset: object) -> bool:
        """Whether there is a Dataset `namespace/name`, with data or without."""
        return dataset in self._copies

    def __iter__(self) -> Iterator[str]:
        return iter(self._copies)

    def on_change(self, key: Key, dataset: Mapping[str, Any] | None) -> None:
        """Take the new state of the Dataset with this (namespace, name); None: it is gone."""
        name = "/".join(key)
        if dataset is None:
            self._copies.pop(name, None)
            return
        try:
            self._copies[name] = _by_named_copy(copies_of(dataset=dataset))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Keep the previous copies: blocks do not move while a status is broken.
            self._copies.setdefault(name, {})
            _log.warning("the status of Dataset %s cannot be read and is ignored: %r", name, error)

    def find(self, *, dataset: str, copy: str | None) -> CopyOnNodes | None:
        """The dataset `namespace/name` for a pod that reads this copy of it, the other copies counting less.

        For None, or a copy that is gone, the best that any copy offers on each node. None for an unknown Dataset,
        or one without data.
        """
        copies = self._copies.get(dataset)
        if not copies:
            return None
        return copies.get(copy) or copies[None]


def _by_named_copy(copies: Mapping[str, CopyOnNodes]) -> dict[str | None, CopyOnNodes]:
    """What pods see of a dataset, by the copy that they name."""
    best = merged(list(copies.values()))
    if best is None:
        return {}
    return {
        None: best,
        **{
            name: preferring(copy, other_copies=[copies[key] for key in copies if key != name])
            for name, copy in copies.items()
        },
    }


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
            arriving={
                str(node["name"]): int(node["arriving"])
                for node in copy.get("nodes") or ()
                if node.get("arriving")
            },
            brought=copy["id"] == names.PRELOADED_COPY,
        )
        for copy in status.get("copies") or ()
    }
