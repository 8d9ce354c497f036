"""Who may call what of Alluxio's RPC, from `tdcs/trust/alluxio_rights.toml`. What is not there is refused."""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType

from tdcs.trust.roles import Role


class Place(StrEnum):
    """From where a role may call; the value is what follows the role in the table."""

    ANYWHERE = ""
    OWN_POD = "@pod"
    """From the pod of the process that is called."""
    STOCK = "@stock"
    """Anywhere, at the processes of a CacheCluster of the profile Stock."""


@cache
def alluxio_rights() -> Mapping[str, Mapping[Role, Place]]:
    """Every method of Alluxio's protos, as `SERVICE/METHOD`, and the roles that may call it, with the place of each."""
    text = resources.files("tdcs.trust").joinpath("alluxio_rights.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            f"{service}/{method}": MappingProxyType(dict(map(_caller, callers)))
            for service, methods in tomllib.loads(text).items()
            for method, callers in methods.items()
        }
    )


def _caller(text: str) -> tuple[Role, Place]:
    role, at, place = text.partition("@")
    return Role(role), Place(at + place)
