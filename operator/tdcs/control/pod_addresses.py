"""The addresses of the cluster's pods: where nodes name no networks of pods, as with networks that a cloud or Cilium
manages, nothing else says that an address leads to one."""

from collections import Counter
from collections.abc import Sequence

from tdcs.decide.forbidden_addresses import plain_address
from tdcs.model.kube_objects import Key, Object


def addresses_of_pod(pod: Object) -> list[str]:
    """The addresses of a pod; none for a pod in its node's network (`hostNetwork`): the Node object has those."""
    if pod["spec"].get("hostNetwork"):
        return []
    status = pod.get("status") or {}
    return [str(one["ip"]) for one in status.get("podIPs") or () if one.get("ip")]


class PodAddresses:
    """Those of all pods that have a node and have not ended. An ended pod's address may be another host's next.

    It contains an address in its plain form (`tdcs.decide.forbidden_addresses.plain_address`), as a text.
    """

    def __init__(self) -> None:
        self._of_pods: dict[Key, tuple[str, ...]] = {}
        self._pods: Counter[str] = Counter()

    def __contains__(self, address: object) -> bool:
        return address in self._pods

    def seen(self, key: Key, addresses: Sequence[str]) -> None:
        """Take in a pod's addresses; none when it has ended, or is gone."""
        for address in self._of_pods.pop(key, ()):
            self._pods[address] -= 1
            if not self._pods[address]:
                del self._pods[address]
        if addresses:
            self._of_pods[key] = tuple(str(plain_address(address)) for address in addresses)
            self._pods.update(self._of_pods[key])
