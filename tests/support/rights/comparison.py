"""What is said of the rights that the chart grants, beside those that its accounts used. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.controlplane.audit import Call

ACCOUNTS = ("crd-upgrade", "operator", "scheduler", "smoke-test", "uninstall")
"""The chart's service accounts, without the release's name before them."""
AGENTS = ("tdcs/", "kopf/")
"""What TDCS's programs call themselves. kube-scheduler shares an account with the extender, and has Kubernetes' roles;
tests that act with a stolen token have clients of their own."""
KUEUE_API = "kueue.x-k8s.io"


class Right(NamedTuple):
    """A right of an account; `group` is "" for the core API, `resource` such as "jobs/status"."""

    account: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The rights that requests needed, and those whose lack, or a policy, had requests refused, with one answer."""

    used: frozenset[Right] = frozenset()
    refused: Mapping[Right, str] = field(default_factory=dict)

    def __or__(self, other: Use) -> Use:
        return Use(used=self.used | other.used, refused={**other.refused, **self.refused})


def account_of(user: str) -> str | None:
    """The chart's account of a user name; None: it is none of them.

    Names are such as "system:serviceaccount:tdcs-system:tdcs-operator" and, for stand-ins, "tdcs:operator".
    """
    name = user.rpartition(":")[2]
    return next((one for one in ACCOUNTS if name == one or name.endswith(f"-{one}")), None)


def use_of(calls: Iterable[Call]) -> Use:
    """What requests say of the rights of TDCS's own programs."""
    used, refused = set[Right](), dict[Right, str]()
    for call in calls:
        account = account_of(call.user)
        if account is not None and call.agent.startswith(AGENTS):
            needed = {Right(account, *right) for right in call.needed}
            if call.refused:
                refused = dict.fromkeys(needed, call.message) | refused
            else:
                used |= needed
    return Use(used=frozenset(used), refused=refused)


def comparable(granted: Collection[Right], *, kueue: Collection[Right], use: Use) -> frozenset[Right]:
    """The granted rights that a run can say something about: those of `kueue` only where there was Kueue."""
    there = any(right.group == KUEUE_API for right in use.used)
    return frozenset(granted) | (frozenset(kueue) if there else frozenset())


def findings(
    *,
    use: Use,
    granted: Collection[Right],
    ungranted: Mapping[Right, str],
    unused: Mapping[Right, str],
    rare: Mapping[Right, str],
    refusals: Mapping[Right, str],
    complete: bool,
) -> list[str]:
    """What is unexplained, a line each; empty when only what is used is granted.

    Args:
        use: of all tiers that ran.
        granted: by the chart.
        ungranted: rights that stand-ins use beyond the chart's, with reasons.
        unused: rights that are granted without being used, with reasons.
        rare: rights that only some runs use, with reasons.
        refusals: rights that tests want to be missing, with reasons.
        complete: whether all tiers ran that have an API server. Without it nothing is said of unused rights.
    """
    return [
        *_lines("used without being granted by the chart", use.used - set(granted) - ungranted.keys()),
        *(
            f"{line} ({use.refused[right]})"
            for right in sorted(use.refused.keys() - refusals.keys())
            for line in _lines("refused, and no test is known to want that", [right])
        ),
        *_lines("named as unused, and not granted any more", (unused.keys() | rare.keys()) - set(granted)),
        *(
            [
                *_lines("granted and never used", set(granted) - use.used - unused.keys() - rare.keys()),
                *_lines("named as unused, and used", unused.keys() & use.used),
            ]
            if complete
            else []
        ),
    ]


def _lines(what: str, rights: Iterable[Right]) -> list[str]:
    text: Callable[[Right], str] = str
    return [f"{what}: {line}" for line in sorted(map(text, rights))]
