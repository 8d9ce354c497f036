"""The source that a Dataset reads, which may be that of another namespace's Dataset. Reads the live views."""

from pydantic import ValidationError

from tdcs.api.dataset import Dataset
from tdcs.control.context import Stores
from tdcs.control.dataset_index import indexed_datasets
from tdcs.decide.problem import Refusal
from tdcs.decide.shared_source import UsedSource, used_source
from tdcs.model.kube_objects import Key, Object, object_key


def find(dataset: Dataset, *, namespace: str, stores: Stores) -> UsedSource | Refusal:
    """The source of a Dataset of a namespace, or why it may not have it."""
    reference, owner = dataset.spec.source.dataset_ref, None
    if reference is not None:
        owner = _live(stores.datasets.get((reference.namespace, reference.name)))
    return used_source(dataset, namespace=namespace, labels=labels_of(namespace, stores=stores), owner=owner)


def with_source(dataset: Dataset, used: UsedSource) -> Dataset:
    """The Dataset as if the source that it reads stood in its own spec."""
    spec = dataset.spec.model_copy(update={"source": used.spec})
    return dataset.model_copy(update={"spec": spec})


def readers_elsewhere(obj: Object, *, stores: Stores) -> int:
    """How many other namespaces have pods that read the source of a Dataset by its consent."""
    if not obj["spec"].get("sharedWith"):
        return 0
    me = object_key(obj)
    sharers = indexed_datasets(stores.datasets).sharers(me)
    readers = [key for key in sharers if key[0] != me[0] and stores.usage.is_mounted(key)]
    return len({key[0] for key in readers if _has_consent(key, stores=stores)})


def _has_consent(key: Key, *, stores: Stores) -> bool:
    dataset = _live(stores.datasets[key])
    return dataset is not None and isinstance(find(dataset, namespace=key[0], stores=stores), UsedSource)


def labels_of(namespace: str, *, stores: Stores) -> dict[str, str] | None:
    """Labels of a namespace; None while they are not known."""
    obj = stores.namespaces.get(("", namespace))
    return None if obj is None else (obj.get("metadata") or {}).get("labels") or {}


def _live(owner: Object | None) -> Dataset | None:
    if owner is None or owner["metadata"].get("deletionTimestamp"):
        return None
    try:
        return Dataset.model_validate(owner)
    except ValidationError:
        return None  # its own pass says so
