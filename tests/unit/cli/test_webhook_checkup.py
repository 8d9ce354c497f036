"""`tdcs doctor` says which webhooks cannot answer, and so keep pods of a namespace from being made or placed."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.kube.api_stand_in import ApiStandIn

from tdcs.cli.main import main

OWN = {"app.kubernetes.io/part-of": "tdcs"}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def bundle(*, ends: timedelta) -> str:
    """A caBundle with an authority that expires so long from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    end = datetime.now(UTC) + ends
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=end - timedelta(days=100),
        not_valid_after=end,
    )
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


WELL = bundle(ends=timedelta(days=9))


def configuration(
    *, labels: dict[str, str] | None = None, ca: str = WELL, service: str = "webhook", **hook: Any
) -> dict[str, Any]:
    client = {"service": {"name": service, "namespace": "tdcs-system"}, "caBundle": ca}
    return {
        "metadata": {"name": "asks", "labels": labels or {}},
        "webhooks": [{"name": "pods.example.com", "clientConfig": client, "rules": [PODS], **hook}],
    }


def slices(*, ready: bool = True, service: str = "webhook") -> list[dict[str, Any]]:
    metadata = {
        "name": f"{service}-x",
        "namespace": "tdcs-system",
        "labels": {"kubernetes.io/service-name": service},
    }
    return [{"metadata": metadata, "endpoints": [{"conditions": {"ready": ready}}]}]


def service(*, name: str = "webhook") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "tdcs-system", "labels": OWN}
    return {"metadata": metadata, "spec": {"ports": [{"name": "webhook"}]}}


def doctor(folder: Path, *, forbidden: frozenset[str] = frozenset(), **objects: Any) -> str:
    namespace = {"metadata": {"name": "team", "labels": {"team": "vision"}}}
    with ApiStandIn({"namespaces": [namespace], **objects}, forbidden=forbidden) as api:
        argv = ["doctor", "-n", "team", "--kubeconfig", str(api.kubeconfig(folder))]
        return CliRunner().invoke(main, argv, catch_exceptions=False).output


LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a configuration of TDCS": (
        {"services": [service()], "endpointslices": slices()},
        "lacks: no webhook configuration asks Service tdcs-system/webhook, so pods are not placed by their data",
    ),
    "endpoints of TDCS's own": (
        {
            "mutatingwebhookconfigurations": [configuration(labels=OWN, failurePolicy="Ignore")],
            "endpointslices": slices(ready=False),
        },
        (
            "lacks: webhook pods.example.com (asks) of TDCS cannot answer: no endpoint of Service "
            "tdcs-system/webhook is ready"
        ),
    ),
    "a certificate that has not expired": (
        {
            "mutatingwebhookconfigurations": [configuration(labels=OWN, ca=bundle(ends=-timedelta(days=1)))],
            "endpointslices": slices(),
        },
        "webhook pods.example.com (asks) of TDCS cannot answer: its caBundle expired at",
    ),
    "endpoints of a foreign one": (
        {
            "mutatingwebhookconfigurations": [
                configuration(namespaceSelector={"matchLabels": {"team": "vision"}})
            ]
        },
        "lacks: webhook pods.example.com (asks) keeps pods from being made: no endpoint of Service",
    ),
    "endpoints of a validating one": (
        {"validatingwebhookconfigurations": [configuration()]},
        "lacks: webhook pods.example.com (asks) keeps pods from being made: no endpoint of Service",
    ),
    "perhaps: only the API server knows its conditions": (
        {"validatingwebhookconfigurations": [configuration(matchConditions=[{"name": "some"}])]},
        "note: webhook pods.example.com (asks) cannot answer, and may keep pods from being made",
    ),
}


@pytest.mark.parametrize("case", LACKS)
def test_a_webhook_that_cannot_answer_is_named(case: str, tmp_path: Path) -> None:
    objects, sentence = LACKS[case]
    assert sentence in doctor(tmp_path, **objects)


WELLS: dict[str, dict[str, Any]] = {
    "it is ignored": {"failurePolicy": "Ignore"},
    "of another namespace": {"namespaceSelector": {"matchLabels": {"team": "sound"}}},
    "not of this namespace": {
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["team"]}
            ]
        }
    },
    "of other objects": {"rules": [{**PODS, "resources": ["secrets"]}]},
    "of what is deleted": {"rules": [{**PODS, "operations": ["DELETE"]}]},
    "of pods with a label": {"objectSelector": {"matchLabels": {"inject": "true"}}},
}


@pytest.mark.parametrize("case", WELLS)
def test_a_webhook_that_holds_none_of_the_pods_is_not_named(case: str, tmp_path: Path) -> None:
    output = doctor(tmp_path, mutatingwebhookconfigurations=[configuration(**WELLS[case])])
    assert "ok: the webhooks that are asked about pods of the namespace can answer" in output


def test_what_may_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    output = doctor(tmp_path, forbidden=frozenset({"mutatingwebhookconfigurations"}))
    assert "unknown: whether webhooks answer is unknown: you may not list" in output
    output = doctor(
        tmp_path,
        forbidden=frozenset({"endpointslices"}),
        mutatingwebhookconfigurations=[configuration()],
    )
    assert "unknown: whether webhook pods.example.com (asks) answers is unknown: you may not list" in output
