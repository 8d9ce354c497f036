"""The local cluster's API through kubectl: plain dicts in, plain dicts out."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tdcs_local.containers import node_image
from tdcs_local.errors import LocalError
from tdcs_local.paths import KUBECONFIG
from tdcs_local.progress import Step
from tdcs_local.shell import capture, momentary

Object = dict[str, Any]
POLL_SECONDS = 0.5
RETRY_PAUSES = (1.0, 3.0, 10.0)
REPEATABLE = frozenset({"get", "apply", "delete", "patch", "annotate"})
"""Commands that are run again when the API server of a busy machine did not answer; twice done they do the same."""


class Kubectl:
    """kubectl bound to one kubeconfig; the user's own KUBECONFIG and context are never looked at."""

    def __init__(self, *, kubeconfig: Path = KUBECONFIG) -> None:
        self.kubeconfig = kubeconfig
        self._program = node_image.kubectl()

    def __call__(self, *words: str, stdin: str | None = None, what: str = "", timeout: float = 120) -> str:
        """Run one kubectl command and return its stdout."""
        # Whether the server is ready is asked by who asks again himself.
        again = words[0] in REPEATABLE and "/readyz" not in words
        for pause in RETRY_PAUSES if again else ():
            try:
                return self._run(*words, stdin=stdin, what=what, timeout=timeout)
            except LocalError as error:
                if not momentary(error.why):
                    raise
            time.sleep(pause)
        return self._run(*words, stdin=stdin, what=what, timeout=timeout)

    def _run(self, *words: str, stdin: str | None, what: str, timeout: float) -> str:
        return capture(
            [self._program, f"--kubeconfig={self.kubeconfig}", *words],
            what=what or f"kubectl {' '.join(words[:4])} failed",
            remedy="see `make status`; `make up` repairs the local cluster",
            stdin=stdin,
            timeout=timeout,
        )

    def get(self, resource: str, name: str, *, namespace: str | None = None) -> Object | None:
        """One object, or None when there is none of that name."""
        text = self("get", resource, name, "-o", "json", "--ignore-not-found", *_scope(namespace))
        return json.loads(text) if text else None

    def list(self, resource: str, *, namespace: str | None = None, selector: str = "") -> list[Object]:
        """All objects of a kind, in one namespace or of the whole cluster."""
        scope = _scope(namespace) or ["--all-namespaces"]
        answer = self(
            "get", resource, "-o", "json", *scope, *([f"--selector={selector}"] if selector else [])
        )
        items: list[Object] = json.loads(answer)["items"]
        return items

    def apply(self, *objects: Object) -> None:
        """Create or update objects, server side."""
        documents = yaml.safe_dump_all(objects, sort_keys=False)
        self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=documents)

    def delete(self, resource: str, name: str, *, namespace: str | None = None, timeout: float = 300) -> None:
        """Delete an object and wait until it is gone, its finalizers too; nothing to delete is fine."""
        self(
            *("delete", resource, name, "--ignore-not-found", "--wait", *_scope(namespace)),
            what=f"{resource} {name} is not gone yet",
            timeout=timeout,
        )

    def raw(self, path: str) -> Any:
        """GET a path of the API server, parsed as JSON (a service proxy, for instance)."""
        return json.loads(self("get", "--raw", path))

    def wait(
        self,
        look: Callable[[], str | None],
        *,
        what: str,
        seconds: float,
        step: Step | None = None,
        explain: Callable[[], str] = lambda: "",
    ) -> None:
        """Call ``look`` until it returns None; what it returns meanwhile says what is missing.

        Raises :class:`LocalError` with the last such sentence and ``explain()`` after ``seconds``.
        """
        end = time.monotonic() + seconds
        while (missing := look()) is not None:
            if step is not None:
                step.detail = missing
            if time.monotonic() > end:
                why = "\n".join(part for part in (f"after {seconds:.0f} s: {missing}", explain()) if part)
                raise LocalError(what=what, why=why, remedy="look at the objects with kubectl describe")
            time.sleep(POLL_SECONDS)


def load(path: Path) -> list[Object]:
    """The objects of a manifest file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def condition(thing: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any]:
    """The condition of a type, empty when the object or the condition is missing."""
    conditions = (thing or {}).get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


def unmet(thing: Mapping[str, Any] | None, kind: str) -> str | None:
    """What a condition says that is not True yet; None once it is."""
    state = condition(thing, kind)
    return None if state.get("status") == "True" else str(state.get("message", "not looked at yet"))


def _scope(namespace: str | None) -> list[str]:
    return [f"--namespace={namespace}"] if namespace else []
