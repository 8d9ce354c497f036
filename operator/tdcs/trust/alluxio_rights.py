"""Who may call what of Alluxio's RPC, from `alluxio_rights.toml`. What is not there is refused. Pure."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from tdcs.trust.roles import Role


@cache
def alluxio_rights() -> Mapping[str, frozenset[Role]]:
    """Every method of Alluxio's protos, as `SERVICE/METHOD`, and the roles that may call it."""
    text = resources.files("tdcs.trust").joinpath("alluxio_rights.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            f"{service}/{method}": frozenset(Role(role) for role in roles)
            for service, methods in tomllib.loads(text).items()
            for method, roles in methods.items()
        }
    )


def rights_text() -> str:
    """The table as Alluxio's processes read it: lines of a role and a method."""
    lines = [f"{role} {method}" for method, roles in alluxio_rights().items() for role in roles]
    return "\n".join(sorted(lines)) + "\n"
