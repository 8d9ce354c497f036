"""The rights of the chart's accounts, from the chart as helm renders it: where, and for which objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.chart import rendered, rules_of
from tests.support.kube import Object
from tests.support.rights.comparison import Grant, Place, Right, account_of, name_in_any_release

COMMON: Mapping[str, Any] = {
    "crds.upgrade": True,
    "datasetNamespaces": ["team"],
    "operator.nodeProvisioning": "ProvisioningRequest",
}
VARIANTS: Sequence[Mapping[str, Any]] = (
    {"placeByData": "Webhook"},
    {"placeByData": "Policy"},
)
"""Values that give rights which no one release has together."""
KUEUE: Mapping[str, Any] = {"kueue.enabled": True}
NAMESPACE = "tdcs-system"


def grants_of(objects: Iterable[Object]) -> set[Grant]:
    """What the roles among the objects of a release allow the accounts to which they are bound."""
    all_objects = list(objects)
    # Roles that are not the chart's (system:kube-scheduler) are Kubernetes' own.
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in all_objects if "rules" in obj}
    return {
        Grant(Right(account, *rule), _place(binding), _names(limited, account_name=subject["name"]))
        for binding in all_objects
        if binding["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in binding["subjects"]
        if (account := account_of(subject["name"])) is not None
        for limited in roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]), {}).get(
            "rules", ()
        )
        for rule in rules_of({"rules": [limited]})
    }


def _place(binding: Object) -> Place:
    if binding["kind"] == "ClusterRoleBinding":
        return Place.CLUSTER
    return Place.OWN if binding["metadata"]["namespace"] == NAMESPACE else Place.OTHER


def _names(rule: Mapping[str, Any], *, account_name: str) -> frozenset[str]:
    return frozenset(
        name_in_any_release(name, account_name=account_name) for name in rule.get("resourceNames", ())
    )


def granted_by_chart() -> tuple[set[Grant], set[Grant]]:
    """What the chart grants in all, and what it grants only where there is Kueue."""

    def of(values: Mapping[str, Any]) -> set[Grant]:
        return grants_of(rendered({**COMMON, **values}, namespace=NAMESPACE))

    plain = {grant for values in VARIANTS for grant in of(values)}
    return plain, of(KUEUE) - plain
