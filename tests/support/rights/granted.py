"""The rights of the chart's accounts, from the chart as helm renders it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.chart import rendered, rules_of
from tests.support.kube import Object
from tests.support.rights.comparison import Right, account_of

COMMON: Mapping[str, Any] = {"crds.upgrade": True, "datasetNamespaces": ["team"]}
VARIANTS: Sequence[Mapping[str, Any]] = (
    {"placeByData": "Webhook"},
    {"placeByData": "Policy"},
)
"""Values that give rights which no one release has together."""
KUEUE: Mapping[str, Any] = {"kueue.enabled": True}


def rights_of(objects: Iterable[Object]) -> set[Right]:
    """What the roles among these objects allow the accounts to which they are bound."""
    found = list(objects)
    # Roles that are not the chart's (system:kube-scheduler) are Kubernetes' own.
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in found if "rules" in obj}
    return {
        Right(account, *rule)
        for binding in found
        if binding["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in binding["subjects"]
        if (account := account_of(subject["name"])) is not None
        for rule in rules_of(roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]), {}))
    }


def granted_by_chart() -> tuple[set[Right], set[Right]]:
    """What the chart grants in all, and what it grants only where there is Kueue."""
    plain = {right for values in VARIANTS for right in rights_of(rendered({**COMMON, **values}))}
    return plain, rights_of(rendered({**COMMON, **KUEUE})) - plain
