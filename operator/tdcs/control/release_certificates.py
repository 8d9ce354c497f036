"""The certificates of a release: Secrets in the operator's namespace, made and renewed here, or given by the user.

What is renewed when is decided by `tdcs.trust.renewal`. The operator's own certificate is in this process alone, unless
the user gives it.
"""

import asyncio
import datetime
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import Finding, finding
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import belongs, owner_reference
from tdcs.kube.errors import KubeError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import SECRETS
from tdcs.trust.certificates import Subject, end_of
from tdcs.trust.contexts import Contexts
from tdcs.trust.given import end_or_none, given_problem, hosts_problem
from tdcs.trust.identity import Identity, NoIdentityError
from tdcs.trust.renewal import (
    Authority,
    all_name,
    clock_problem,
    renewal_of,
    renewed_authority,
    renewed_identity,
)
from tdcs.trust.roles import Role
from tdcs.trust.secrets import authority_data, authority_of, identity_data, identity_of
from tdcs.trust.settings import TrustSettings

_log: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""How often the Secrets are looked at: one that was deleted or changed by hand is put right after so long."""

ALWAYS_GIVEN: Final = frozenset({Role.OPERATOR, Role.READER})
"""Roles of the Secrets that the user gives even where there is no cache cluster."""

_OF_RELEASE: Final = (Role.READER, Role.MONITOR)
"""Roles of the Secrets that belong to the release, and to no cache cluster."""

_OWN_NAME: Final = "the operator's own"


@dataclass(kw_only=True)
class _State:
    authority: Authority | None = None
    identities: dict[str, Identity] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    listed: dict[str, Object] = field(default_factory=dict)
    """The Secrets as the last look found them."""
    secrets: dict[str, frozenset[str]] = field(default_factory=dict)
    """By the uids of cache clusters: the Secrets that their processes have now."""
    due: dict[str, tuple[Subject, str, datetime.datetime]] = field(default_factory=dict)
    """Secrets that need nothing: for what subject, what was found, and until when."""
    problems: dict[str, str] = field(default_factory=dict)
    clock_doubted: bool = False
    """The authority has ended by the clock of the last look: nothing is made until the next one says the same."""


class Certificates:
    """Keeps the Secrets, and says what is wrong with them."""

    def __init__(
        self,
        *,
        api: KubeApi,
        namespace: str,
        settings: TrustSettings,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings: Final = settings
        self.contexts: Final = Contexts(self.identify)
        self._api: Final = api
        self._namespace: Final = namespace
        self._now: Final = now
        self._clock: Final = clock
        self._state: Final = _State()
        self._identity: Identity | None = None
        self._given_roles: set[Role] = set(ALWAYS_GIVEN)
        self._looked_at = float("-inf")
        self._lock: Final = asyncio.Lock()

    @property
    def _by_cert_manager(self) -> bool:
        return self.settings.provider == "certManager"

    def identify(self) -> Identity:
        """The operator's own identity; raises NoIdentityError until it is known."""
        if self._identity is None:
            raise NoIdentityError(f"the operator has no certificate yet: {self._reason()}")
        return self._identity

    async def keep(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(LOOK_SECONDS / 4)

    async def refresh(self) -> None:
        """Look at the Secrets, when the last look was a while ago, and put right those of the release itself."""
        async with self._lock:
            if self._clock() - self._looked_at < LOOK_SECONDS:
                return
            try:
                if self.settings.given:
                    await self._read_given()
                else:
                    await self._renew_own()
            except KubeError as error:
                self._problem(self.settings.prefix, f"Secrets cannot be read or written: {error}")
                _log.warning("certificates are not renewed: %s", error)
            else:
                self._state.problems.pop(self.settings.prefix, None)
                self._looked_at = self._clock()

    async def provide(self, *, owner: Object, subjects: Mapping[str, Subject]) -> Finding:
        """Have a Secret with a valid certificate for each of these, by the Secrets' names; what can be said of them.

        Other Secrets of this owner are deleted: those of nodes that have left.
        """
        roles = {subject.role for subject in subjects.values()}
        if self.settings.given and not roles <= self._given_roles:
            self._given_roles |= roles
            self._looked_at = float("-inf")
        self._state.secrets[str(owner["metadata"]["uid"])] = frozenset(subjects)
        await self.refresh()
        if not self.settings.given and self._state.authority is not None:
            for name, subject in subjects.items():
                await self._provide(name, subject, owner)
            await self._remove_others(owner)
        unnamed = self._unnamed(subjects, str(owner["metadata"]["name"])) if self.settings.given else {}
        return self._finding({*subjects, self.settings.secret(role=Role.READER), _OWN_NAME}, unnamed)

    def ends(self) -> list[tuple[str, str, datetime.datetime]]:
        """Every certificate: its Secret, its role (that of the authority is `authority`), and when it ends."""
        certificates = [
            (name, str(self._state.roles[name]), end)
            for name, identity in self._state.identities.items()
            if name in self._state.roles and (end := end_or_none(identity.certificate)) is not None
        ]
        own_identity = None if self.settings.given else self._identity
        if own_identity is not None and (end := end_or_none(own_identity.certificate)) is not None:
            certificates.append(("", str(Role.OPERATOR), end))
        authority = self._state.authority
        if authority is not None:
            certificates.append((self.settings.authority, "authority", end_of(authority.signing.certificate)))
        return certificates

    async def _renew_own(self) -> None:
        state, now = self._state, self._now()
        if problem := clock_problem(now):
            self._problem(_OWN_NAME, problem)
            return
        labels = names.LABEL_CERTIFICATE
        listed = (await self._api.list(SECRETS, namespace=self._namespace, labels=labels)).items
        secrets = {str(secret["metadata"]["name"]): secret for secret in listed if _role(secret) is not None}
        secrets.pop(self.settings.authority, None)
        # By its name: one that is not listed by its label would be taken for missing, and all be made again.
        stored = await self._api.get(SECRETS, name=self.settings.authority, namespace=self._namespace)
        state.identities = {
            name: identity
            for name, secret in secrets.items()
            if (identity := identity_of(secret.get("data"))) is not None
        }
        state.roles = {name: role for name, secret in secrets.items() if (role := _role(secret)) is not None}
        state.listed = {name: {"metadata": secret["metadata"]} for name, secret in secrets.items()}
        if stored is not None and not _is_ours(stored):
            self._problem(
                _OWN_NAME,
                f"Secret {self.settings.authority} exists and is not TDCS's, so no certificate is made: delete or "
                "rename it",
            )
            return
        stored_authority = authority_of(stored.get("data")) if stored is not None else None
        if stored_authority is None and stored is not None:
            _log.error("Secret %s has no usable authority: a new one is made", self.settings.authority)
        ended = stored_authority is not None and end_of(stored_authority.signing.certificate) <= now
        if ended and not state.clock_doubted:
            state.clock_doubted = True
            self._problem(
                _OWN_NAME,
                f"the authority in Secret {self.settings.authority} has ended by the operator's clock, which says "
                f"{now:%Y-%m-%d}: it is replaced if that clock says so again in {LOOK_SECONDS:.0f} s",
            )
            return
        state.clock_doubted = False
        in_use = [identity for name, identity in state.identities.items() if self._is_in_use(name)]
        spread = stored_authority is not None and all_name(in_use, authority=stored_authority)
        authority = renewed_authority(stored_authority, now=now, spread=spread)
        if authority != stored_authority:
            await self._write(
                self.settings.authority, authority_data(authority), role="authority", owner=None
            )
            _log.info("the authority of certificates was renewed, see Secret %s", self.settings.authority)
        state.authority = authority
        self._identity = renewed_identity(
            self._identity, subject=Subject(role=Role.OPERATOR), authority=authority, now=now
        )
        self._state.problems.pop(_OWN_NAME, None)
        for role in _OF_RELEASE:
            await self._provide(self.settings.secret(role=role), Subject(role=role), None)

    def _is_in_use(self, name: str) -> bool:
        """Whether processes may have this Secret. One of a cache cluster that this operator has not looked at yet
        counts; one of a node that has left does not, for it is renewed no more and would never name a new authority."""
        state = self._state
        references = state.listed[name]["metadata"].get("ownerReferences") or ()
        return name in {self.settings.secret(role=role) for role in _OF_RELEASE} or any(
            name in state.secrets.get(str(reference.get("uid")), {name}) for reference in references
        )

    async def _remove_others(self, owner: Object) -> None:
        """Delete the Secrets of this owner that no process of it has any more, with their keys."""
        state = self._state
        for name, secret in list(state.listed.items()):
            if not (_is_ours(secret) and belongs(secret, owner)) or self._is_in_use(name):
                continue
            del state.listed[name]  # once a look
            try:
                uid = secret["metadata"]["uid"]
                await self._api.delete(SECRETS, name=name, namespace=self._namespace, uid=uid)
            except KubeError as error:
                _log.warning("Secret %s, which nothing uses any more, cannot be deleted: %s", name, error)
                continue
            for by_name in (state.identities, state.roles, state.due, state.problems):
                by_name.pop(name, None)
            _log.info("Secret %s was deleted: nothing uses it any more", name)

    async def _provide(self, name: str, subject: Subject, owner: Object | None) -> None:
        state, now = self._state, self._now()
        authority = state.authority
        if authority is None or state.clock_doubted or clock_problem(now):
            return
        previous = state.identities.get(name)
        mark = (previous.fingerprint if previous is not None else "") + str(hash(authority.bundle))
        due = state.due.get(name)
        if due is not None and due[:2] == (subject, mark) and now < due[2]:
            return
        identity = renewed_identity(previous, subject=subject, authority=authority, now=now)
        if identity != previous:
            try:
                if previous is None and await self._is_foreign(name):
                    self._problem(name, f"Secret {name} exists and is not TDCS's: delete or rename it")
                    return
                await self._write(name, identity_data(identity), role=subject.role, owner=owner)
            except KubeError as error:
                self._problem(name, f"Secret {name} cannot be written: {error}")
                return
            state.identities[name], state.roles[name] = identity, subject.role
            _log.info(
                "Secret %s has a certificate of the role %s that ends %s", name, subject.role, _day(identity)
            )
        state.problems.pop(name, None)
        mark = identity.fingerprint + str(hash(authority.bundle))
        state.due[name] = (subject, mark, renewal_of(end_of(identity.certificate)))

    async def _is_foreign(self, name: str) -> bool:
        live = await self._api.get(SECRETS, name=name, namespace=self._namespace)
        return live is not None and not _is_ours(live)

    async def _write(self, name: str, data: dict[str, str], *, role: str, owner: Object | None) -> None:
        metadata: Object = {
            "name": name,
            "namespace": self._namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_CERTIFICATE: str(role)},
        }
        if owner is not None:
            metadata["ownerReferences"] = [owner_reference(owner)]
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
        await self._api.apply(SECRETS, obj=secret)

    async def _read_given(self) -> None:
        state, now = self._state, self._now()
        for role in [role for role in Role if role in self._given_roles]:
            name = self.settings.secret(role=role)
            secret = await self._api.get(SECRETS, name=name, namespace=self._namespace)
            identity = identity_of((secret or {}).get("data"))
            problem = given_problem(identity, role=role, now=now)
            if problem:
                self._problem(name, self._of_given(name, problem))
            else:
                state.problems.pop(name, None)
            if identity is None:
                state.identities.pop(name, None)
                continue
            state.identities[name], state.roles[name] = identity, role
            if role is Role.OPERATOR and not problem:
                self._identity = identity

    def _unnamed(self, subjects: Mapping[str, Subject], cluster: str) -> dict[str, str]:
        """Given Secrets that lack a name at which processes of this cache cluster are reached, and which."""
        unnamed: dict[str, str] = {}
        for subject in (Subject(role=Role.OPERATOR), *subjects.values()):
            name = self.settings.secret(role=subject.role)
            identity = self._state.identities.get(name)
            problem = (
                ""
                if identity is None
                else hosts_problem(
                    identity, subject=subject, cluster=cluster, by_cert_manager=self._by_cert_manager
                )
            )
            if problem:
                unnamed.setdefault(name, self._of_given(name, problem))
        return unnamed

    def _of_given(self, name: str, problem: str) -> str:
        hint = f"; cert-manager makes it: kubectl describe certificate -n {self._namespace} {name}"
        return f"Secret {name} {problem}{hint if self._by_cert_manager else ''}"

    def _finding(self, secret_names: set[str], unnamed: Mapping[str, str]) -> Finding:
        problems = {
            name: text
            for name, text in self._state.problems.items()
            if name in secret_names or name == self.settings.prefix or self.settings.given
        }
        problems = {**problems, **{name: text for name, text in unnamed.items() if name not in problems}}
        if problems:
            named = "; ".join(list(problems.values())[:3])
            return finding(names.TRUSTED, False, "CertificatesNotReady", named)
        if self._identity is None:
            return finding(names.TRUSTED, None, "CertificatesPending", "no certificate was made yet")
        is_given = self.settings.given
        ends = {name: end for name, _, end in self.ends() if is_given or name in secret_names or not name}
        first = min(ends.values())
        text = f"the first of {len(ends)} certificates ends {first:%Y-%m-%d}"
        authority = self._state.authority
        if authority is None:
            renewal = (
                "cert-manager renews them" if self._by_cert_manager else "they come from Secrets of yours"
            )
            return finding(names.TRUSTED, True, "CertificatesValid", f"{text}; {renewal}")
        last = end_of(authority.signing.certificate)
        text += f" and is renewed {renewal_of(first):%Y-%m-%d}; the authority ends {last:%Y-%m-%d}"
        return finding(names.TRUSTED, True, "CertificatesValid", text)

    def _problem(self, name: str, text: str) -> None:
        self._state.problems[name] = text

    def _reason(self) -> str:
        return next(iter(self._state.problems.values()), "Secrets were not looked at yet")


def _day(identity: Identity) -> str:
    return f"{end_of(identity.certificate):%Y-%m-%d}"


def _is_ours(secret: Object) -> bool:
    labels = secret["metadata"].get("labels") or {}
    return bool(labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY)


def _role(secret: Object) -> Role | None:
    """The role that a Secret of ours is for."""
    label = (secret["metadata"].get("labels") or {}).get(names.LABEL_CERTIFICATE)
    return Role(label) if label in set(Role) else None
