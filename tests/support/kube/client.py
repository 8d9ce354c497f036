"""A Kubernetes client on plain dicts, for tests and benchmarks: objects go in and come out as in YAML.

Kinds are named as in a manifest ("Pod", "Job", "Dataset") and looked up in the API
server's discovery, so custom resources work like built-in ones. The package `kubernetes`
gives configuration, credentials and TLS; its models are left out on purpose: tests assert
on what the server stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import urllib3
import yaml
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import load_kube_config
from tests.support.documents import documents
from tests.support.waiting import eventually

Object = dict[str, Any]

FIELD_MANAGER = "tdcs-tests"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML


# A server that has just learned a definition asks readers to come again.
_RETRIES: Final = urllib3.Retry(
    connect=0,
    read=0,
    redirect=False,
    status=30,
    status_forcelist=(429,),
    allowed_methods=("GET",),
    raise_on_status=False,
)


class KubeRequestError(Exception):
    """The API server refused a request; ``code`` is the HTTP status, ``reason`` its word for it ("Conflict")."""

    def __init__(self, *, method: str, path: str, code: int, body: str) -> None:
        try:
            status: Mapping[str, Any] = yaml.safe_load(body)
            reason, message = str(status["reason"]), str(status["message"])
        except (yaml.YAMLError, TypeError, KeyError):
            reason, message = "", body[:300]
        super().__init__(f"{method} {path} was answered {code} {reason}: {message}")
        self.code = code
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Where the objects of a kind are: ``prefix`` is "/api/v1" or "/apis/batch/v1"."""

    api_version: str
    plural: str
    namespaced: bool

    def path(self, *, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of an object, or of the collection if ``name`` is None."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        parts = [root + self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Kube:
    """Reads and writes one cluster as the user of ``kubeconfig``; safe to use from several threads."""

    def __init__(self, *, kubeconfig: Path, context: str | None = None, timeout: float = 30) -> None:
        configuration = Configuration()
        load_kube_config(
            config_file=str(kubeconfig),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
        # Proxies of the environment are for the outside world, never for a cluster under test.
        configuration.proxy = None
        self._host = configuration.host
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self._timeout = timeout
        token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        self._headers = {"Authorization": token} if token else {}
        self._known: dict[tuple[str | None, str], Resource] = {}
        self.warnings: list[str] = []
        """What the server has warned of, as kubectl prints it."""

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False) -> Object:
        """Create the object, in the namespace of its metadata.

        Args:
            dry_run: the server only says what it would do.
            strict: it refuses fields that it does not know, as it does for kubectl.
        """
        resource = self.resource(obj["kind"], api_version=obj["apiVersion"])
        path = resource.path(namespace=obj["metadata"].get("namespace", "default"))
        params = {"dryRun": "All"} if dry_run else {}
        return self._send(
            "POST", path, json=obj, params=params | ({"fieldValidation": "Strict"} if strict else {})
        )

    def create_many(self, objects: Iterable[Mapping[str, Any]], *, parallel: int = 8) -> None:
        """Create many objects over several connections; the order is not kept."""
        with ThreadPoolExecutor(max_workers=parallel) as pool:
            for _ in pool.map(self.create, objects):
                pass

    def apply(self, obj: Mapping[str, Any]) -> Object:
        """Server-side apply, taking over fields that others own."""
        resource = self.resource(obj["kind"], api_version=obj["apiVersion"])
        metadata = obj["metadata"]
        path = resource.path(namespace=metadata.get("namespace", "default"), name=metadata["name"])
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self._send("PATCH", path, json=obj, params=params, content_type=_APPLY)

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """Read an object; raises KubeRequestError (code 404) if there is none."""
        return self._send("GET", self.resource(kind).path(namespace=namespace, name=name))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Object | None:
        """Read an object, None if there is none."""
        try:
            return self.get(kind, name, namespace=namespace)
        except KubeRequestError as error:
            if error.code == 404:
                return None
            raise

    def list(
        self, kind: str, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """All objects of a kind, of one namespace or (None) of the whole cluster, optionally by labels."""
        resource = self.resource(kind)
        path = resource.path(namespace=namespace)
        items: list[Object] = self._send("GET", path, params=_selector(labels))["items"]
        # In a list the server leaves these out of the items; as single objects they have them.
        return [{"apiVersion": resource.api_version, "kind": kind, **item} for item in items]

    def table(self, kind: str, *, namespace: str) -> Object:
        """The objects of a namespace as the API server prints them, the columns of `-o wide` among them."""
        path = self.resource(kind).path(namespace=namespace)
        return self._send("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")

    def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """JSON merge patch of an object, or of its ``subresource`` ("status", "scale")."""
        path = self.resource(kind).path(namespace=namespace, name=name, subresource=subresource)
        return self._send("PATCH", path, json=patch, content_type=_MERGE)

    def replace(self, obj: Mapping[str, Any]) -> Object:
        """Replace an object by PUT, as controllers with the right to update but not to patch do."""
        metadata = obj["metadata"]
        path = self.resource(obj["kind"]).path(namespace=metadata.get("namespace"), name=metadata["name"])
        return self._send("PUT", path, json=obj)

    def get_under(self, kind: str, name: str, subresource: str, *, namespace: str) -> Object:
        """Read a subresource of an object, such as "scale"."""
        path = self.resource(kind).path(namespace=namespace, name=name, subresource=subresource)
        return self._send("GET", path)

    def signing_keys(self) -> Object:
        """The public keys by which anybody tells tokens of the API server (a JSON Web Key Set)."""
        return self._send("GET", "/openid/v1/jwks", accept="application/jwk-set+json")

    def create_under(
        self, kind: str, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str
    ) -> Object:
        """Create a subresource of an object: "token" of a ServiceAccount, "eviction" or "binding" of a Pod."""
        path = self.resource(kind).path(namespace=namespace, name=name, subresource=subresource)
        return self._send("POST", path, json=body)

    def delete(
        self, kind: str, name: str, *, namespace: str | None = None, grace_seconds: int | None = None
    ) -> None:
        """Delete an object and (in the background) what it owns; that it is already gone is no error."""
        try:
            self._send(
                "DELETE",
                self.resource(kind).path(namespace=namespace, name=name),
                json=_delete_options(grace_seconds),
            )
        except KubeRequestError as error:
            if error.code != 404:
                raise

    def delete_all(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete the objects of a kind: those of ``namespace``, or of a kind that has no namespaces."""
        path = self.resource(kind).path(namespace=namespace)
        self._send("DELETE", path, json=_delete_options(grace_seconds), params=_selector(labels))

    def install_crds(self, folder: Path) -> tuple[str, ...]:
        """Apply all CustomResourceDefinitions in ``folder``, wait until they are served; returns their kinds."""
        definitions = [
            document
            for file in sorted(folder.glob("*.y*ml"))
            for document in documents(file.read_text())
            if document.get("kind") == "CustomResourceDefinition"
        ]
        if not definitions:
            raise ValueError(f"no CustomResourceDefinition in {folder}")
        for definition in definitions:
            self.apply(definition)
        kinds = tuple(definition["spec"]["names"]["kind"] for definition in definitions)
        eventually(
            lambda: all(self.list(kind) is not None for kind in kinds),
            deadline=30,
            describe=lambda: yaml.safe_dump(self.list("CustomResourceDefinition")),
            retry_on=(KubeRequestError, UnknownKindError),
        )
        return kinds

    def resource(self, kind: str, *, api_version: str | None = None) -> Resource:
        """Where objects of a kind are. Without ``api_version`` the server's preferred group and version.

        Raises UnknownKindError if the API server does not serve it.
        """
        if (api_version, kind) not in self._known:
            self._discover()
        try:
            return self._known[api_version, kind]
        except KeyError:
            raise UnknownKindError(
                f"the API server serves no kind {kind} in {api_version or 'any group'}"
            ) from None

    def close(self) -> None:
        """Close the client's connections."""
        self._pool.clear()

    def _discover(self) -> None:
        for root in ("/api", "/apis"):
            for group in self._send("GET", root, accept=_DISCOVERY)["items"]:
                # The preferred version comes first, in a group as among the groups: the first one stays.
                for version in group["versions"]:
                    name = group["metadata"].get("name")
                    api_version = f"{name}/{version['version']}" if name else version["version"]
                    for api_resource in version.get("resources", ()):
                        kind = api_resource.get("responseKind", {}).get("kind", "")
                        resource = Resource(
                            api_version=api_version,
                            plural=api_resource["resource"],
                            namespaced=api_resource["scope"] == "Namespaced",
                        )
                        self._known.setdefault((api_version, kind), resource)
                        self._known.setdefault((None, kind), resource)

    def _send(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        # Uncompressed: on loopback gzip of a long list costs the server more than its transfer.
        headers = {"Content-Type": content_type, "Accept": accept, "Accept-Encoding": "identity"}
        query = f"?{urlencode(params)}" if params else ""
        answer = self._pool.request(
            method,
            f"{self._host}{path}{query}",
            body=None if json is None else _encode(json),
            headers=headers | self._headers,
            timeout=self._timeout,
            retries=_RETRIES,
        )
        self.warnings += [  # each as 299 - "text"
            text.partition('"')[2].removesuffix('"').replace('\\"', '"')
            for text in answer.headers.getlist("Warning")
        ]
        if answer.status >= 300:
            raise KubeRequestError(
                method=method, path=path, code=answer.status, body=answer.data.decode(errors="replace")
            )
        result: Object = msgspec.json.decode(answer.data)
        return result


class UnknownKindError(Exception):
    """A kind that the API server does not serve (its CustomResourceDefinition may be missing)."""


def condition(obj: Mapping[str, Any], kind: str) -> str | None:
    """Status ("True", "False", "Unknown") of an object's condition ``kind``, None if it is not there."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == kind), None)


def _selector(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())} if labels else {}


def _encode(obj: Mapping[str, Any]) -> bytes:
    """As JSON; numbers may be of any size, as in a file that somebody wrote."""
    try:
        return msgspec.json.encode(obj)
    except OverflowError:
        return json.dumps(obj).encode()


def _delete_options(grace_seconds: int | None) -> Object:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options
