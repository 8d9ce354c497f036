"""One active process among several, by a Lease of `coordination.k8s.io`.

The rules are client-go's leader election: a holder renews; who wants the lease takes it when it is free, or
when it was not renewed for its duration *as seen here*, so clocks of different machines are never compared; a
holder that cannot renew in time must stop working before anybody else may begin.
"""

import asyncio
import datetime
import logging
import math
import time
from collections.abc import Callable

from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ConflictError, KubeError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import LEASES

_log = logging.getLogger(__name__)

DURATION_SECONDS = 15.0
"""A lease that was not renewed for so long may be taken."""

RENEW_SECONDS = 10.0
"""A holder that could not renew for so long gives up: a margin before others may take it."""

RETRY_SECONDS = 2.0


class LeaseLostError(Exception):
    """The lease could not be kept: the work that needs it must end at once."""


class Lease:
    """A named lease that one of many holds.

    Args:
        namespace: where the Lease lives.
        name: its name; equal for all who compete.
        identity: of this process, unlike every other's, in time too: a restarted one is another.
        clock: monotonic seconds.
        retry: seconds between two tries or renewals.
        duration: seconds, see `DURATION_SECONDS`.
        renew: seconds, see `RENEW_SECONDS`.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        retry: float = RETRY_SECONDS,
        duration: float = DURATION_SECONDS,
        renew: float = RENEW_SECONDS,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._retry = retry
        self._duration = duration
        self._renew = renew
        self._renewed: float | None = None
        self._last_sign: tuple[str, str | None] = ("", None)  # the holder and its last sign of life
        self._seen_at = clock()

    async def acquire(self) -> None:
        waiting_for: str | None = None
        while not await self._try():
            holder = self._last_sign[0]
            if holder != waiting_for:
                _log.info("Lease %s/%s is held by %s: waiting", self._namespace, self._name, holder)
                waiting_for = holder
            await asyncio.sleep(self._retry)
        _log.info("Lease %s/%s is held by this process, %s", self._namespace, self._name, self._identity)

    def is_held(self) -> bool:
        """Whether this process may work now: it took or renewed the lease, and asked for that not too long ago.

        It counts from the request, not from its answer: others count from the moment at which the server wrote it.
        """
        return self._renewed is not None and self._age() < self._renew

    async def keep(self) -> None:
        """Renew until cancelled.

        Raises:
            LeaseLostError: somebody else has it, or it could not be renewed in time.
        """
        while True:
            await asyncio.sleep(self._retry)
            # A request that hangs must not outlast the time in which no other process may work.
            remaining = max(self._renew - self._age(), 0.001)
            try:
                async with asyncio.timeout(remaining):
                    held = await self._try()
            except TimeoutError:
                held = False
            holder = self._last_sign[0]
            if self.is_held() and (held or holder == self._identity):
                continue
            age, self._renewed = self._age(), None
            raise LeaseLostError(
                f"Lease {self._namespace}/{self._name} was not renewed for {age:.0f} s; "
                f"its holder was last seen to be {holder or 'no process'}"
            )

    async def release(self) -> None:
        """Give the lease up, so that the next one need not wait until it runs out."""
        self._renewed = None
        try:
            lease = await self._api.get(LEASES, name=self._name, namespace=self._namespace)
            if lease is not None and _holder(lease) == self._identity:
                await self._write(lease, holder="", transitions=_transitions(lease))
        except KubeError as error:
            _log.info("the lease was not given up and will run out: %s", error)

    async def _try(self) -> bool:
        """Take or renew the lease if that is allowed; False when it is not, or the server did not do it."""
        try:
            lease = await self._api.get(LEASES, name=self._name, namespace=self._namespace)
            asked_at = self._clock()
            if lease is None:
                self._saw(await self._api.create(LEASES, obj=self._lease()))
                self._renewed = asked_at
                return True
            holder = _holder(lease)
            self._saw(lease)
            if holder and holder != self._identity and self._clock() - self._seen_at < self._duration:
                return False
            changed = int(holder != self._identity)
            transitions = _transitions(lease) + changed
            self._saw(await self._write(lease, holder=self._identity, transitions=transitions))
            self._renewed = asked_at
            return True
        except ConflictError:
            return False  # somebody was faster
        except KubeError as error:
            _log.warning("%s; it is tried again", error)
            return False

    def _age(self) -> float:
        return math.inf if self._renewed is None else self._clock() - self._renewed

    def _saw(self, lease: Object) -> None:
        sign = (_holder(lease), lease["spec"].get("renewTime"))
        if sign != self._last_sign:
            self._last_sign, self._seen_at = sign, self._clock()

    async def _write(self, lease: Object, *, holder: str, transitions: int) -> Object:
        spec = {**self._spec(holder), "leaseTransitions": transitions}
        if _holder(lease) == holder:
            del spec["acquireTime"]
        patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        return await self._api.merge(LEASES, name=self._name, namespace=self._namespace, patch=patch)

    def _lease(self) -> Object:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._spec(self._identity), "leaseTransitions": 0},
        }

    def _spec(self, holder: str) -> Object:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(round(self._duration), 1),
            "acquireTime": now,
            "renewTime": now,
        }


def _holder(lease: Object) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


def _transitions(lease: Object) -> int:
    return int(lease["spec"].get("leaseTransitions") or 0)
