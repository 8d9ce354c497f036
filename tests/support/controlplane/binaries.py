"""Where the programs of the control plane come from: the local tool's cache of built products."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tdcs_local import programs


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """Paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kwok: Path
    kwok_stages: Path

    @classmethod
    def built(cls) -> Binaries:
        """The programs of the pinned versions; builds what is not in the cache, which takes minutes once."""
        etcd, kubernetes, kwok = (programs.ensure(name) for name in ("etcd", "kubernetes", "kwok"))
        return cls(
            etcd=etcd / "etcd",
            kube_apiserver=kubernetes / "kube-apiserver",
            kube_controller_manager=kubernetes / "kube-controller-manager",
            kube_scheduler=kubernetes / "kube-scheduler",
            kwok=kwok / "kwok",
            kwok_stages=kwok / "kwok-stages",
        )
