"""The pods that give PersistentVolumeClaims to the cache: made when a listing or a load needs one, and gone soon after.

What opens a pod's service is known to this process, the pod and the agents alone. A process that follows has the pods
of the one before replaced where it needs them; the others end by themselves, as nobody asks them.
"""

import asyncio
import datetime
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from tdcs.api import names
from tdcs.api.source_uri import is_claim
from tdcs.control.dataset.access import claim_server_objects
from tdcs.decide.problem import Problem
from tdcs.decide.served_claim import (
    Starting,
    address_of,
    claim_problem,
    is_made_for,
    not_served,
    waits_for,
)
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ConflictError, ForbiddenError, InvalidError, KubeError
from tdcs.listening import at
from tdcs.model.cache_engine import ClaimError, Credentials, Source
from tdcs.model.claim_source import ClaimFolder, claim_folder
from tdcs.model.kube_objects import Object, job_ending
from tdcs.model.kube_resources import EVENTS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.trust.certificates import KeyPair, make_own_certificate

_log: Final = logging.getLogger(__name__)

IDLE_SECONDS: Final = 180.0
"""So long a pod stays after the last use: a source is often listed, and then loaded."""
PATIENCE_SECONDS: Final = 20.0
"""So long whoever needs a pod waits for it, before it is said why it is not there."""
_STARTING_SECONDS: Final = 1.0
_SERVING_SECONDS: Final = 5.0
_VALID: Final = datetime.timedelta(days=3650)

Identity = tuple[ClaimFolder, str]
_Answer = Source | Problem | Starting


@dataclass(eq=False, slots=True, kw_only=True)
class _Server:
    """A pod, or one that is to be.

    Attributes:
        name: of its Job and Secret.
        answer: the source as the pod is reached, or why it is not.
        changed: set whenever the answer is another one.
        users: who needs it for as long as they say so; called when the answer is another one.
        leases: uses that last for a while, such as listings.
        used_at: when the last one ended.
        since: since when it is starting.
        is_made: whether its Job was made.
    """

    source: Source
    where: ClaimFolder
    name: str
    token: str
    pair: KeyPair
    used_at: float
    since: float
    answer: _Answer = field(default_factory=Starting)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    users: dict[Hashable, Callable[[], None]] = field(default_factory=dict)
    leases: int = 0
    is_made: bool = False
    task: asyncio.Task[None] | None = None


class ClaimServers:
    """Keeps the pods that are needed: `tdcs.control.cache_registry.ClaimSources`.

    Args:
        api: of the cluster.
        image: of TDCS.
        idle_seconds: so long a pod stays after its last use.
        patience_seconds: so long one is waited for.
        port: at which pods are asked.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        image: str,
        idle_seconds: float = IDLE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        port: int = names.CLAIM_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api: Final = api
        self._image: Final = image
        self._idle_seconds: Final = idle_seconds
        self._patience: Final = patience_seconds
        self._port: Final = port
        self._clock: Final = clock
        self._process: Final = secrets.token_hex(6)
        self._serial = 0
        self._servers: Final[dict[str, _Server]] = {}
        self._ends: Final = set[asyncio.Task[None]]()

    def reached(
        self, source: Source, *, by: Hashable, needed: bool, on_change: Callable[[], None]
    ) -> Source | None:
        """The source as its pod is reached now; None while that is not there, or not needed.

        Args:
            source: of a claim.
            by: who asks: it is needed from now on, until the same says that it is not.
            needed: whether it is.
            on_change: called when the answer is another one.
        """
        if not needed:
            self.release(by)
            return None
        server = self._of(source)
        for other_server in self._servers.values():
            if other_server is not server:
                self._leave(other_server, by)
        server.users[by] = on_change
        return server.answer if isinstance(server.answer, Source) else None

    def trouble(self, source: Source) -> Problem | None:
        """Why a pod that is needed is not there; None while it is, is not needed, or has just been asked for."""
        server = self._servers.get(self._key(source))
        return self._problem(server) if server is not None and server.users else None

    def release(self, by: Hashable) -> None:
        """Nothing is needed any more by this user."""
        for server in self._servers.values():
            self._leave(server, by)

    @asynccontextmanager
    async def in_use(self, source: Source) -> AsyncIterator[Source]:
        """The source as it is reached, for the time of a block; any other source than a claim as it is.

        Raises:
            ClaimError: The claim cannot be read, or its pod does not come in time.
        """
        if not is_claim(source.uri):
            yield source
            return
        server = self._of(source)
        server.leases += 1
        try:
            yield await self._awaited(server)
        finally:
            server.leases -= 1
            server.used_at = self._clock()

    async def await_pod(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize | None:
        """`CheckSize` that counts nothing, and lets no listing begin, which keeps others waiting, before the pod is
        there. Raises ClaimError."""
        async with self.in_use(source):
            return None

    async def close(self) -> None:
        """Stop following; pods go by themselves."""
        tasks = [server.task for server in self._servers.values() if server.task is not None]
        for task in (*tasks, *self._ends):
            task.cancel()
        await asyncio.gather(*tasks, *self._ends, return_exceptions=True)
        self._servers.clear()

    async def _awaited(self, server: _Server) -> Source:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while isinstance(server.answer, Starting):
                    server.changed.clear()
                    await server.changed.wait()
        if isinstance(server.answer, Source):
            return server.answer
        problem = server.answer
        if isinstance(problem, Starting):
            problem = not_served(server.where, problem.text)
        error = ClaimError(
            attempted=f"read {server.source.uri}", reason=problem.message, remedy="It is tried again"
        )
        error.problem = problem.reason
        raise error

    def _problem(self, server: _Server) -> Problem | None:
        answer = server.answer
        if isinstance(answer, Starting) and self._clock() - server.since >= self._patience:
            return not_served(server.where, answer.text)
        return answer if isinstance(answer, Problem) else None

    def _leave(self, server: _Server, by: Hashable) -> None:
        if server.users.pop(by, None) is not None:
            server.used_at = self._clock()

    def _key(self, source: Source) -> str:
        return claim_server_objects.identity_of(claim_folder(source.uri, source.options), source.options)

    def _of(self, source: Source) -> _Server:
        key, now = self._key(source), self._clock()
        server = self._servers.get(key)
        if server is None:
            self._serial += 1
            server = _Server(
                source=source,
                where=claim_folder(source.uri, source.options),
                name=f"tdcs-claim-{key}-{self._process}-{self._serial}",
                token=secrets.token_urlsafe(32),
                pair=make_own_certificate(
                    name=names.COMPONENT_CLAIM_SERVER,
                    host=f"{names.COMPONENT_CLAIM_SERVER}.{names.GROUP}",
                    until=datetime.datetime.now(datetime.UTC) + _VALID,
                ),
                used_at=now,
                since=now,
            )
            self._servers[key] = server
            server.task = asyncio.create_task(self._follow(key, server), name=f"serve {server.where}")
        return server

    async def _follow(self, key: str, server: _Server) -> None:
        """Have the pod there until it was not needed for a while."""
        is_first = True
        while server.users or server.leases or self._clock() - server.used_at < self._idle_seconds:
            try:
                if is_first:
                    await self._remove_earlier(key, server)
                    is_first = False
                answer = await self._step(server)
            except (ForbiddenError, InvalidError) as error:
                answer = not_served(server.where, str(error))
            except KubeError as error:
                _log.info("%s: %s; it is tried again", server.where, error)
                answer = server.answer
            except Exception:
                _log.exception(
                    "%s: a pass failed by a defect of the operator; it is tried again", server.where
                )
                answer = server.answer
            self._take(server, answer)
            await asyncio.sleep(_SERVING_SECONDS if isinstance(server.answer, Source) else _STARTING_SECONDS)
        # From here on another one is made for whoever asks, by another name.
        del self._servers[key]
        end = asyncio.create_task(self._remove(server.where, server.name), name=f"end of {server.name}")
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    def _take(self, server: _Server, answer: _Answer) -> None:
        if answer == server.answer:
            return
        if isinstance(answer, Starting) and not isinstance(server.answer, Starting):
            server.since = self._clock()
        server.answer = answer
        server.changed.set()
        for on_change in list(server.users.values()):
            on_change()

    async def _step(self, server: _Server) -> _Answer:
        """Look at claim, Job and pod, and make what is missing."""
        where = server.where
        claim = await self._api.get(PERSISTENT_VOLUME_CLAIMS, name=where.claim, namespace=where.namespace)
        problem = claim_problem(claim, where=where)
        if problem is not None or claim is None:
            if server.is_made:
                await self._begin_again(server)
            return problem or Starting()
        job = await self._api.get(JOBS, name=server.name, namespace=where.namespace)
        if job is None and server.is_made:
            await self._begin_again(server)
        if job is None:
            job = await self._create(server, claim)
        ending = job_ending(job)
        if ending is not None or job["metadata"].get("deletionTimestamp"):
            # It ended because nobody asked, or failed too often.
            await self._begin_again(server)
            return Starting("its pod failed" if ending == "Failed" else "its pod ended, and is made again")
        if (job.get("spec") or {}).get("suspend"):
            await self._release(server, job)
        pods = await self._pods(server, job)
        if address := address_of(pods):
            return self._served(server, address)
        return waits_for(pods, warnings=await self._warnings(server, job, pods))

    async def _create(self, server: _Server, claim: Object) -> Object:
        job = claim_server_objects.job(
            server.source,
            server.where,
            name=server.name,
            by=self._process,
            claim=claim,
            image=self._image,
        )
        live_job = await self._api.create(JOBS, obj=job)
        server.is_made = True
        return live_job

    async def _begin_again(self, server: _Server) -> None:
        """Remove what there is. The next one has another name: the Secret goes a while after its Job."""
        await self._delete(server.where, server.name)
        self._serial += 1
        server.name, server.is_made = f"{server.name.rpartition('-')[0]}-{self._serial}", False

    async def _release(self, server: _Server, job: Object) -> None:
        """Let the pod begin, once its Secret is there."""
        secret = claim_server_objects.secret(job, token=server.token, pair=server.pair)
        with suppress(ConflictError):  # of an attempt before this one
            await self._api.create(SECRETS, obj=secret)
        patch = {"spec": {"suspend": False}}
        await self._api.merge(JOBS, name=server.name, namespace=server.where.namespace, patch=patch)

    def _served(self, server: _Server, address: str) -> Source:
        keys = Credentials(access_key_id="", secret_access_key="", session_token=server.token)
        return replace(
            server.source,
            options={**server.source.options, "endpoint": f"https://{at(address, self._port)}"},
            credentials=keys,
            ca_bundle=server.pair.certificate.decode(),
        )

    async def _pods(self, server: _Server, job: Object) -> list[Object]:
        pods = await self._api.list(
            PODS,
            namespace=server.where.namespace,
            labels=f"batch.kubernetes.io/job-name={server.name}",
        )
        return [pod for pod in pods.items if is_made_for(pod, job=job)]

    async def _warnings(self, server: _Server, job: Object, pods: list[Object]) -> list[Object]:
        """Warnings about the newest pod, or the Job where there is none, the newest last."""
        newest = max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=job)
        uid = newest["metadata"].get("uid", "")
        events = await self._api.list(
            EVENTS, namespace=server.where.namespace, fields=f"involvedObject.uid={uid},type=Warning"
        )
        mine = [event for event in events.items if (event.get("involvedObject") or {}).get("uid") == uid]
        return sorted(mine, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

    async def _remove_earlier(self, key: str, server: _Server) -> None:
        """Remove what an earlier process has made for the same folder: its token died with it."""
        jobs = await self._api.list(
            JOBS, namespace=server.where.namespace, labels=f"{names.LABEL_SERVED_CLAIM}={key}"
        )
        for job in jobs.items:
            labels = job["metadata"].get("labels") or {}
            if (
                labels.get(names.LABEL_SERVED_CLAIM) == key
                and labels.get(names.LABEL_SERVED_BY) != self._process
            ):
                await self._delete(server.where, job["metadata"]["name"])

    async def _remove(self, where: ClaimFolder, name: str) -> None:
        while True:
            try:
                await self._delete(where, name)
                return
            except KubeError as error:
                _log.info("Job %s/%s is not deleted yet: %s", where.namespace, name, error)
            await asyncio.sleep(_SERVING_SECONDS)

    async def _delete(self, where: ClaimFolder, name: str) -> None:
        await self._api.delete(JOBS, name=name, namespace=where.namespace)
