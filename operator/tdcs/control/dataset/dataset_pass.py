"""A pass over a Dataset before its mount is worked on: may it read its source, with which keys, and at which mount."""

from dataclasses import dataclass, field

from tdcs.api.dataset import Dataset
from tdcs.api.source_rules import IdentityRule
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset.access import credentials, dataset_volume, volume_objects
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.control.dataset.access.dataset_volume import VolumeAndClaim
from tdcs.control.dataset.access.identities import Identities
from tdcs.control.dataset.access.key_checks import PATIENCE, KeyChecks
from tdcs.control.dataset.access.revoked_keys import RevokedKeys
from tdcs.control.dataset.access.store_endpoints import Endpoints
from tdcs.control.dataset.access.volume_origins import UNHEARD, MountedSource, VolumeOrigins
from tdcs.control.dataset.dataset_publisher import Publisher
from tdcs.control.dataset.mount import mount_readers, used_sources
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.orphaned_mounts import Orphans
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.decide.cache import mount_identity
from tdcs.decide.may_read import HostAnswer, SourceUse, may_read, missing_cluster, pinned_address, unmountable
from tdcs.decide.problem import Problem, Refusal
from tdcs.decide.shared_source import UsedSource
from tdcs.model.cache_engine import Source
from tdcs.model.kube_objects import Object

LOCKED_RETRY = 0.5
"""Seconds after which a Dataset is looked at again while another pass works on its mount."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The pass ends, and the status says why. What is mounted stays. `at_most`: seconds until the next pass."""

    cause: Problem
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The pass ends, and takes away what the Dataset was given."""

    cause: Problem


@dataclass(frozen=True, slots=True)
class Later:
    """The pass ends without a word: an answer is awaited for so many seconds at most, and all stands meanwhile."""

    seconds: float


End = Blocked | Withdrawn | Later


@dataclass(slots=True, kw_only=True)
class DatasetPass:
    """What a pass over a Dataset has found so far.

    Attributes:
        key, obj, dataset: the Dataset, as the API server has it.
        keys_of: the namespace whose keys and rules count: its own, or that of the Dataset whose source it reads.
        within: what of that source it was granted; empty: all.
        is_guest: whether it reads the source of another Dataset, by that one's grant.
        address: of its store, where requests must go to no other; empty: they go to the store's name.
        ca_bundle: authorities of its store, by the rule that names it.
        redirects: endpoints to which its store may redirect readers, by the rules that name them.
        proxy: through which its store is asked, by the rule that names it; empty: none.
        identity: how ServiceAccounts become identities of its store, by the rule that names it.
        doubt: why it may not read its source just now, although pods read what is cached.
        live: its volume and claim.
        claimed: the mount path that its volume leads to; empty without a volume.
        mount_path: where it is mounted, or shall be.
        origin: the source with its keys; None while it may not be mounted.
        trouble: why the source cannot be used; None when it can.
        joins: whether it comes to a mount that was made for others, with keys of its own.
    """

    key: WorkKey
    obj: Object
    dataset: Dataset
    keys_of: str = ""
    within: tuple[str, ...] = ()
    is_guest: bool = False
    address: str = ""
    ca_bundle: str = ""
    redirects: tuple[str, ...] = ()
    proxy: str = ""
    identity: IdentityRule | None = None
    doubt: Refusal | None = None
    live: VolumeAndClaim = field(default_factory=lambda: VolumeAndClaim(volume=None, claim=None))
    claimed: str = ""
    origin: Source | None = None
    trouble: Problem | None = None
    mount_path: str = ""
    joins: bool = False

    @property
    def cluster(self) -> str:
        """Name of its CacheCluster."""
        return self.dataset.spec.cache_cluster_ref.name

    @property
    def is_new(self) -> bool:
        """Whether it has not been mounted yet."""
        return self.dataset.status is None or not self.dataset.status.mount_path

    @property
    def serves(self) -> bool:
        """Whether pods read its volume."""
        return mount_readers.serves(self.dataset)


class PassSteps:
    """The steps of a pass before the mount: each adds to it what it finds, or ends it.

    Args:
        key_checks: asks sources whether they take a Dataset's keys.
        revoked: since when keys are refused.
        networks: of the cluster, where only a rule lets a store be.
        identities: keys of ServiceAccounts.
    """

    def __init__(
        self,
        *,
        world: World,
        publisher: Publisher,
        orphans: Orphans,
        key_checks: KeyChecks,
        revoked: RevokedKeys,
        networks: ClusterNetworks,
        identities: Identities,
    ) -> None:
        self._world = world
        self._context: Context = world.context
        self._publisher = publisher
        self._orphans = orphans
        self._key_checks = key_checks
        self._revoked = revoked
        self._networks = networks
        self._identities = identities
        self._uids: dict[WorkKey, str] = {}
        self._volume_origins = VolumeOrigins(key_checks=key_checks)
        context = world.context
        self._endpoints = Endpoints(
            resolve=context.resolve,
            networks=networks,
            pods=context.stores.pod_addresses,
            clock=world.clock,
            on_change=context.queue.add,
        )

    async def take(self, dataset_pass: DatasetPass) -> End | None:
        """Take all steps, or those before the one that ends the pass; None: the mount can be worked on."""
        for step in (
            self._know_incarnation,
            self._find_cluster,
            self._find_source,
            self._end_if_revoked,
            self._judge_source,
            self._find_volume,
            self._read_keys,
            self._judge_volume,
            self._find_mount,
            self._await_keys_of_joiner,
            self._write_mount_path,
        ):
            end = await step(dataset_pass)
            if end is not None:
                return end
        return None

    def drop_answers(self, key: WorkKey) -> None:
        """What sources and volumes have answered for a Dataset is not asked for any more."""
        self._key_checks.drop(key)
        self._volume_origins.drop(key)

    def drop(self, key: WorkKey) -> None:
        """The Dataset goes, or is gone."""
        self.drop_answers(key)
        self._endpoints.drop(key)
        self._revoked.drop(key)
        self._identities.drop(key)
        self._uids.pop(key, None)

    async def close(self) -> None:
        await self._endpoints.close()

    async def _know_incarnation(self, dataset_pass: DatasetPass) -> None:
        """What the source said to another Dataset of this name lets none in."""
        uid = str(dataset_pass.obj["metadata"]["uid"])
        if self._uids.setdefault(dataset_pass.key, uid) != uid:
            self._key_checks.drop(dataset_pass.key)
            self._uids[dataset_pass.key] = uid

    async def _find_cluster(self, dataset_pass: DatasetPass) -> End | None:
        cluster = self._context.stores.cache_cluster(dataset_pass.cluster)
        cause = missing_cluster(cluster, name=dataset_pass.cluster, new=dataset_pass.is_new)
        return Blocked(cause) if cause is not None else None

    async def _find_source(self, dataset_pass: DatasetPass) -> End | None:
        """Its own, or that of another namespace's Dataset, which counts as its own from here on."""
        used = used_sources.find(
            dataset_pass.dataset, namespace=dataset_pass.key.namespace, stores=self._context.stores
        )
        if isinstance(used, Refusal):
            return Withdrawn(used) if used.permanent else Blocked(used)
        dataset_pass.keys_of, dataset_pass.within = used.namespace, used.within
        dataset_pass.is_guest = dataset_pass.dataset.spec.source.dataset_ref is not None
        dataset_pass.dataset = used_sources.with_source(dataset_pass.dataset, used)
        cause = unmountable(dataset_pass.dataset.spec, self._world.spec_of(dataset_pass.cluster))
        return Blocked(cause) if cause is not None else None

    async def _end_if_revoked(self, dataset_pass: DatasetPass) -> End | None:
        if self._revoked.are_revoked(dataset_pass.key):
            self._key_checks.drop(dataset_pass.key)
            if not dataset_pass.is_new:
                return Withdrawn(self._revoked.refusal(dataset_pass.dataset.spec.source.uri))
        if dataset_pass.is_new:
            self._revoked.begin(dataset_pass.key)  # also one that was withdrawn: its keys are tried again
        return None

    async def _judge_source(self, dataset_pass: DatasetPass) -> End | None:
        """By the rules, and by the addresses of the store. What serves goes on while these are in doubt. A guest
        goes on as far as its volume, which may be wider than its grant."""
        use = self._use_of(dataset_pass)
        if not use.host and use.rules is not None:
            self._endpoints.drop(dataset_pass.key)
        answer = self._endpoints.look(use.host, user=dataset_pass.key) if use.host else HostAnswer()
        dataset_pass.address = pinned_address(use, answer=answer)
        dataset_pass.ca_bundle, dataset_pass.redirects = use.verdict.ca_bundle, use.verdict.redirects
        dataset_pass.identity, dataset_pass.proxy = use.verdict.identity, use.verdict.proxy
        dataset_pass.doubt = may_read(use, answer=answer, networks_known=self._networks.services_known)
        if dataset_pass.doubt is not None and dataset_pass.doubt.permanent:
            return Withdrawn(dataset_pass.doubt)
        if dataset_pass.doubt is not None and not dataset_pass.serves and not dataset_pass.is_guest:
            return Blocked(dataset_pass.doubt)
        return None

    async def _find_volume(self, dataset_pass: DatasetPass) -> End | None:
        if self._orphans.is_due(dataset_pass.cluster):
            await self._orphans.sweep(dataset_pass.cluster)
        live = await dataset_volume.find(context=self._context, obj=dataset_pass.obj)
        if isinstance(live, Problem):
            return Blocked(live)
        dataset_pass.live, dataset_pass.claimed = live, volume_objects.mounted_path(live.volume)
        return None

    async def _read_keys(self, dataset_pass: DatasetPass) -> End | None:
        """While the source is in doubt nothing is mounted, listed or assigned to be read."""
        spec = dataset_pass.dataset.spec
        if spec.source.service_account_name is None:
            self._identities.drop(dataset_pass.key)
            keys = await credentials.read_credentials(
                context=self._context, namespace=dataset_pass.keys_of, spec=spec
            )
        else:
            keys = await self._identities.read(
                dataset_pass.key,
                namespace=dataset_pass.keys_of,
                source=spec.source,
                rule=dataset_pass.identity,
                ca_bundle=dataset_pass.ca_bundle,
                proxy=dataset_pass.proxy,
                cluster=dataset_pass.cluster,
            )
            if keys is None:
                return Later(PATIENCE)  # the answer wakes it sooner
        dataset_pass.trouble = dataset_pass.doubt or (keys if isinstance(keys, Refusal) else None)
        if not isinstance(keys, Refusal) and dataset_pass.doubt is None:
            dataset_pass.origin = mount_identity.source_of(
                spec=spec,
                credentials=keys,
                address=dataset_pass.address,
                ca_bundle=dataset_pass.ca_bundle,
                redirects=dataset_pass.redirects,
                proxy=dataset_pass.proxy,
                within=dataset_pass.within,
                namespace=dataset_pass.keys_of,
            )
        return None

    async def _judge_volume(self, dataset_pass: DatasetPass) -> End | None:
        """Neither a status nor a volume alone is an authority: whoever could write it would read another's data."""
        doubt = self._volume_doubt(dataset_pass) if dataset_pass.claimed else None
        if doubt is not None and doubt.permanent:
            return Withdrawn(doubt)
        if doubt is UNHEARD and not self._world.observer.view(dataset_pass.cluster).answered:
            return Later(LOCKED_RETRY)  # the answer wakes it sooner
        if (
            doubt is not None
            and dataset_pass.origin is not None
            and (patience := self._patience_left(dataset_pass))
        ):
            return Later(patience)  # the answer wakes it sooner
        if doubt is not None:
            dataset_pass.origin, dataset_pass.trouble = None, dataset_pass.trouble or doubt
        if dataset_pass.trouble is not None and not (dataset_pass.claimed and dataset_pass.serves):
            return Blocked(dataset_pass.trouble)
        return None

    async def _find_mount(self, dataset_pass: DatasetPass) -> None:
        """By the volume, the spec and the keys, never by the status.

        A Dataset that pods may read stays where it is. Any other joins the mount that this process has made of the same
        source with the same keys: it may have been in conflict with that one, until its keys were corrected.
        """
        dataset_pass.mount_path = dataset_pass.claimed
        if not dataset_pass.claimed and dataset_pass.origin is not None:
            mark = mount_identity.mark(dataset_pass.origin)
            paths = (
                mount.path
                for mount in self._world
                if mount.cluster == dataset_pass.cluster and mount.mounting.mark == mark
            )
            dataset_pass.mount_path = next(paths, "") or mount_identity.engine_path(
                source=dataset_pass.origin
            )
        dataset_pass.joins = self._is_joining(dataset_pass)

    async def _await_keys_of_joiner(self, dataset_pass: DatasetPass) -> End | None:
        """A mount of others gives its data to a Dataset only when the source takes the Dataset's own keys."""
        if not dataset_pass.joins or dataset_pass.origin is None:
            return None
        check_keys = self._context.caches.get(cluster=dataset_pass.cluster).check_keys
        doubt = self._key_checks.join_doubt(dataset_pass.key, dataset_pass.origin, check_keys=check_keys)
        if doubt is None:
            return None
        if patience := self._patience_left(dataset_pass):
            return Later(patience)  # the answer wakes it sooner
        return Blocked(doubt, at_most=self._key_checks.seconds_left(dataset_pass.key))

    async def _write_mount_path(self, dataset_pass: DatasetPass) -> End | None:
        """Before anything is mounted, so that a deletion always finds it."""
        status = dataset_pass.dataset.status
        if not dataset_pass.is_new and status is not None and status.mount_path == dataset_pass.mount_path:
            return None
        source = dataset_pass.dataset.spec.source
        dataset_pass.obj, written = await self._publisher.mounting(
            dataset_pass.obj, dataset_pass.mount_path, uri=source.uri
        )
        used = UsedSource(spec=source, namespace=dataset_pass.keys_of, within=dataset_pass.within)
        dataset_pass.dataset = used_sources.with_source(written, used)
        has_mounted_meanwhile = not dataset_pass.joins and self._is_joining(dataset_pass)
        return Later(LOCKED_RETRY) if has_mounted_meanwhile else None

    def _use_of(self, dataset_pass: DatasetPass) -> SourceUse:
        return SourceUse(
            namespace=dataset_pass.keys_of,
            labels=used_sources.labels_of(dataset_pass.keys_of, stores=self._context.stores),
            spec=dataset_pass.dataset.spec,
            rules=self._world.spec_of(dataset_pass.cluster),
            serves=dataset_pass.serves,
        )

    def _volume_doubt(self, dataset_pass: DatasetPass) -> Refusal | None:
        """Why the volume of a Dataset may not be its own; None when it is."""
        mount = self._world.find(cluster=dataset_pass.cluster, path=dataset_pass.claimed)
        view = self._world.observer.view(dataset_pass.cluster)
        return self._volume_origins.doubt(
            dataset_pass.key,
            uid=dataset_pass.obj["metadata"]["uid"],
            path=dataset_pass.claimed,
            spec=mount_identity.source_of(
                spec=dataset_pass.dataset.spec,
                credentials=None,
                within=dataset_pass.within,
                namespace=dataset_pass.keys_of,
            ),
            source=dataset_pass.origin,
            mounted=MountedSource(
                source=mount.mounting.source if mount is not None else None,
                uri=view.mounts.get(dataset_pass.claimed, ""),
                store=view.stores.get(dataset_pass.claimed, ""),
                is_heard=view.heard,
            ),
            is_guest=dataset_pass.is_guest,
            check_keys=self._context.caches.get(cluster=dataset_pass.cluster).check_keys,
        )

    def _is_joining(self, dataset_pass: DatasetPass) -> bool:
        """Whether a Dataset without a volume comes to a mount that was made for others, with keys of its own."""
        origin = dataset_pass.origin
        if dataset_pass.claimed or origin is None or origin.credentials is None:
            return False
        mounting = self.mount_of(dataset_pass).mounting
        mounts = self._world.observer.view(dataset_pass.cluster).mounts
        return mounting.is_of_others(dataset_pass.obj["metadata"]["uid"], mounts=mounts)

    def mount_of(self, dataset_pass: DatasetPass) -> Mount:
        return self._world.get(cluster=dataset_pass.cluster, path=dataset_pass.mount_path)

    def _patience_left(self, dataset_pass: DatasetPass) -> float:
        return self._key_checks.patience_left(dataset_pass.key)
