"""A manager of another project: its process, its definitions and its webhooks on a control plane."""

from __future__ import annotations

import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import yaml
from tests.support.certificates import TestAuthority
from tests.support.controlplane import ControlPlane
from tests.support.ecosystem.go_modules import manager_program, module_folder
from tests.support.ecosystem.webhooks import local_webhooks
from tests.support.kube import Object
from tests.support.programs.ports import free_ports

from tdcs.trust.roles import Role

READY_SECONDS = 120


class Manager(ABC):
    """It runs with the administrator's rights, and is asked about the objects of namespaces with the label `ASKED`.

    Args:
        plane: next to which it runs.
        folder: for its configuration and its certificate.
    """

    program: ClassVar[str]
    """Name of its program, which is also that of its process and its webhook configurations."""
    module: ClassVar[str]
    """Path of its Go module."""
    definitions: ClassVar[str]
    """Folder of its CustomResourceDefinitions, in the module."""
    webhooks: ClassVar[str]
    """File of its webhook configurations, in the module."""
    groups: ClassVar[frozenset[str]]
    """API groups about which it is asked."""

    def __init__(self, plane: ControlPlane, *, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._binary = manager_program(self.program)
        self._source = module_folder(self.program, module=self.module)
        self._health, self._port = free_ports(2)
        self._authority = TestAuthority()
        self._hooks: list[Object] = []

    @abstractmethod
    def settings(self, *, health: str, port: int, certificates: Path) -> Object:
        """Its configuration file.

        Args:
            health: address at which it says that it is ready.
            port: on loopback, at which it serves its webhooks.
            certificates: folder with `tls.crt` and `tls.key` for them.
        """

    def command(self, config: Path) -> list[str]:
        """What runs it."""
        return [str(self._binary), f"--config={config}"]

    def environment(self, *, certificates: Path) -> Mapping[str, str]:
        """More of its process's environment."""
        del certificates
        return {}

    def start(self) -> None:
        """Start it, and have the API server ask it."""
        self._plane.kube.install_crds(self._source / self.definitions)
        self._folder.mkdir(parents=True, exist_ok=True)
        certificates = self._authority.folder(
            self._folder / "k8s-webhook-server" / "serving-certs", Role.OPERATOR
        )
        config = self._folder / "manager.yaml"
        settings = self.settings(
            health=f"127.0.0.1:{self._health}", port=self._port, certificates=certificates
        )
        config.write_text(yaml.safe_dump(settings))
        self._plane.run(
            name=self.program,
            argv=self.command(config),
            env=self.environment(certificates=certificates),
            ready=self._ready,
            start_deadline=READY_SECONDS,
        )
        self._hooks = list(
            local_webhooks(
                self._source / self.webhooks,
                name=self.program,
                port=self._port,
                authority=self._authority.pair.certificate,
                groups=self.groups,
            )
        )
        for hooks in self._hooks:
            self._plane.kube.create(hooks)

    def stop(self) -> None:
        """It is gone, and with it its webhooks."""
        self.forget_webhooks()
        self._plane.remove(self.program)

    def forget_webhooks(self) -> None:
        """Take its webhooks away, as who uninstalls it does first."""
        for hooks in self._hooks:
            self._plane.kube.delete(hooks["kind"], hooks["metadata"]["name"])
        self._hooks = []

    def kill(self) -> None:
        """It dies, as by SIGKILL."""
        self._plane.process(self.program).kill()

    def restart(self) -> None:
        """It comes back after `kill`."""
        self._plane.process(self.program).start()

    def _ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self._health}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
