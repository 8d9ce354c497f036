"""As which identity a Dataset's source is read, where it names a ServiceAccount of its namespace.

The token of the account stays in this process: it is exchanged here, and what comes of it is given to agents as the
keys of a Secret are, and renewed in time. The account is looked at in each pass, so that one that is gone, or another
one of its name, has no keys any more.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from tdcs.api.conditions import IDENTITY_UNANSWERED
from tdcs.api.dataset_source import SourceSpec
from tdcs.api.source_rules import IdentityRule
from tdcs.control.background_task import BackgroundTask
from tdcs.control.context import Context, WorkKey
from tdcs.decide.problem import RETRY_LATER, RETRY_SOON, Refusal
from tdcs.decide.workload_identity import TokenExchange, identity_remedy, plan_exchange
from tdcs.kube.errors import ForbiddenError, KubeError, NotFoundError
from tdcs.listing.namespace_share import NamespaceShare
from tdcs.listing.token_exchange import Exchange, ExchangeError, IssuedKeys, exchange_token
from tdcs.model.cache_engine import Credentials
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import SERVICE_ACCOUNTS

TOKEN_SECONDS: Final = 600
"""So long a token is valid: the least that the API server gives. It is used at once."""
RENEWED_AT: Final = 0.5
"""The part of their time after which keys are renewed."""

_AT_ONCE: Final = 32
_OF_ONE_NAMESPACE: Final = 4
"""Accounts whose tokens are exchanged at a time: those of one namespace keep no other namespace waiting."""

_log = logging.getLogger(__name__)

Place = tuple[str, str, str, TokenExchange, str, str]
"""Namespace, name and uid of an account, its exchange, and the authorities and the proxy of its store's rule."""


@dataclass(slots=True, kw_only=True)
class _Identity:
    """What is known of one account.

    Attributes:
        users: Datasets that have asked, which are woken by a change.
        keys, valid_until: what the last exchange gave.
        due_at: when the next one is due.
        refusal: why the last one gave nothing.
    """

    users: set[WorkKey] = field(default_factory=set)
    keys: Credentials | None = None
    valid_until: float = 0.0
    due_at: float = 0.0
    refusal: Refusal | None = None
    work: BackgroundTask[IssuedKeys] | None = None


class Identities:
    """Keeps the keys of accounts, and renews them.

    Args:
        clock: in seconds that only grow.
        exchange: asks token services.
    """

    def __init__(
        self, *, context: Context, clock: Callable[[], float], exchange: Exchange = exchange_token
    ) -> None:
        self._context: Final = context
        self._clock: Final = clock
        self._exchange: Final = exchange
        self._places: Final = asyncio.Semaphore(_AT_ONCE)
        self._share: Final = NamespaceShare(_OF_ONE_NAMESPACE)
        self._identities: Final[dict[Place, _Identity]] = {}
        self._used: Final[dict[WorkKey, Place]] = {}

    async def read(
        self,
        key: WorkKey,
        *,
        namespace: str,
        source: SourceSpec,
        rule: IdentityRule | None,
        ca_bundle: str,
        proxy: str,
        cluster: str,
    ) -> Credentials | Refusal | None:
        """The keys of a Dataset's identity, a refusal where it has none, None while a first answer is awaited.

        Args:
            key: the Dataset.
            namespace: whose account it is.
            rule: what the rules of its CacheCluster say of identities.
        """
        name = source.service_account_name or ""
        where = f"ServiceAccount {namespace}/{name} (spec.source.serviceAccountName)"
        try:
            account = await self._context.api.get(SERVICE_ACCOUNTS, name=name, namespace=namespace)
        except ForbiddenError:
            self.drop(key)
            return self._forbidden(where, namespace=namespace, name=name)
        if account is None:
            self.drop(key)
            return Refusal(
                reason="IdentityNotFound",
                message=f"{where} does not exist: create it, or correct the name",
                retry_after=RETRY_SOON,
            )
        annotations = account["metadata"].get("annotations") or {}
        plan = plan_exchange(source, annotations, rule, account=f"{namespace}/{name}", cluster=cluster)
        if isinstance(plan, Refusal):
            self.drop(key)
            return plan
        return self._look(key, _place(account, plan, ca_bundle, proxy), where=where)

    def seconds_left(self, key: WorkKey) -> float | None:
        """Until a Dataset's keys are renewed; None where it has none, or that is under way."""
        place = self._used.get(key)
        identity = self._identities.get(place) if place is not None else None
        if identity is None or identity.work is not None:
            return None
        return max(identity.due_at - self._clock(), 0.0)

    def drop(self, key: WorkKey) -> None:
        """A Dataset uses no account any more, or is gone."""
        place = self._used.pop(key, None)
        identity = self._identities.get(place) if place is not None else None
        if place is None or identity is None:
            return
        identity.users.discard(key)
        if not identity.users and identity.work is None:
            del self._identities[place]

    async def close(self) -> None:
        await asyncio.gather(
            *(identity.work.cancel() for identity in self._identities.values() if identity.work is not None)
        )

    def _look(self, key: WorkKey, place: Place, *, where: str) -> Credentials | Refusal | None:
        if self._used.get(key, place) != place:
            self.drop(key)
        self._used[key] = place
        identity = self._identities.setdefault(place, _Identity())
        identity.users.add(key)
        if identity.work is not None and not identity.work.running:
            self._take(identity, place, where)
        if identity.work is None and self._clock() >= identity.due_at:
            identity.work = BackgroundTask(
                self._issue(place), name=f"identity of {where}", on_done=lambda: self._wake(place)
            )
        if identity.keys is not None and self._clock() < identity.valid_until:
            return identity.keys
        return identity.refusal

    async def _issue(self, place: Place) -> IssuedKeys:
        namespace, name, _, plan, ca_bundle, proxy = place
        # In this order: who waits for others of its namespace takes no place from anybody.
        async with self._share.of(namespace), self._places:
            token = await self._context.api.request_token(
                namespace=namespace, account=name, audience=plan.audience, seconds=TOKEN_SECONDS
            )
            return await self._exchange(
                plan,
                token=token,
                account=f"{namespace}/{name}",
                ca_bundle=ca_bundle,
                proxy=proxy,
                now=datetime.now(UTC),
            )

    def _take(self, identity: _Identity, place: Place, where: str) -> None:
        work, identity.work = identity.work, None
        assert work is not None
        namespace, name, uid, plan, *_ = place
        now = self._clock()
        identity.due_at = now + RETRY_LATER
        try:
            issued = work.result()
        except ForbiddenError:
            identity.keys, identity.refusal = None, self._forbidden(where, namespace=namespace, name=name)
        except NotFoundError:
            identity.keys = None
            identity.refusal = Refusal(
                reason="IdentityNotFound", message=f"{where} is gone", retry_after=RETRY_SOON
            )
        except KubeError as error:
            identity.refusal = _unanswered(f"the API server gives no token of {where}: {error}")
        except ExchangeError as error:
            if error.refused:
                identity.keys, identity.refusal = None, _refused(where, plan, str(error))
            else:
                identity.refusal = _unanswered(
                    f"{where} has no keys, as {plan.provider.value} gives none: {error}. See that the operator can "
                    "reach it (NetworkPolicies, spec.sources[].identity.endpoint of the CacheCluster); it is asked "
                    "again"
                )
        else:
            owner = f"{namespace}/{name} {uid} {plan.role} {plan.provider_name}"
            identity.keys, identity.refusal = replace(issued.keys, owner=owner), None
            identity.valid_until = now + issued.seconds
            identity.due_at = now + max(issued.seconds * RENEWED_AT, 1.0)
            _log.info("%s has keys of %s for %d s", where, plan.provider.value, issued.seconds)

    def _wake(self, place: Place) -> None:
        identity = self._identities.get(place)
        if identity is None:
            return
        if not identity.users:
            del self._identities[place]
        for key in identity.users:
            self._context.queue.add(key)

    def _forbidden(self, where: str, *, namespace: str, name: str) -> Refusal:
        settings = self._context.settings
        operator = f"{settings.namespace}:{settings.service_account}"
        remedy = identity_remedy(operator=operator, namespace=namespace, account=name)
        return Refusal(
            reason="IdentityForbidden",
            message=f"the operator may not read {where}, or create tokens of it; allow it for this one account: "
            f"{remedy}",
            retry_after=RETRY_SOON,
        )


def _place(account: Object, plan: TokenExchange, ca_bundle: str, proxy: str) -> Place:
    metadata = account["metadata"]
    return metadata["namespace"], metadata["name"], metadata["uid"], plan, ca_bundle, proxy


def _refused(where: str, plan: TokenExchange, answer: str) -> Refusal:
    role = plan.role or plan.provider_name
    return Refusal(
        reason="IdentityRefused",
        message=f"{where} is not taken for {role}: {answer}. Let {plan.provider.value} trust tokens of this account "
        f"for the audience {plan.audience}, or correct its annotations",
        retry_after=RETRY_LATER,
    )


def _unanswered(message: str) -> Refusal:
    return Refusal(reason=IDENTITY_UNANSWERED, message=message, retry_after=RETRY_LATER)
