"""Who reads a mount, what each of them wants of it, and who is in the way of another mount. Reads the live views."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.dataset import Dataset, Kept
from tdcs.api.preload import Preload
from tdcs.api.source_uri import canonical_source_uri, is_folder
from tdcs.control.context import Stores, WorkKey
from tdcs.control.dataset.mount import used_sources
from tdcs.control.job_index import indexed
from tdcs.decide.cache import wants
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.dataset_copies import FIRST_COPY
from tdcs.decide.problem import Refusal
from tdcs.model.cache_engine import Source
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, PRELOADS
from tdcs.model.source_paths import related


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    key: WorkKey
    obj: Object
    dataset: Dataset

    @property
    def age(self) -> tuple[str, str, str]:
        """Sorts the oldest first."""
        created = str(self.obj["metadata"].get("creationTimestamp", ""))
        return created, self.key.namespace, self.key.name

    @property
    def uid(self) -> str:
        """Which Dataset of its name it is."""
        return str(self.obj["metadata"].get("uid") or "")

    @property
    def own_want(self) -> str:
        return wants.dataset_key(namespace=self.key.namespace, name=self.key.name)

    @property
    def refresh(self) -> str | None:
        """The value with which it asks for a look at the source; None when it does not."""
        value = (self.obj["metadata"].get("annotations") or {}).get(names.ANNOTATION_REFRESH)
        return None if value is None else str(value)

    @property
    def kept(self) -> Sequence[Kept]:
        return self.dataset.status.kept if self.dataset.status else ()


def serves(dataset: Dataset) -> bool:
    """Whether the Dataset was mounted when it was last reported on."""
    return dataset.status is not None and is_true(dataset.status.conditions, names.MOUNTED)


def readers(*, stores: Stores, cluster: str, path: str, me: Reader) -> list[Reader]:
    """All Datasets of a mount that are not being deleted, the oldest first; `me` as the pass has read it."""
    readers = [me]
    for key in users_of(stores=stores, cluster=cluster, path=path):
        obj = stores.datasets[key.namespace, key.name]
        if key == me.key or obj["metadata"].get("deletionTimestamp"):
            continue
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError:
            continue  # its own pass says so
        used = used_sources.find(dataset, namespace=key.namespace, stores=stores)
        if isinstance(used, Refusal):
            continue  # its own pass takes it out
        dataset = used_sources.with_source(dataset, used)
        # By the spec, too: whoever could write a status would else have its wishes for another's data.
        is_same = canonical_source_uri(dataset.spec.source.uri) == canonical_source_uri(
            me.dataset.spec.source.uri
        )
        if is_same:
            readers.append(Reader(key=key, obj=obj, dataset=dataset))
    return sorted(readers, key=lambda reader: reader.age)


def users_of(*, stores: Stores, cluster: str, path: str) -> list[WorkKey]:
    """The Datasets that name a mount in their status, deleted ones too."""
    return [
        WorkKey(DATASETS, *key) for key in stores.paths.users(stores.datasets, cluster=cluster, path=path)
    ]


def paths_by_namespace(*, stores: Stores, cluster: str) -> dict[str, set[str]]:
    """The mounts of a cache cluster that the Datasets of each namespace read."""
    paths: dict[str, set[str]] = {}
    for place in stores.paths.places(stores.datasets):
        if place[0] == cluster:
            for namespace, _ in stores.paths.users(stores.datasets, cluster=cluster, path=place[1]):
                paths.setdefault(namespace, set()).add(place[1])
    return paths


def preloads_of(*, stores: Stores, namespace: str, dataset: str) -> list[tuple[str, str, Preload]]:
    """Name, uid and content of the Preloads of a Dataset that are not being deleted, the oldest first."""
    preloads = []
    for (place, name), obj in stores.preloads.items():
        if place != namespace or obj["metadata"].get("deletionTimestamp"):
            continue
        if names.dataset_of(obj) != dataset:
            continue
        try:
            preload = Preload.model_validate(obj)
        except ValidationError:
            continue  # its own pass says so
        created, uid = str(obj["metadata"].get("creationTimestamp", "")), str(obj["metadata"].get("uid", ""))
        preloads.append((created, name, uid, preload))
    return [entry[1:] for entry in sorted(preloads, key=lambda entry: entry[:2])]


def preload_keys(*, stores: Stores, namespace: str, dataset: str) -> list[WorkKey]:
    """The Preloads of a Dataset as keys of the work queue."""
    return [
        WorkKey(PRELOADS, place, name)
        for (place, name), obj in stores.preloads.items()
        if place == namespace and names.dataset_of(obj) == dataset
    ]


def all_wants(*, stores: Stores, users: Sequence[Reader], now: str) -> list[Want]:
    """What all readers of a mount, their Preloads included, want of it. Datasets choose first."""
    mount_wants: list[Want] = []
    for reader in users:
        want = wants.of_dataset(
            namespace=reader.key.namespace, name=reader.key.name, dataset=reader.dataset, now=now
        )
        mount_wants += [want] if want is not None else []
    for reader in users:
        mount_wants += preload_wants(stores=stores, reader=reader, now=now)
    return mount_wants


def preload_wants(*, stores: Stores, reader: Reader, now: str) -> Iterator[Want]:
    """What the Preloads of a Dataset want of it, those that run and those that it keeps."""
    namespace, dataset = reader.key.namespace, reader.dataset
    for kept_preload in reader.kept:
        yield wants.of_kept(
            namespace=namespace, name=reader.key.name, dataset=dataset, kept_preload=kept_preload
        )
    kept_names = {kept_preload.name for kept_preload in reader.kept}
    for name, uid, preload in preloads_of(stores=stores, namespace=namespace, dataset=reader.key.name):
        if name not in kept_names and not wants.is_complete(preload):
            yield wants.of_preload(
                namespace=namespace,
                name=name,
                uid=uid,
                preload=preload,
                dataset=dataset,
                dataset_uid=reader.uid,
                now=now,
            )


def with_kept(me: Reader, *, stores: Stores) -> Reader:
    """The Dataset with what its Preloads have completed since the status was written."""
    preloads = preloads_of(stores=stores, namespace=me.key.namespace, dataset=me.key.name)
    contents = [(name, preload) for name, _, preload in preloads]
    generation = int(me.obj["metadata"].get("generation", 0))
    kept_preloads = wants.kept_now(
        previous=me.kept, preloads=contents, generation=generation, dataset_uid=me.uid
    )
    if me.dataset.status is None or kept_preloads == list(me.kept):
        return me
    renewed = me.dataset.status.model_copy(update={"kept": kept_preloads})
    return Reader(key=me.key, obj=me.obj, dataset=me.dataset.model_copy(update={"status": renewed}))


def held_before(*, stores: Stores, users: Sequence[Reader]) -> dict[str, dict[str, frozenset[str]]]:
    """The nodes that each copy of each want was on, by the want's key and the copy's id, as the statuses say."""
    held: dict[str, dict[str, frozenset[str]]] = {}
    for reader in users:
        namespace, status = reader.key.namespace, reader.dataset.status
        for copy in status.copies if status is not None else ():
            if copy.id == names.PRELOADED_COPY:
                continue
            key = wants.dataset_key(namespace=namespace, name=reader.key.name)
            if copy.id.startswith(names.CLONE_COPY):
                key = wants.clone_key(namespace=namespace, name=reader.key.name, copy=copy.id)
            held.setdefault(key, {})[copy.id] = frozenset(node.name for node in copy.nodes)
        for name, _, preload in preloads_of(stores=stores, namespace=namespace, dataset=reader.key.name):
            if preload.status is not None and preload.status.nodes:
                key = wants.preload_key(namespace=namespace, name=name)
                held[key] = {FIRST_COPY: frozenset(preload.status.nodes)}
    return held


def with_ids(
    mount_wants: Iterable[Want], *, stores: Stores, held: Mapping[str, Mapping[str, frozenset[str]]]
) -> list[Want]:
    """The wants with the ids of their copies, each the one that it had."""
    used: dict[str, set[str]] = {}
    for (namespace, _), job in indexed(stores.training_jobs).live.items():
        for use in (job.get("status") or {}).get("copies") or ():
            key = wants.dataset_key(namespace=namespace, name=str(use.get("dataset")))
            used.setdefault(key, set()).add(str(use.get("copy")))
    return [
        replace(
            want,
            ids=wants.copy_ids(
                ids=tuple(held.get(want.key, ())), count=want.copies, in_use=used.get(want.key, ())
            ),
        )
        for want in mount_wants
    ]


def wrong_preloads(*, stores: Stores, reader: Reader) -> list[tuple[str, Preload]]:
    """The Preloads of a Dataset of which a comparison found copies that differ from the source twice."""
    return [
        (name, preload)
        for name, _, preload in preloads_of(
            stores=stores, namespace=reader.key.namespace, dataset=reader.key.name
        )
        if wants.has_wrong_copies(preload)
    ]


def conflict(
    *, stores: Stores, cluster: str, path: str, source: Source, mounts: Mapping[str, str], me: WorkKey
) -> str | None:
    """Why a folder cannot be mounted next to what is mounted for `me`: which Dataset is in the way, and what to change.

    Returns:
        None when nothing mounted has to do with the source.
    """
    if not is_folder(source.uri):
        return None
    for other_path, other_uri in mounts.items():
        if other_path == path or not related(source.uri, other_uri):
            continue
        holder = _holder(stores=stores, cluster=cluster, path=other_path)
        # Nothing is said of other namespaces: neither their Datasets, nor which folder they read.
        holder_uri = other_uri if holder and holder[0] == me.namespace else ""
        title = f"Dataset {'/'.join(holder)}" if holder and holder_uri else "another user"
        inner = len(source.uri) > len(other_uri)
        return _nested(source.uri, inner=inner, holder_uri=holder_uri, title=title, cluster=cluster)
    return None


def _nested(uri: str, *, inner: bool, holder_uri: str, title: str, cluster: str) -> str:
    """Why a folder cannot be mounted inside or around another one; `holder_uri`: the other, when it may be named."""
    folder = holder_uri or f"a folder {'around' if inner else 'in'} it"
    remedy = "put this Dataset into another CacheCluster (spec.cacheClusterRef)"
    if holder_uri:
        reading = "subfolders are folders of its volume" if inner else "or widen its spec.source.uri"
        remedy = f"read it through that Dataset ({reading}), {remedy}, or delete that one"
    return (
        f"{uri} is {'inside' if inner else 'around'} {folder}, which {title} has mounted in CacheCluster {cluster}, "
        f"and a cache holds a folder only once: {remedy}"
    )


def _holder(*, stores: Stores, cluster: str, path: str) -> tuple[str, str] | None:
    for (namespace, name), obj in stores.datasets.items():
        if (obj.get("status") or {}).get("mountPath") == path and names.cache_cluster_of(obj) == cluster:
            return namespace, name
    return None


def has_keys(reader: Reader) -> bool:
    """Whether the mount had this Dataset's keys when it was last reported on."""
    status = reader.dataset.status
    return status is not None and any(
        condition.type == names.SOURCE_REACHABLE
        and condition.status == "True"
        and condition.reason == "Reachable"
        for condition in status.conditions
    )


def holding_nodes(*, users: Sequence[Reader]) -> frozenset[str]:
    """The nodes that held some of a mount, as the statuses say."""
    return frozenset(
        node.name
        for user in users
        for copy in (user.dataset.status.copies if user.dataset.status is not None else ())
        for node in copy.nodes
        if node.bytes
    )
