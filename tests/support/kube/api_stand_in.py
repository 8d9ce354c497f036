"""An API server's stand-in over HTTP: lists and watches of objects that a test puts into it, and who may read them.

For what thousands of objects cost a client. Where an API server's own behaviour matters, tests take a real one.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlparse

from tests.support.certificates import authority_data

Object = dict[str, Any]


class ApiStandIn:
    """Use as a context manager.

    Args:
        objects: those of each plural.
        forbidden: plurals that may not be read.
        user: who asks.
        own_namespace_only: plurals that may be read in one namespace, and not in all at once.
        refusal: the status code and the sentence with which what is made is refused.
        apply_refusal: the same of what is applied. What is applied is taken as a dry run only.
    """

    def __init__(
        self,
        objects: Mapping[str, Sequence[Object]],
        *,
        forbidden: frozenset[str] = frozenset(),
        user: str = "u",
        own_namespace_only: frozenset[str] = frozenset(),
        refusal: tuple[int, str] | None = None,
        apply_refusal: tuple[int, str] | None = None,
    ) -> None:
        self._objects = {plural: list(listed) for plural, listed in objects.items()}
        self._watchers: dict[str, list[queue.Queue[Object | None]]] = {}
        self._version = 1000
        self.forbidden = forbidden
        self.user = user
        self.own_namespace_only = own_namespace_only
        self.refusal = refusal
        self.apply_refusal = apply_refusal
        self.applied: list[Object] = []
        self._stopped = False
        self._server = _Server(("127.0.0.1", 0), self._handler())

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.put(None)
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        path = folder / "kubeconfig"
        server = f"http://127.0.0.1:{self._server.server_port}"
        cluster = {"server": server, "certificate-authority-data": authority_data()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "example", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "example",
        }
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def objects(self, plural: str) -> list[Object]:
        """The objects of a kind as they are now."""
        return list(self._objects.get(plural, ()))

    def put(self, plural: str, obj: Object) -> None:
        """An object as it is from now on."""
        self._version += 1
        changed = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        listed = self._objects.setdefault(plural, [])
        key = _key(obj)
        listed[:] = [entry for entry in listed if _key(entry) != key] + [changed]
        for watcher in self._watchers.get(plural, ()):
            watcher.put({"type": "MODIFIED", "object": changed})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # an answer is two writes

            def do_GET(self) -> None:
                url = urlparse(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                parts = url.path.strip("/").split("/")
                if owner._stopped:  # a connection that was open before
                    self.close_connection = True
                elif parts[-2:] == ["namespaces", "default"]:
                    self._answer(200, {"metadata": {"name": "default"}})
                elif refused := owner.forbidden.intersection(parts[-1:] + parts[-2:-1]):
                    self._answer(403, {"reason": "Forbidden", "message": f"may not read {min(refused)}"})
                elif parts[-2:-1] == ["namespaces"]:
                    namespaces = [
                        namespace
                        for namespace in owner.objects("namespaces")
                        if _key(namespace)[1] == parts[-1]
                    ]
                    self._answer(200, namespaces[0] if namespaces else {"metadata": {"name": parts[-1]}})
                elif "namespaces" not in parts and parts[-1] in owner.own_namespace_only:
                    self._answer(403, {"reason": "Forbidden", "message": f"may not read all {parts[-1]}"})
                elif len(parts) > 4 and parts[-4] == "namespaces":
                    self._one(parts[-2], (parts[-3], parts[-1]))
                elif "watch" in query:
                    self._watch(parts[-1], since=int(query.get("resourceVersion") or 0))
                else:
                    items = [] if "fieldSelector" in query else owner._objects.get(parts[-1], [])
                    if len(parts) > 2 and parts[-3] == "namespaces":
                        items = [entry for entry in items if entry["metadata"].get("namespace") == parts[-2]]
                    version = {"resourceVersion": str(owner._version)}
                    self._answer(200, {"metadata": version, "items": items})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                url = urlparse(self.path)
                if owner.refusal is not None:
                    code, sentence = owner.refusal
                    self._answer(code, {"reason": "Refused", "message": sentence})
                    return
                if url.path.endswith("/selfsubjectaccessreviews"):
                    about = body["spec"]["resourceAttributes"]["resource"]
                    self._answer(201, {**body, "status": {"allowed": about not in owner.forbidden}})
                    return
                if url.path.endswith("/selfsubjectreviews"):
                    self._answer(201, {**body, "status": {"userInfo": {"username": owner.user}}})
                    return
                if url.path.endswith("/localsubjectaccessreviews"):  # others have no rights
                    self._answer(201, {**body, "status": {"allowed": False}})
                    return
                if "dryRun" not in parse_qs(url.query):
                    owner.put(url.path.rpartition("/")[2], body)
                self._answer(201, body)

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if owner.apply_refusal is not None:
                    code, sentence = owner.apply_refusal
                    self._answer(code, {"reason": "Refused", "message": sentence})
                    return
                if "dryRun" not in parse_qs(urlparse(self.path).query):
                    self._answer(405, {"reason": "MethodNotAllowed", "message": "dry runs only"})
                    return
                owner.applied.append(body)
                self._answer(201, body)

            def _one(self, plural: str, key: tuple[str, str]) -> None:
                obj = next((entry for entry in owner._objects.get(plural, ()) if _key(entry) == key), None)
                missing = {"reason": "NotFound", "message": "there is no such object"}
                self._answer(404 if obj is None else 200, obj or missing)

            def _answer(self, status: int, body: Object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _watch(self, plural: str, *, since: int) -> None:
                events: queue.Queue[Object | None] = queue.Queue()
                owner._watchers.setdefault(plural, []).append(events)
                # What changed between the list and this watch.
                for obj in list(owner._objects.get(plural, ())):
                    if int(obj["metadata"].get("resourceVersion") or 0) > since:
                        events.put({"type": "MODIFIED", "object": obj})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                while (event := events.get()) is not None:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def _key(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
