"""What programs asked of the API server, from its own audit log.

Logged are the requests of service accounts outside kube-system, those of the programs under test that run with the
rights of the chart, and the requests of programs that run with an administrator's rights in the place of one of the
chart's accounts (`stand_in`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

STAND_INS = ("operator", "scheduler")
"""Accounts of the chart in whose place programs run with an administrator's rights."""


def stand_in(account: str) -> str:
    """The user name of a program that runs with an administrator's rights in the place of an account of the chart."""
    return f"tdcs:{account}"


POLICY: Mapping[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch is told when it starts: it may outlive the test.
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "Metadata", "users": [stand_in(account) for account in STAND_INS]},
        {"level": "None"},
    ],
}
"""The audit policy of every control plane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. `resource` is such as "jobs" or "jobs/status"; `code` is its HTTP status, 0 while it goes on.

    `agent` is what the client calls itself, `message` what the server said of a failure.
    """

    user: str
    agent: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int
    message: str = ""

    @property
    def writes(self) -> bool:
        """Whether it could change something."""
        return self.verb in WRITES

    @property
    def needed(self) -> set[tuple[str, str, str]]:
        """The rights (group, resource, verb) that it needed: an apply that makes its object needs to create, too."""
        rights = {(self.group, self.resource, self.verb)}
        return rights | {(self.group, self.resource, "create")} if self.created else rights

    @property
    def refused(self) -> bool:
        """Whether it was refused for want of a right, or by a policy about what its user may do.

        A namespace that is being deleted takes nothing new from anyone.
        """
        by_policy = self.code == 422 and "ValidatingAdmissionPolicy" in self.message
        too_late = "because it is being terminated" in self.message
        return (self.code in {401, 403} or by_policy) and not too_late

    @property
    def created(self) -> bool:
        """Whether it made its object."""
        return self.verb == "patch" and self.code == 201


class AuditLog:
    """The audit log of a control plane."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def size(self) -> int:
        """Where the log ends now: pass it to `calls` to leave out what was before."""
        return self._path.stat().st_size if self._path.exists() else 0

    def calls(self, *, user: str, since: int = 0) -> Iterator[Call]:
        """The requests of a user, once each; `user` is such as "system:serviceaccount:NAMESPACE:NAME"."""
        return (call for call in self.all_calls(since=since) if call.user == user)

    def all_calls(self, *, since: int = 0) -> Iterator[Call]:
        """The requests of all users that are logged, once each."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(since)
            yield from calls_of(file)


def calls_of(lines: Iterable[bytes], *, since: str = "") -> Iterator[Call]:
    """The requests in lines of an audit log, once each; `since` leaves out those before a time as in the log."""
    for line in lines:
        if not line.endswith(b"\n"):  # the server is writing it
            continue
        event = json.loads(line)
        call = _call(event)
        if call is not None and event.get("stageTimestamp", "") >= since:
            yield call


def service_account(name: str, *, namespace: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def _call(event: Mapping[str, Any]) -> Call | None:
    target = event.get("objectRef")
    # A watch is counted when it starts, every other request when it ends.
    stage = "ResponseStarted" if event.get("verb") == "watch" else "ResponseComplete"
    if target is None or event.get("stage") != stage:
        return None
    answer = event.get("responseStatus") or {}
    resource = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
    return Call(
        user=event["user"]["username"],
        agent=event.get("userAgent", ""),
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=int(answer.get("code", 0)),
        message=answer.get("message", ""),
    )
