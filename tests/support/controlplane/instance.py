"""One control plane: started, used, broken on purpose, and gone without a trace."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.support.controlplane import commands
from tests.support.controlplane.audit import POLICY, STAND_INS, AuditLog, stand_in
from tests.support.controlplane.binaries import Binaries
from tests.support.controlplane.commands import API, ETCD, KWOK, MANAGER, SCHEDULER, Layout, Options, Ports
from tests.support.controlplane.pki import ADMINS, Pki
from tests.support.kube import Kube
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process
from tests.support.waiting import eventually

START_DEADLINE = 60.0
"""Seconds that one program may take to become ready, on a machine that is busy with other work."""


class ControlPlane:
    """Real etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK, as processes on loopback.

    Use as a context manager. ``folder`` gets ``logs/`` (kept) and ``data/`` (removed at the end).
    """

    def __init__(self, *, folder: Path, options: Options | None = None) -> None:
        self.folder = folder
        self.options = options or Options()
        self.start_seconds = 0.0
        self._processes: dict[str, Process] = {}
        self._clients: list[Kube] = []
        self._limited: set[str] = set()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:  # also a Ctrl-C in the middle of the start
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """kubeconfig file of a cluster administrator."""
        return self._at.kubeconfig("admin")

    def stand_in_kubeconfig(self, account: str) -> Path:
        """kubeconfig file of an administrator in the place of an account of the chart ("operator", "scheduler").

        The audit log knows its requests from a test's own.
        """
        return self._at.kubeconfig(f"tdcs-{account}")

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self._at.api_url

    @property
    def audit(self) -> AuditLog:
        """What programs asked of the API server."""
        return AuditLog(self._at.audit_log)

    @property
    def kube(self) -> Kube:
        """The administrator's client."""
        return self._kube

    @property
    def processes(self) -> Mapping[str, Process]:
        """Every process of this control plane and those started by ``run``, by name."""
        return self._processes

    def process(self, name: str) -> Process:
        """A process by name ("etcd", "kube-apiserver", …), to kill, restart, pause or read its log."""
        return self._processes[name]

    def client_as(self, *, service_account: str, namespace: str) -> Kube:
        """A client with the rights of an existing ServiceAccount."""
        path = self.kubeconfig_as(service_account=service_account, namespace=namespace)
        client = Kube(kubeconfig=path)
        self._clients.append(client)
        return client

    def kubeconfig_as(self, *, service_account: str, namespace: str) -> Path:
        """Write the kubeconfig of an existing ServiceAccount, for a process to run with its rights and no more."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.kube.create_under(
            "ServiceAccount", service_account, "token", request, namespace=namespace
        )
        user = f"{namespace}.{service_account}"
        identity = {"token": answer["status"]["token"]}
        self._at.accounts.mkdir(exist_ok=True)
        path = self._at.accounts / f"{user}.kubeconfig"
        return self._at.pki.write_kubeconfig(path=path, server=self.url, user=user, identity=identity)

    def start_scheduler(self, *, name: str, config: Mapping[str, Any]) -> Process:
        """Start one more kube-scheduler, as process ``name``, and wait until it is ready.

        ``config`` is a KubeSchedulerConfiguration like ``Options.scheduler_config``; its
        profiles should have a schedulerName of their own.
        """
        (port,) = free_ports(1)
        self._add_scheduler(name=name, config=config, port=port)
        self._processes[name].start()
        return self._processes[name]

    def run(
        self,
        *,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        kubeconfig: Path | None = None,
        ready: Callable[[], bool] | None = None,
        start_deadline: float = START_DEADLINE,
    ) -> Process:
        """Run any other program (the operator, the extender) next to the control plane, and wait until it is ready.

        It gets KUBECONFIG (``kubeconfig``, by default the administrator's) and ``env`` on
        top of this process' environment. Its log is kept, and it ends with the control plane.
        """
        if kubeconfig is not None and kubeconfig.parent == self._at.accounts:
            self._limited.add(name)
        full = {**os.environ, "KUBECONFIG": str(kubeconfig or self.kubeconfig), **(env or {})}
        process = self._add(name, argv, ready=ready, env=full, start_deadline=start_deadline)
        process.start()
        return process

    def remove(self, name: str) -> None:
        """Stop a process that ``run`` or ``start_scheduler`` started, and forget it."""
        self._processes.pop(name).stop()

    def remove_limited(self) -> None:
        """Stop the processes that ``run`` started with a ServiceAccount's kubeconfig.

        For tests that take the rights away at their end: what a program asks after that is refused, and nobody's fault.
        """
        for name in self._limited & self._processes.keys():
            self.remove(name)

    def metric(self, metric: str, labels: Mapping[str, str], *, name: str = SCHEDULER) -> float:
        """Sum of a metric's samples that have ``labels``, read from a scheduler's /metrics."""
        port = next(a.split("=")[1] for a in self.process(name).argv if a.startswith("--secure-port="))
        with self._open(f"https://{self._at.address(int(port))}/metrics") as answer:
            text: str = answer.read().decode()
        # Parse that metric's lines only: the scheduler exports thousands, and this is called in a loop.
        heads = (f"{metric}{{", f"{metric} ")
        metric_lines = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(heads))
        families = text_string_to_metric_families(metric_lines)
        samples = (sample for family in families for sample in family.samples)
        return sum(s.value for s in samples if s.name == metric and labels.items() <= s.labels.items())

    def stop(self) -> None:
        """Kill every process (nothing in them is worth saving) and remove their data; logs stay."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        # Backwards: who goes last has nobody left to complain to in its log.
        for process in reversed(self._processes.values()):
            process.kill()
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _start(self) -> None:
        binaries = Binaries.built()
        begin = time.monotonic()
        self._prepare(binaries)
        at = self._at
        self._add(ETCD, commands.etcd(at), ready=self.answers(f"{at.etcd_url}/readyz")).start()
        self._add(API, commands.kube_apiserver(at), ready=self.answers(f"{at.api_url}/readyz")).start()

        manager_url = f"https://{at.address(at.ports.manager)}/healthz"
        self._add(MANAGER, commands.kube_controller_manager(at), ready=self.answers(manager_url))
        self._add_scheduler(name=SCHEDULER, config=self.options.scheduler_config, port=at.ports.scheduler)
        if self.options.kwok:
            kwok_url = f"http://{at.address(at.ports.kwok)}/healthz"
            self._add(KWOK, commands.kwok(at, stages=self._stages()), ready=self.answers(kwok_url))
        controllers = [process for name, process in self._processes.items() if name not in (ETCD, API)]
        for process in controllers:
            process.launch()
        for process in controllers:
            process.wait_ready()

        self._kube = Kube(kubeconfig=self.kubeconfig)
        self._clients.append(self._kube)
        self.wait_for_namespace("default")
        self.start_seconds = time.monotonic() - begin

    def wait_for_namespace(self, name: str) -> None:
        """Wait until pods can be created in a namespace: they need its default service account."""
        eventually(
            lambda: self.kube.find("ServiceAccount", "default", namespace=name),
            deadline=START_DEADLINE,
            describe=lambda: self.process(MANAGER).tail(),
            interval=0.05,
        )

    def _prepare(self, binaries: Binaries) -> None:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        names = ("etcd", "etcd_peer", "api", "manager", "scheduler", "kwok")
        ports = Ports(**dict(zip(names, free_ports(len(names)), strict=True)))
        pki = Pki(folder=self.folder / "pki")
        self._at = Layout(folder=self.folder, ports=ports, pki=pki, binaries=binaries, options=self.options)
        self._at.audit_policy.write_text(json.dumps(POLICY))
        self._tls = ssl.create_default_context(cafile=str(pki.ca))
        for user, group, path in (
            ("admin", ADMINS, "admin"),
            ("system:kube-controller-manager", None, MANAGER),
            ("system:kube-scheduler", None, SCHEDULER),
            ("kwok", ADMINS, KWOK),
            *((stand_in(account), ADMINS, f"tdcs-{account}") for account in STAND_INS),
        ):
            pki.client_kubeconfig(path=self._at.kubeconfig(path), server=self.url, user=user, group=group)

    def _stages(self) -> Path:
        path = self.folder / "kwok-stages.yaml"
        printed = subprocess.run([self._at.binaries.kwok_stages], check=True, capture_output=True)
        path.write_bytes(printed.stdout)
        return path

    def _add_scheduler(self, *, name: str, config: Mapping[str, Any], port: int) -> None:
        path = self.folder / f"{name}.yaml"
        complete = commands.scheduler_config(config, kubeconfig=self._at.kubeconfig(SCHEDULER))
        path.write_text(yaml.safe_dump(complete))
        argv = commands.kube_scheduler(self._at, config=path, port=port)
        self._add(name, argv, ready=self.answers(f"https://{self._at.address(port)}/readyz"))

    def _add(
        self,
        name: str,
        argv: Sequence[str],
        *,
        ready: Callable[[], bool] | None,
        env: Mapping[str, str] | None = None,
        start_deadline: float = START_DEADLINE,
    ) -> Process:
        """A process of this control plane, not yet started; the environment is by default a Go program's."""
        if name in self._processes:
            raise ValueError(f"there already is a process {name}; remove() it or take another name")
        self._processes[name] = Process(
            name=name,
            argv=argv,
            log=self.folder / "logs" / f"{name}.log",
            env=env or {**os.environ, **commands.GO_ENVIRONMENT},
            ready=ready,
            start_deadline=start_deadline,
        )
        return self._processes[name]

    def answers(self, url: str) -> Callable[[], bool]:
        """A ``ready`` condition for ``run``: a GET of ``url`` is answered 200."""

        def answers() -> bool:
            try:
                with self._open(url) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, OSError):  # not listening yet, or not ready (an HTTP error)
                return False

        return answers

    def _open(self, url: str) -> Any:
        # No proxy of the environment has a say about loopback.
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)]
        return urllib.request.build_opener(*handlers).open(url, timeout=2)
