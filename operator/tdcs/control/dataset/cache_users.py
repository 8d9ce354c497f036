"""The Datasets of a mount as the cache manager sees them: who uses them, and which further copies their jobs need."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.dataset import Dataset
from tdcs.control.context import Context, Stores, WorkKey
from tdcs.control.job_index import indexed
from tdcs.control.status_publisher import conditions_of
from tdcs.decide.cache import wants
from tdcs.decide.cache.dataset_demand import jobs_of, use_of
from tdcs.decide.cache.mount_standing import CacheUser
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.wanted_clones import Clone, clones
from tdcs.model.kube_objects import Key, Object

LAST_IN_THE_QUEUE = 1e6
"""Place of a job that the queue has not looked at yet."""


class User(Protocol):
    @property
    def key(self) -> WorkKey:
        """Its namespace and name."""

    @property
    def obj(self) -> Object:
        """The object as it was read."""

    @property
    def dataset(self) -> Dataset:
        """The same, parsed."""

    @property
    def own_want(self) -> str:
        """The key of what its own spec wants."""


def of_mount(*, context: Context, users: Sequence[User], queue: Sequence[Key]) -> dict[str, CacheUser]:
    """The Datasets of a mount, by the key of their own want. `queue`: the jobs that wait, the first first."""
    stores, now = context.stores, context.now()
    order = {key: place for place, key in enumerate(queue)}
    uses = {}
    for user in users:
        where = (user.key.namespace, user.key.name)
        jobs = jobs_of(
            namespace=where[0], dataset=where[1], jobs=indexed(stores.training_jobs).reading(where)
        )
        waiting = [stores.training_jobs[key] for key in jobs.waiting]
        uses[user.own_want] = CacheUser(
            dataset=user.dataset,
            created=str(user.obj["metadata"].get("creationTimestamp", now)),
            use=use_of(
                status=user.dataset.status,
                jobs=jobs,
                mounted=stores.usage.is_mounted(where),
                users=stores.usage.users_of(where),
                now=now,
            ),
            next_use=min((order.get(key, LAST_IN_THE_QUEUE) for key in jobs.waiting), default=None),
            preloading=_is_preloading(stores, where),
            requested=max(
                (str(job["metadata"].get("creationTimestamp", "")) for job in waiting), default=None
            ),
        )
    return uses


def has_elastic_job(stores: Stores, cache_user: CacheUser) -> bool:
    """Whether a job that was admitted reads a Dataset and may grow: then the Dataset's copies follow it."""
    return any(
        (stores.training_jobs.get(key, {}).get("spec") or {}).get("elastic")
        for key in cache_user.use.jobs.active
    )


def clones_of(
    *, context: Context, users: Sequence[User], uses: Mapping[str, CacheUser]
) -> dict[str, tuple[Clone, ...]]:
    """The further copies of each Dataset, by the key of its own want."""
    further = {}
    for user in users:
        spec, status, mine = user.dataset.spec, user.dataset.status, uses[user.own_want].use.jobs
        further[user.own_want] = clones(
            access=spec.access,
            copies=spec.placement.copies,
            existing_copies=status.copies if status is not None else (),
            readers=_readers(context.stores, user, mine.active),
            jobs=len(mine.active) + len(mine.waiting),
            now=context.now(),
            idle_seconds=context.settings.clone_idle_seconds,
        )
    return further


def clone_wants(
    users: Sequence[User], own_wants: Sequence[Want], further: Mapping[str, Sequence[Clone]]
) -> list[Want]:
    want_by_key = {want.key: want for want in own_wants}
    return [
        wants.of_clone(
            want_by_key[user.own_want], namespace=user.key.namespace, name=user.key.name, copy=clone.id
        )
        for user in users
        if user.own_want in want_by_key
        for clone in further[user.own_want]
    ]


def _is_preloading(stores: Stores, dataset: Key) -> bool:
    return any(
        (namespace, names.dataset_of(preload)) == dataset
        and not preload["metadata"].get("deletionTimestamp")
        and not any(is_true(conditions_of(preload), ended) for ended in (names.COMPLETE, names.FAILED))
        for (namespace, _), preload in stores.preloads.items()
    )


def _readers(stores: Stores, user: User, active: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How many of the jobs of a Dataset read each copy."""
    readers: dict[str, int] = {}
    for key in active:
        for use in (stores.training_jobs[key].get("status") or {}).get("copies") or ():
            if use.get("dataset") == user.key.name:
                copy = str(use.get("copy"))
                readers[copy] = readers.get(copy, 0) + 1
    return readers
