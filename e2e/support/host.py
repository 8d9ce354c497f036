"""Servers of this machine as the local cluster reaches them, and whom its API server signs tokens for."""

from __future__ import annotations

import json

from tests.support.programs.token_service import PublicKey, published_key

from tdcs_local import shell
from tdcs_local.kind.kubectl import Kubectl


def host_of(node: str) -> str:
    """The address of this machine on the network of a node."""
    networks = json.loads(
        shell.capture(["docker", "inspect", "--format", "{{json .NetworkSettings.Networks}}", node])
    )
    return str(next(iter(networks.values()))["Gateway"])


def signer(kubectl: Kubectl) -> PublicKey:
    """The key with which the cluster signs tokens, as the API server publishes it."""
    (key,) = kubectl.raw("/openid/v1/jwks")["keys"]
    return published_key(key)
