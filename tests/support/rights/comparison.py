"""What is said of the rights that the chart grants, next to those that its accounts used. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.support.controlplane.audit import Call

from tdcs.api.names import CLAIM_LIST

ACCOUNTS = ("crd-upgrade", "operator", "scheduler", "smoke-test", "uninstall")
"""The chart's service accounts, without the release's name before them."""
AGENTS = ("tdcs/", "kopf/")
"""What TDCS's programs call themselves. kube-scheduler shares an account with the extender, and has Kubernetes' roles;
tests that act with a stolen token have clients of their own."""
KUEUE_API = "kueue.x-k8s.io"
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<name>[^:]+)")
NAMED = frozenset({"get", "update", "patch", "delete"})
"""Verbs that a right can limit to names: what is listed or created has none."""


class Right(NamedTuple):
    """A right of an account; `group` is "" for the core API, `resource` such as "jobs/status"."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


class Place(StrEnum):
    """Where a right is granted, or used."""

    CLUSTER = "cluster-wide"
    """In all namespaces at once, or on what is in none."""
    OWN = "in the release's namespace"
    OTHER = "in other namespaces"


class Grant(NamedTuple):
    """A right where it is granted; `names` are those of the objects that it is limited to, empty without a limit."""

    right: Right
    place: Place = Place.CLUSTER
    names: frozenset[str] = frozenset()


class Target(NamedTuple):
    """A right where it was used; `name` is that of the object, "" where a request names none."""

    right: Right
    place: Place
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The rights that requests needed, and those whose lack, or a policy, had requests refused, with one answer.

    `targets` says what they were used on. It has nothing of a program in an administrator's place, which is in no
    namespace of its own, but what it asked for cluster-wide.
    """

    used: frozenset[Right] = frozenset()
    refused: Mapping[Right, str] = field(default_factory=dict)
    targets: frozenset[Target] = frozenset()

    def __or__(self, other: Use) -> Use:
        return Use(
            used=self.used | other.used,
            refused={**other.refused, **self.refused},
            targets=self.targets | other.targets,
        )


def account_of(user: str) -> str | None:
    """The chart's account of a user name; None: it is none of them.

    Names are such as "system:serviceaccount:tdcs-system:tdcs-operator" and, for stand-ins, "tdcs:operator".
    """
    name = user.rpartition(":")[2]
    return next((account for account in ACCOUNTS if name == account or name.endswith(f"-{account}")), None)


def name_in_any_release(name: str, *, account_name: str) -> str:
    """The name of an object with `RELEASE` for the release's, which is in the name of its account, too."""
    account = account_of(account_name)
    release = account_name.removesuffix(f"-{account}")
    is_of_release = name != CLAIM_LIST and name.startswith(f"{release}-")
    return f"RELEASE{name.removeprefix(release)}" if is_of_release else name


def target_of(right: Right, call: Call) -> Target | None:
    """What a request used a right on; None where that is not known."""
    account = SERVICE_ACCOUNT.fullmatch(call.user)
    if not call.namespace:
        place = Place.CLUSTER
    elif account is None:
        return None
    else:
        place = Place.OWN if call.namespace == account["namespace"] else Place.OTHER
    name = name_in_any_release(call.name, account_name=account["name"]) if account else call.name
    return Target(right, place, name)


def use_of(calls: Iterable[Call]) -> Use:
    """What requests say of the rights of TDCS's own programs."""
    used, refused, targets = set[Right](), dict[Right, str](), set[Target]()
    for call in calls:
        account = account_of(call.user)
        if account is not None and call.agent.startswith(AGENTS):
            needed = {Right(account, *right) for right in call.needed}
            if call.refused:
                refused = dict.fromkeys(needed, call.message) | refused
            else:
                used |= needed
                targets |= {target for right in needed if (target := target_of(right, call))}
    return Use(used=frozenset(used), refused=refused, targets=frozenset(targets))


def rights_in(grants: Iterable[Grant]) -> frozenset[Right]:
    """What is granted, anywhere and for any object."""
    return frozenset(grant.right for grant in grants)


def comparable(granted: Collection[Grant], *, kueue: Collection[Grant], use: Use) -> frozenset[Grant]:
    """The granted rights that a run can say something about: those of `kueue` only where there was Kueue."""
    has_kueue = any(right.group == KUEUE_API for right in use.used)
    return frozenset(granted) | (frozenset(kueue) if has_kueue else frozenset())


def findings(
    *,
    use: Use,
    grants: Collection[Grant],
    ungranted: Mapping[Right, str],
    unused: Mapping[Right, str],
    rare: Mapping[Right, str],
    wide: Mapping[Right, str],
    refusals: Mapping[Right, str],
    complete: bool,
) -> list[str]:
    """What is unexplained, a line each; empty when only what is used is granted.

    Args:
        use: of all tiers that ran.
        grants: of the chart.
        ungranted: rights that stand-ins use beyond the chart's, with reasons.
        unused: rights that are granted without being used, with reasons.
        rare: rights that only some runs use, with reasons.
        wide: rights that are granted in more places, or for more objects, than they are used, with reasons.
        refusals: rights that tests want to be missing, with reasons.
        complete: whether all tiers ran that have an API server. Without it nothing is said of unused rights.
    """
    granted = rights_in(grants)
    wider = wider_than_used(grants, targets=use.targets)
    return [
        *_lines("used without being granted by the chart", use.used - granted - ungranted.keys()),
        *_lines(
            "used cluster-wide, and granted in single namespaces",
            used_beyond(grants, targets=use.targets) - ungranted.keys(),
        ),
        *(
            f"{line} ({use.refused[right]})"
            for right in sorted(use.refused.keys() - refusals.keys())
            for line in _lines("refused, and no test is known to want that", [right])
        ),
        *_lines(
            "named as unused or wide, and not granted any more",
            (unused.keys() | rare.keys() | wide.keys()) - granted,
        ),
        *(
            [
                *_lines("granted and never used", granted - use.used - unused.keys() - rare.keys()),
                *_lines("named as unused, and used", unused.keys() & use.used),
                *(
                    line
                    for right in sorted(wider.keys() - wide.keys() - rare.keys())
                    for line in _lines(wider[right], [right])
                ),
            ]
            if complete
            else []
        ),
    ]


def used_beyond(grants: Iterable[Grant], *, targets: Iterable[Target]) -> frozenset[Right]:
    """Rights that were used cluster-wide and are granted in single namespaces only.

    The API server sees to all else: a request beyond its account's right is refused. This one may be of a program in an
    administrator's place.
    """
    everywhere = rights_in(grant for grant in grants if grant.place is Place.CLUSTER)
    cluster_wide = {target.right for target in targets if target.place is Place.CLUSTER}
    return frozenset(cluster_wide & rights_in(grants) - everywhere)


def wider_than_used(grants: Iterable[Grant], *, targets: Iterable[Target]) -> dict[Right, str]:
    """Rights that could be granted in fewer places, or for fewer objects, each with what is too wide.

    Nothing is said of a right that no account of the chart itself is known to have used.
    """
    used: dict[Right, list[Target]] = {}
    for target in targets:
        used.setdefault(target.right, []).append(target)
    reasons: dict[Right, str] = {}
    for right, place, names in grants:
        places = {target.place for target in used.get(right, ())}
        objects = {target.name for target in used.get(right, ())}
        if place is Place.CLUSTER and places == {Place.OWN}:
            reasons[right] = f"granted cluster-wide, and used {Place.OWN} only"
        elif names and objects and names - objects:
            reasons[right] = f"granted for {', '.join(sorted(names - objects))}, and never used for that"
        elif not names and right.verb in NAMED and len(objects) == 1 and "" not in objects:
            reasons[right] = f"granted for all names, and used for {min(objects)} only"
    return reasons


def _lines(what: str, rights: Iterable[Right]) -> list[str]:
    text: Callable[[Right], str] = str
    return [f"{what}: {line}" for line in sorted(map(text, rights))]
