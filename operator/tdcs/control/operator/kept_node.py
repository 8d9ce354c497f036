"""What the operator keeps of a node: some 5 KB of the 30 KB that the API server sends, in the shape of a node.

Nodes of a pool say the same in nearly all of their labels, sizes and taints: equal texts are one object for all.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tdcs.model.kube_objects import Object

METADATA: Final = ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
SPEC: Final = ("unschedulable", "podCIDR", "podCIDRs", "taints")
CONDITIONS: Final = frozenset({"Ready"})
CONDITION: Final = ("type", "status", "message")
ADDRESSES: Final = frozenset({"InternalIP", "ExternalIP"})


def kept_node(node: Object) -> Object:
    """A node without what no decision reads: its images, volumes, annotations, managers and heartbeats."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    slim_metadata: dict[str, Any] = {field: metadata[field] for field in METADATA if metadata.get(field)}
    slim_metadata["labels"] = _shared(metadata.get("labels") or {})
    slim_status = {
        "allocatable": _shared(status.get("allocatable") or {}),
        "addresses": [
            _shared(address) for address in status.get("addresses") or () if address.get("type") in ADDRESSES
        ],
        "conditions": _conditions(status.get("conditions") or ()),
    }
    return {
        "metadata": slim_metadata,
        "spec": {field: _shared(spec[field]) for field in SPEC if spec.get(field)},
        "status": {field: value for field, value in slim_status.items() if value},
    }


def _conditions(conditions: Sequence[Mapping[str, Any]]) -> list[Any]:
    of_interest = (condition for condition in conditions if condition.get("type") in CONDITIONS)
    return [
        {field: _shared(condition[field]) for field in CONDITION if field in condition}
        for condition in of_interest
    ]


def _shared(value: Any) -> Any:
    """The same value, of which equal texts are one object."""
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, Mapping):
        return {sys.intern(key): _shared(item) for key, item in value.items()}
    return [_shared(item) for item in value] if isinstance(value, list) else value
