"""The Job and the Secret of the pod that serves a claim.

A Job, so that an evicted pod is made again. The claim owns it: with the claim it goes. It owns the Secret, which the
operator can create and neither read nor change.
"""

import base64
import os
from collections.abc import Mapping

from tdcs.api import names
from tdcs.api.source_uri import parse_source_uri
from tdcs.kube.apply import digest_of
from tdcs.model.cache_engine import Source
from tdcs.model.claim_source import (
    CERTIFICATE_FILE,
    KEY_FILE,
    RUN_AS_GROUP,
    RUN_AS_USER,
    TOKEN_FILE,
    ClaimFolder,
)
from tdcs.model.kube_objects import Object
from tdcs.trust.certificates import KeyPair

MOUNTED_AT = "/claim"
_SECRET_AT = "/etc/tdcs-claim"  # noqa: S105 - a folder
_KEPT_SECONDS = 300
"""So long an ended Job is kept, for people."""
_BACKOFF_LIMIT = 3


def identity_of(where: ClaimFolder, options: Mapping[str, str]) -> str:
    """A digest of what a pod serves, and as whom."""
    return digest_of([*where, options.get(RUN_AS_USER, ""), options.get(RUN_AS_GROUP, "")])


def job(source: Source, where: ClaimFolder, *, name: str, by: str, claim: Object, image: str) -> Object:
    """The Job, suspended: its pod begins once its Secret is there.

    Args:
        source: with its options.
        by: the process that makes it.
        claim: the PersistentVolumeClaim as it is.
        image: of TDCS.
    """
    folder = os.path.join(MOUNTED_AT, parse_source_uri(source.uri).path).rstrip("/")
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: names.COMPONENT_CLAIM_SERVER,
        names.LABEL_SERVED_CLAIM: identity_of(where, source.options),
        names.LABEL_SERVED_BY: by,
    }
    user = int(source.options.get(RUN_AS_USER, names.CACHE_USER))
    group = int(source.options.get(RUN_AS_GROUP, user))
    owner = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": where.claim,
        "uid": claim["metadata"]["uid"],
    }
    probe = {"httpGet": {"path": "/healthz", "port": names.CLAIM_PORT, "scheme": "HTTPS"}}
    container = {
        "name": names.COMPONENT_CLAIM_SERVER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            names.COMPONENT_CLAIM_SERVER,
            f"--folder={folder}",
            f"--secret={_SECRET_AT}",
            f"--port={names.CLAIM_PORT}",
        ],
        "ports": [{"name": "files", "containerPort": names.CLAIM_PORT, "protocol": "TCP"}],
        "readinessProbe": {**probe, "periodSeconds": 2},
        "livenessProbe": {**probe, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "claim", "mountPath": MOUNTED_AT, "readOnly": True},
            {"name": "secret", "mountPath": _SECRET_AT, "readOnly": True},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": where.claim, "readOnly": True}},
            # Any user of the container may read it: the container has one process alone.
            {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o444}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": where.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "suspend": True,
            "backoffLimit": _BACKOFF_LIMIT,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
                ]
            },
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def secret(job: Object, *, token: str, pair: KeyPair) -> Object:
    """The Secret of a Job that was made."""
    metadata = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    data = {TOKEN_FILE: token.encode(), CERTIFICATE_FILE: pair.certificate, KEY_FILE: pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_COMPONENT: names.COMPONENT_CLAIM_SERVER,
            },
            "ownerReferences": [owner],
        },
        "immutable": True,
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
