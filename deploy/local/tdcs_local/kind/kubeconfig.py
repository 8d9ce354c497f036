"""The kubeconfig of the local cluster, a file in the checkout: written whole, and never over somebody else's."""

import os

import yaml

from tdcs_local import programs, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import KUBECONFIG, STATE


def write(cluster: str) -> None:
    """Puts the cluster's access into the checkout, whole or not at all, readable by its owner only."""
    require_own()
    kind = programs.ensure("kind") / "kind"
    text = shell.capture([kind, "get", "kubeconfig", "--name", cluster], what="reading the kubeconfig failed")
    STATE.mkdir(exist_ok=True)
    fresh = KUBECONFIG.with_name(f"kubeconfig.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(text + "\n")
    fresh.replace(KUBECONFIG)


def remove() -> None:
    """Removes the access to a cluster that is gone, unless the file holds anything else."""
    try:
        if not foreign_contexts(KUBECONFIG.read_text()):
            KUBECONFIG.unlink()
    except FileNotFoundError:
        return


def require_own() -> None:
    """Raises :class:`LocalError` if the file to write holds the access to anything but a local cluster."""
    try:
        strange = foreign_contexts(KUBECONFIG.read_text())
    except FileNotFoundError:
        return
    if strange:
        raise LocalError(
            what=f"{KUBECONFIG} holds the access to another cluster",
            why=f"it names {', '.join(strange)}; writing it would lose that, so nothing was changed",
            remedy=f"move it away: mv {KUBECONFIG} {KUBECONFIG}.mine",
        )


def foreign_contexts(text: str) -> list[str]:
    """The contexts of a kubeconfig that kind did not make; a text that is no kubeconfig counts as one."""
    try:
        parsed = yaml.safe_load(text)
        contexts = [context["name"] for context in (parsed or {}).get("contexts") or []]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        return ["something that is no kubeconfig"]
    return [context for context in contexts if not str(context).startswith("kind-")]
