"""What an agent is given, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from tdcs.node.agent.mount.peer_book import Patience


class VersionError(Exception):
    """An assignment is older than the one that is known; the text names the mount and both versions."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    node: str
    capacity_bytes: int
    patience: Patience = field(default_factory=Patience)
