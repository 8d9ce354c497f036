"""On which nodes a mount is read, and where the copies go that follow their readers."""

from collections.abc import Iterable, Mapping, Sequence

from tdcs.api.cachecluster import Scaling
from tdcs.control.context import Stores
from tdcs.control.dataset import cache_users
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.job_index import indexed
from tdcs.decide.cache.dataset_demand import nodes_alongside
from tdcs.decide.cache.mount_standing import CacheUser
from tdcs.decide.cache.wants import Want
from tdcs.decide.place import placement_input
from tdcs.decide.place.placement_input import ReadOn

HeldBefore = Mapping[str, Mapping[str, frozenset[str]]]
"""Where each copy of each want was: nodes by the want's key and the copy's id."""


def nodes_read_on(*, stores: Stores, users: Iterable[Reader]) -> frozenset[str]:
    """The nodes on which pods mount the claims of these Datasets."""
    return frozenset[str]().union(
        *(stores.usage.nodes_of((user.key.namespace, user.key.name)) for user in users)
    )


def nodes_of_jobs(*, stores: Stores, user: Reader) -> frozenset[str]:
    """The nodes on which jobs that run have, or get, a copy of a Dataset, as these jobs' statuses say; none where its
    spec says itself on how many nodes a copy is."""
    if not comes_to_jobs(user):
        return frozenset()
    reading = indexed(stores.training_jobs).reading((user.key.namespace, user.key.name))
    return frozenset(node for job in reading.values() for node in nodes_alongside(job).get(user.key.name, ()))


def comes_to_jobs(user: Reader) -> bool:
    """Whether a Dataset's spec leaves it to the operator on how many nodes a copy is."""
    placement = user.dataset.spec.placement
    return placement.mode == "Auto" and placement.node_count is None


def copies_at_readers(
    world: World,
    scaling: Scaling,
    users: Sequence[Reader],
    *,
    before: Mapping[str, ReadOn],
    uses: Mapping[str, CacheUser],
    wants: Sequence[Want],
    held_before: HeldBefore,
) -> dict[str, ReadOn]:
    """Where the copies of each Dataset go that follow its jobs, and for a while after them: those of others, which
    may be another tenant's, stay. At the first look they stay where they were put: new nodes get theirs before
    others lose it.

    Args:
        users: the Datasets of a mount.
        before: what the last pass has found.
        uses: who uses each of them, by its own want's key.
        wants: what is wanted of the mount.
        held_before: where each copy of each want was.
    """
    now, stores = world.clock(), world.context.stores
    read_on = {}
    for user in users:
        key = user.own_want
        last_read = before.get(key)
        grown = nodes_of_jobs(stores=stores, user=user)
        if comes_to_jobs(user) and uses[key].use.jobs.waiting:
            # Where it is to be at first; from then on it stays there for them.
            is_placed = any(held_before.get(key, {}).values())
            dataset = (user.key.namespace, user.key.name)
            grown |= frozenset(
                (last_read.last if last_read is not None else ())
                if is_placed
                else world.jobs.awaited_nodes(dataset)
            )
        follows = scaling.follow_jobs or cache_users.has_elastic_job(stores, uses[key])
        if not follows and not grown and (last_read is None or not last_read.last):
            continue
        if last_read is None:
            held = {
                want.key: held_before[want.key]
                for want in wants
                if want.dataset == key and want.key in held_before
            }
            last_read = ReadOn.at_first(placement_input.nodes_of(held), now=now)
        read = nodes_read_on(stores=stores, users=[user]) if follows else frozenset()
        after = last_read.then(read | grown, now=now, delay=scaling.delay_seconds)
        if follows or after.last:
            read_on[key] = after
    return read_on


def dues(
    stores: Stores, users: Sequence[Reader], *, read_on: Mapping[str, ReadOn], delay: float
) -> list[float]:
    """When each node was not read on for so long that copies need not stay there, by the clock of the passes."""
    due_times = list[float]()
    for user in users if read_on else ():
        last_read = read_on.get(user.own_want)
        nodes = nodes_read_on(stores=stores, users=[user]) | nodes_of_jobs(stores=stores, user=user)
        times = last_read.last if last_read is not None else {}
        due_times += [when + delay for node, when in times.items() if node not in nodes]
    return due_times
