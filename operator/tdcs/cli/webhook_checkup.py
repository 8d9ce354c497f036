"""Whether the webhooks that are asked about a namespace's pods can answer: those of TDCS and of others."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from cryptography import x509

from tdcs.api import names
from tdcs.api.namespace_selector import meets
from tdcs.model.kube_objects import Object

Service = tuple[str, str]
"""Its namespace and its name."""

Said = tuple[Literal["ok", "lacks", "note", "unknown"], str]
"""What was found, and the sentence about it."""

PART_OF: Final = "app.kubernetes.io/part-of"

_NAME_OF_NAMESPACE: Final = "kubernetes.io/metadata.name"

_POD_LABELS: Final = {names.LABEL_TRAINING_JOB: "job"}
"""Of the pods of a job, as far as they are known before its template is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """What was read of webhooks. None: it may not be read.

    Attributes:
        configurations: the webhook configurations of the cluster, mutating and validating.
        services: those of TDCS's namespace.
        addresses: how many endpoints of each Service that webhooks name are ready; of one that is not there: 0.
    """

    configurations: Sequence[Object] | None = None
    services: Sequence[Object] | None = None
    addresses: Mapping[Service, int | None] = field(default_factory=dict)


def asked_services(
    configurations: Sequence[Object], *, namespace: str, labels: Mapping[str, str] | None
) -> frozenset[Service]:
    """The Services behind webhooks of TDCS, and behind those that are asked about the namespace's pods."""
    return frozenset(
        service
        for configuration in configurations
        for hook in _hooks(configuration)
        if _is_own(configuration) or _holds_pods(hook, namespace=namespace, labels=labels)
        if (service := _service(hook)) is not None
    )


def webhook_checkup(
    webhooks: Webhooks, *, namespace: str, labels: Mapping[str, str] | None, now: str
) -> Iterator[Said]:
    """What keeps webhooks from answering.

    Args:
        labels: those of the namespace; None: they are unknown.
        now: the time, as in Kubernetes objects.
    """
    if webhooks.configurations is None:
        yield (
            "unknown",
            (
                "whether webhooks answer is unknown: you may not list mutatingwebhookconfigurations and "
                "validatingwebhookconfigurations.admissionregistration.k8s.io"
            ),
        )
        return
    problems = [*_missing(webhooks), *_faults(webhooks, namespace=namespace, labels=labels, now=now)]
    yield from problems
    if not problems:
        yield "ok", "the webhooks that are asked about pods of the namespace can answer"


def _missing(webhooks: Webhooks) -> Iterator[Said]:
    """The Service of TDCS's webhook, and no configuration that asks it: the two are of one release."""
    called = {
        _service(hook) for configuration in webhooks.configurations or () for hook in _hooks(configuration)
    }
    for service in webhooks.services or ():
        metadata = service["metadata"]
        ports = {port.get("name") for port in (service.get("spec") or {}).get("ports") or ()}
        key = (str(metadata.get("namespace") or names.SYSTEM_NAMESPACE), str(metadata["name"]))
        if _is_own(service) and "webhook" in ports and key not in called:
            yield (
                "lacks",
                (
                    f"no webhook configuration asks Service {'/'.join(key)}, so pods are not placed by their data: "
                    "run helm upgrade with the release's values"
                ),
            )


def _faults(
    webhooks: Webhooks, *, namespace: str, labels: Mapping[str, str] | None, now: str
) -> Iterator[Said]:
    for configuration in webhooks.configurations or ():
        own = _is_own(configuration)
        for hook in _hooks(configuration):
            if not own and not _holds_pods(hook, namespace=namespace, labels=labels):
                continue
            name = f"webhook {hook.get('name')} ({configuration['metadata']['name']})"
            for fault, remedy in _reasons(webhooks, hook, own=own, now=now):
                if remedy is None:
                    yield "unknown", f"whether {name} answers is unknown: {fault}"
                elif own:
                    yield "lacks", f"{name} of TDCS cannot answer: {fault}; {remedy}"
                elif hook.get("matchConditions") or labels is None:
                    # Its conditions are CEL, which only the API server evaluates.
                    yield (
                        "note",
                        f"{name} cannot answer, and may keep pods from being made: {fault}; {remedy}",
                    )
                else:
                    yield "lacks", f"{name} keeps pods from being made: {fault}; {remedy}"


def _reasons(seen: Webhooks, hook: Object, *, own: bool, now: str) -> Iterator[tuple[str, str | None]]:
    """Why a webhook cannot answer, and what to do; nothing to do: it is not known."""
    service = _service(hook)
    if service is not None:
        ready = seen.addresses.get(service)
        place = "/".join(service)
        if ready is None:
            yield f"you may not list endpointslices in {service[0]}", None
        elif ready == 0:
            yield f"no endpoint of Service {place} is ready", f"see kubectl -n {service[0]} get pods"
    until = expiry(str((hook.get("clientConfig") or {}).get("caBundle") or ""))
    if until is not None and until < datetime.fromisoformat(now):
        remedy = (
            f"delete Secret {'/'.join(service or ())} and run helm upgrade with the release's values"
            if own
            else "ask its owner"
        )
        yield f"its caBundle expired at {until:%Y-%m-%d}", remedy


def expiry(bundle: str) -> datetime | None:
    """When the last certificate of a caBundle expires; None: there is none, or none can be read."""
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except (ValueError, binascii.Error):
        return None
    return max(one.not_valid_after_utc for one in certificates)


def ready_endpoints(slices: Iterable[Object]) -> int:
    """How many endpoints of a Service's EndpointSlices are asked."""
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for one in slices
        for endpoint in one.get("endpoints") or ()
    )


def _hooks(configuration: Object) -> Sequence[Object]:
    return configuration.get("webhooks") or ()


def _is_own(obj: Object) -> bool:
    return (obj["metadata"].get("labels") or {}).get(PART_OF) == "tdcs"


def _service(hook: Object) -> Service | None:
    service = (hook.get("clientConfig") or {}).get("service")
    return None if service is None else (str(service.get("namespace")), str(service.get("name")))


def _holds_pods(hook: Object, *, namespace: str, labels: Mapping[str, str] | None) -> bool:
    """Whether pods of the namespace are refused while the webhook does not answer. Unknown labels count as met."""
    known = {_NAME_OF_NAMESPACE: namespace, **(labels or {})}
    return (
        (hook.get("failurePolicy") or "Fail") == "Fail"
        and any(map(_takes_new_pods, hook.get("rules") or ()))
        and _selects(hook.get("namespaceSelector"), known, is_whole=labels is not None)
        and _selects(hook.get("objectSelector"), _POD_LABELS, is_whole=True)
    )


def _takes_new_pods(rule: Object) -> bool:
    def has(field_: str, *wanted: str) -> bool:
        return not set(wanted).isdisjoint(rule.get(field_) or ())

    return (
        has("operations", "CREATE", "*")
        and has("apiGroups", "", "*")
        and has("apiVersions", "v1", "*")
        and has("resources", "pods", "*", "*/*")
        and rule.get("scope") != "Cluster"
    )


def _selects(selector: Any, labels: Mapping[str, str], *, is_whole: bool) -> bool:
    """Whether a label selector selects; of labels that are not all known, only those that are count."""
    terms = [
        *(
            {"key": key, "operator": "In", "values": [value]}
            for key, value in ((selector or {}).get("matchLabels") or {}).items()
        ),
        *((selector or {}).get("matchExpressions") or ()),
    ]
    return all(meets(labels, term) for term in terms if is_whole or term["key"] in labels)
