"""Which role may send which request to an agent or the operator. Anything else is refused."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tdcs.trust.roles import Role

READ_BLOCKS: Final = 1
FOLLOW_BLOCKS: Final = 2
READ_SOURCE: Final = 3
"""Kinds of requests to an agent's block service (`tdcs.node.wire.frames`)."""

BLOCK_REQUESTS: Final[Mapping[int, frozenset[Role]]] = MappingProxyType(
    {
        READ_BLOCKS: frozenset({Role.AGENT, Role.READER}),
        FOLLOW_BLOCKS: frozenset({Role.AGENT}),
        READ_SOURCE: frozenset({Role.READER}),
    }
)

BLOCK_CALLERS: Final = frozenset[Role]().union(*BLOCK_REQUESTS.values())

METRICS_CALLERS: Final = frozenset({Role.OPERATOR, Role.MONITOR})
"""Who may read the metrics of any process."""

CONTROL_REQUESTS: Final[Mapping[str, frozenset[Role]]] = MappingProxyType(
    {
        "GET /metrics": METRICS_CALLERS,
        "GET /v1/state": frozenset({Role.OPERATOR}),
        "PUT /v1/assignments": frozenset({Role.OPERATOR}),
        "POST /v1/forget": frozenset({Role.OPERATOR}),
        "POST /v1/count": frozenset({Role.OPERATOR}),
        "POST /v1/count-source": frozenset({Role.OPERATOR}),
        "POST /v1/list": frozenset({Role.OPERATOR}),
        "GET /v1/manifests/{digest}": frozenset({Role.OPERATOR, Role.AGENT, Role.READER}),
    }
)
"""Requests to an agent's control port: method and route."""

OPERATOR_REQUESTS: Final[Mapping[str, frozenset[Role]]] = MappingProxyType(
    {
        "GET /v1/manifests/{digest}": frozenset({Role.AGENT, Role.READER}),
        "GET /v1/holders/{cluster}": frozenset({Role.READER}),
        "GET /v1/mounts/{cluster}": frozenset({Role.READER}),
        "POST /v1/read-failures": frozenset({Role.READER}),
        "POST /v1/read-waits": frozenset({Role.READER}),
    }
)
"""Requests to the operator's port for agents and nodes: method and route."""

OPEN_REQUESTS: Final = frozenset({"GET /healthz"})
"""Requests that need no certificate: kubelet shows none."""


def may_ask(role: Role | None, kind: int) -> bool:
    """Whether a role may make a request of this kind to a block service."""
    return role is not None and role in BLOCK_REQUESTS.get(kind, frozenset())


def may_call(role: Role | None, request: str, *, requests: Mapping[str, frozenset[Role]]) -> bool:
    """Whether a role may make a request, such as `GET /v1/state`, by the table of the port that is asked."""
    if request in OPEN_REQUESTS:
        return True
    return role is not None and role in requests.get(request, frozenset())
