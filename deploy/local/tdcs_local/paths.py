"""Where things are: the checkout, its ``.local`` folder, the cache outside of it."""

import os
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
LOCAL = CHECKOUT / "deploy" / "local"
EXAMPLES = CHECKOUT / "deploy" / "examples"
STATE = CHECKOUT / ".local"
LOGS = STATE / "logs"
NAME_VARIABLE = "TDCS_CLUSTER"
DEFAULT_NAME = "tdcs"


def kubeconfig_of(cluster: str) -> Path:
    """Where the access to a cluster is: ``.local/kubeconfig``; one of another name has a file of its own."""
    return STATE / ("kubeconfig" if cluster == DEFAULT_NAME else f"kubeconfig-{cluster}")


KUBECONFIG = kubeconfig_of(os.environ.get(NAME_VARIABLE) or DEFAULT_NAME)


def cache_root(*, env: Mapping[str, str] = os.environ) -> Path:
    """Where all that is expensive to make is kept: ``$TDCS_CACHE``, or ``tdcs`` in the user's cache folder."""
    if env.get("TDCS_CACHE"):
        return Path(env["TDCS_CACHE"]).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".cache")
    return Path(base) / "tdcs"


def log_file(name: str) -> Path:
    """The log of a step; its folder exists afterwards."""
    LOGS.mkdir(parents=True, exist_ok=True)
    return LOGS / f"{name}.log"
