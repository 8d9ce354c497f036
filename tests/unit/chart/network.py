"""Judges connections by the chart's NetworkPolicies, as a network plugin does."""

from collections.abc import Mapping
from typing import Final

from tests.unit.chart.conftest import Object, Rendered

from tdcs.api import names

Pod = tuple[str, Mapping[str, str]]
"""Namespace and labels."""

PORTS: Final = (
    *(
        8080,
        8081,
        names.MANIFEST_PORT,
        8083,
        names.EXTENDER_PORT,
        8901,
        8903,
        names.WEBHOOK_PORT,
        10259,
        9807,
        9808,
        9809,
        9810,
    ),
    *(names.MASTER_RPC_PORT, names.MASTER_WEB_PORT, names.WORKER_RPC_PORT, names.WORKER_WEB_PORT),
    *(names.AGENT_CONTROL_PORT, names.AGENT_BLOCK_PORT),
)
"""On which any of the processes listens."""


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector fits."""
    if set(selector) - {"matchLabels", "matchExpressions"}:
        raise AssertionError(selector)
    fits = {
        "Exists": lambda value, values: value is not None,
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
    }
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        fits[term["operator"]](labels.get(term["key"]), term.get("values"))
        for term in selector.get("matchExpressions", ())
    )


def is_peer(peer: Object, *, pod: Pod, namespace_of_policy: str) -> bool:
    """Whether a peer of a rule means a pod; blocks of addresses are about what is outside here."""
    if "ipBlock" in peer:
        return False
    namespace, labels = pod
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}):
            return False
    elif namespace != namespace_of_policy:
        return False
    return selects(peer.get("podSelector", {}), labels)


class Network:
    """Judges connections by a release's policies, as a network plugin does."""

    def __init__(self, rendered: Rendered) -> None:
        self.policies = rendered.all("NetworkPolicy")

    def allows(self, *, source: Pod, target: Pod, port: int) -> bool:
        return self.sends(source=source, target=target, port=port) and self.takes(
            source=source, target=target, port=port
        )

    def sends(self, *, source: Pod, target: Pod, port: int) -> bool:
        """Whether the source's own policies let it through."""
        return self._side("egress", source, target, port)

    def takes(self, *, source: Pod, target: Pod, port: int) -> bool:
        """Whether the target's own policies let it through."""
        return self._side("ingress", target, source, port)

    def rules(self, direction: str, pod: Pod) -> list[Object] | None:
        """The rules that let through what a pod sends or gets; None when nothing isolates it."""
        judged = [
            policy["spec"]
            for policy in self.policies
            if policy["metadata"]["namespace"] == pod[0]
            and direction.capitalize() in policy["spec"]["policyTypes"]
            and selects(policy["spec"]["podSelector"], pod[1])
        ]
        return [rule for spec in judged for rule in spec.get(direction) or ()] if judged else None

    def _side(self, direction: str, pod: Pod, peer_pod: Pod, port: int) -> bool:
        rules = self.rules(direction, pod)
        if rules is None:
            return True
        key = "to" if direction == "egress" else "from"
        return any(
            (not rule.get("ports") or any(port_rule["port"] == port for port_rule in rule["ports"]))
            and (
                not rule.get(key)
                or any(is_peer(peer, pod=peer_pod, namespace_of_policy=pod[0]) for peer in rule[key])
            )
            for rule in rules
        )
