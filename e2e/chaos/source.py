"""The source of a run's Datasets: the local store behind a proxy that can be made slow or false."""

import json
from pathlib import Path

from tests.support.waiting import eventually

from e2e.chaos import source_proxy
from e2e.support.pods import NOBODY, UNPRIVILEGED
from tdcs_local.errors import LocalError
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.store import operations

NAME = "source"
PORT = 7070
MODE_FILE = "/tmp/mode"
RULE = "chaos"
READY_SECONDS = 120.0
WRITE = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


class Source:
    """The proxy, in a namespace of its own.

    Args:
        kubectl: of the cluster.
        namespace: of the run.
        image: with Python.
    """

    def __init__(self, *, kubectl: Kubectl, namespace: str, image: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._image = image

    @property
    def endpoint(self) -> str:
        """What Datasets name."""
        return f"http://{NAME}.{self._namespace}.svc:{PORT}"

    def begin(self) -> None:
        """Start it, and let Datasets of the cache cluster use it."""
        self._kubectl.apply(*self._objects())
        self._kubectl(
            *("rollout", "status", f"deployment/{NAME}", "-n", self._namespace),
            *(f"--timeout={READY_SECONDS:.0f}s",),
            timeout=READY_SECONDS + 20,
        )
        self._set_rules([*self._rules(), {"name": RULE, "endpoints": [self.endpoint]}])

    def end(self) -> None:
        """Take the rule back. The proxy goes with its namespace."""
        self._set_rules(self._rules())

    def set_mode(self, mode: str) -> None:
        """From now on answers are treated so, see `e2e.chaos.source_proxy`."""
        program = ("python3", "-c", WRITE, MODE_FILE, mode)
        self._kubectl("exec", f"deploy/{NAME}", "-n", self._namespace, "--", *program, timeout=30)

    def reset(self) -> None:
        """Answers are the store's again. A new pod of the proxy begins so, too."""

        def reset() -> bool:
            self.set_mode("")
            return True

        eventually(reset, deadline=READY_SECONDS, retry_on=(LocalError,), interval=1.0)

    def _rules(self) -> list[Object]:
        cluster = self._kubectl.get(
            "cacheclusters.tdcs.io", release.CACHE_CLUSTER, namespace=release.NAMESPACE
        )
        rules: list[Object] = (cluster or {}).get("spec", {}).get("sources", [])
        return [rule for rule in rules if rule["name"] != RULE]

    def _set_rules(self, rules: list[Object]) -> None:
        patch = json.dumps({"spec": {"sources": rules}})
        self._kubectl(
            *("patch", "cacheclusters.tdcs.io", release.CACHE_CLUSTER, "-n", release.NAMESPACE),
            *("--type=merge", "--patch", patch),
        )

    def _objects(self) -> list[Object]:
        metadata = {"name": NAME, "namespace": self._namespace}
        labels = {"app": NAME}
        upstream = operations.ENDPOINT.removeprefix("http://")
        container = {
            "name": "proxy",
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "/program/source_proxy.py", str(PORT), upstream, MODE_FILE],
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
            "securityContext": UNPRIVILEGED,
            "volumeMounts": [
                {"name": "program", "mountPath": "/program"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**metadata, "name": "source-proxy"},
                "data": {"source_proxy.py": Path(source_proxy.__file__).read_text()},
            },
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": metadata,
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "terminationGracePeriodSeconds": 1,
                            "securityContext": NOBODY,
                            "containers": [container],
                            "volumes": [
                                {"name": "program", "configMap": {"name": "source-proxy"}},
                                {"name": "tmp", "emptyDir": {}},
                            ],
                        },
                    },
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"selector": labels, "ports": [{"port": PORT}]},
            },
        ]
