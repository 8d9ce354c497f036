"""The Datasets that are known, and whose source each of them reads.

When one of thousands changes, or a namespace does, the few that it concerns are found without a look at all of them.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from tdcs.api import names
from tdcs.model.kube_objects import Key, Object

Of = TypeVar("Of")


class DatasetIndex(dict[Key, Object]):
    """Datasets by namespace and name, with indexes by the owner of their source and by the namespaces they touch."""

    def __init__(self, datasets: Mapping[Key, Object] = MappingProxyType({})) -> None:
        super().__init__()
        self._owners: dict[Key, Key] = {}
        self._sharers: dict[Key, dict[Key, None]] = {}
        self._touching: dict[str, dict[Key, None]] = {}
        for key, dataset in datasets.items():
            self[key] = dataset

    def __setitem__(self, key: Key, dataset: Object) -> None:
        super().__setitem__(key, dataset)
        self._drop_from_index(key)
        self._owners[key] = owner = names.source_dataset_of(dataset)
        self._sharers.setdefault(owner, {})[key] = None
        for namespace in {key[0], owner[0]}:
            self._touching.setdefault(namespace, {})[key] = None

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self._drop_from_index(key)

    def pop(self, key: Key, *default: Any) -> Any:
        """As of a dict."""
        if key in self:
            self._drop_from_index(key)
        return super().pop(key, *default)

    def sharers(self, owner: Key) -> Iterable[Key]:
        """The Datasets that read the source of this one, which need not be there."""
        return tuple(self._sharers.get(owner, ()))

    def touching(self, namespace: str) -> Iterable[Key]:
        """The Datasets of a namespace, and those elsewhere that read the source of one in it."""
        return tuple(self._touching.get(namespace, ()))

    def _drop_from_index(self, key: Key) -> None:
        owner = self._owners.pop(key, None)
        if owner is None:
            return
        _drop(self._sharers, owner, key)
        for namespace in {key[0], owner[0]}:
            _drop(self._touching, namespace, key)


def indexed_datasets(datasets: Mapping[Key, Object]) -> DatasetIndex:
    """The same Datasets with their indexes; those of a view that has none are made for this once."""
    return datasets if isinstance(datasets, DatasetIndex) else DatasetIndex(datasets)


def _drop(index: dict[Of, dict[Key, None]], of: Of, key: Key) -> None:
    keys = index[of]
    del keys[key]
    if not keys:
        del index[of]
