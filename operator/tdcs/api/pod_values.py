"""What fields of a pod may hold, as rules for the API server: each says at `kubectl apply` what else would be said when
the pods are made.

Of each field the rule that is the same in all versions of Kubernetes; what newer ones may allow is left to them. Rules,
not minimums and enumerations: next to an error of these the API server adds that it did not look at the rules.
"""

from collections.abc import Mapping
from typing import Any, Final

from tdcs.api.base import (
    LABEL_KEY,
    LABEL_PATTERN,
    LABEL_VALUE_PATTERN,
    NO_LABEL_KEY,
    OBJECT_NAME_PATTERN,
    rule,
    rules,
)

Schema = Mapping[str, Any]

_NAME = rule(
    f"self == '' || self.matches('{OBJECT_NAME_PATTERN}')",
    "must be a name of lower-case letters, digits, '-' and '.'",
)
_LABEL = rule(
    f"self == '' || self.matches('{LABEL_PATTERN}')", "must be of lower-case letters, digits and '-'"
)


def _number(least: int, most: int | None = None, *, prefix: str = "must be") -> dict[str, Any]:
    if most is None:
        return rules(rule(f"self >= {least}", f"{prefix} {least} or more"))
    return rules(rule(f"self >= {least} && self <= {most}", f"{prefix} between {least} and {most}"))


def _word(*values: str) -> dict[str, Any]:
    """One of a few words, or none."""
    listed = ", ".join(f"'{value}'" for value in ("", *values))
    return {
        "maxLength": 64,
        **rules(rule(f"self in [{listed}]", f"must be {', '.join(values[:-1])} or {values[-1]}")),
    }


def _name(*name_rules: dict[str, str], limit: int = 253) -> dict[str, Any]:
    return {"maxLength": limit, **rules(*name_rules)}


def _count_of(*fields: str) -> str:
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields)


def _one_of_fields(*fields: str) -> dict[str, str]:
    return rule(f"{_count_of(*fields)} == 1", f"must have one of {', '.join(fields[:-1])} and {fields[-1]}")


_PORT = _number(1, 65535, prefix="must be a port, a number")
_MODE = _number(0, 0o777, prefix="must be a mode, in YAML an octal number up to 0777 or a number")
_ID = _number(0)
_WEIGHT = _number(1, 100)
_TERMS: Mapping[str, Schema] = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"maxItems": 64},
    "preferredDuringSchedulingIgnoredDuringExecution": {"maxItems": 64},
}
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_VOLUME_SOURCES = (
    *(
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "configMap",
        "csi",
        "downwardAPI",
    ),
    *(
        "emptyDir",
        "ephemeral",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "glusterfs",
        "hostPath",
    ),
    *(
        "image",
        "iscsi",
        "nfs",
        "persistentVolumeClaim",
        "photonPersistentDisk",
        "portworxVolume",
        "projected",
    ),
    *("quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume"),
)

VALUES: Final[Mapping[str, Mapping[str, Schema]]] = {
    "ContainerPort": {
        "containerPort": _PORT,
        "hostPort": _number(0, 65535, prefix="must be a port, a number"),
        "protocol": _word("TCP", "UDP", "SCTP"),
        "name": _name(
            rule(
                "self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.matches('[a-z]')",
                "must be of lower-case letters, digits and '-', 15 at most, with a letter among them",
            ),
            limit=15,
        ),
    },
    "Container": {
        "ports": {"maxItems": 64},
        "envFrom": {"maxItems": 64},
        "terminationMessagePolicy": _word("File", "FallbackToLogsOnError"),
        "restartPolicy": _word("Always", "OnFailure", "Never"),
    },
    "Probe": {
        "initialDelaySeconds": _number(0),
        "timeoutSeconds": _number(1),
        "periodSeconds": _number(1),
        "successThreshold": _number(1),
        "failureThreshold": _number(1),
        "terminationGracePeriodSeconds": _number(1),
    },
    "SecurityContext": {"runAsUser": _ID, "runAsGroup": _ID},
    "PodSecurityContext": {"runAsUser": _ID, "runAsGroup": _ID, "fsGroup": _ID},
    "SeccompProfile": {"type": _word("Localhost", "RuntimeDefault", "Unconfined")},
    "AppArmorProfile": {"type": _word("Localhost", "RuntimeDefault", "Unconfined")},
    "EmptyDirVolumeSource": {
        "medium": {
            "maxLength": 64,
            **rules(
                rule("self in ['', 'Memory'] || self.startsWith('HugePages')", "must be Memory or left out")
            ),
        }
    },
    "HostPathVolumeSource": {
        "path": {
            "maxLength": 4096,
            **rules(rule("!('/' + self + '/').contains('/../')", "must be a folder without '..'")),
        },
        "type": _word(
            "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"
        ),
    },
    "ConfigMapVolumeSource": {"defaultMode": _MODE},
    "SecretVolumeSource": {"defaultMode": _MODE},
    "DownwardAPIVolumeSource": {"defaultMode": _MODE},
    "ProjectedVolumeSource": {"defaultMode": _MODE},
    "ObjectFieldSelector": {"fieldPath": {"maxLength": 512}},
    "PodAffinity": _TERMS,
    "PodAntiAffinity": _TERMS,
    "PreferredSchedulingTerm": {"weight": _WEIGHT},
    "WeightedPodAffinityTerm": {"weight": _WEIGHT},
    "TopologySpreadConstraint": {
        "maxSkew": _number(1),
        "whenUnsatisfiable": _word("DoNotSchedule", "ScheduleAnyway"),
    },
    "HostAlias": {"ip": {"maxLength": 64, **rules(rule("isIP(self)", "must be an IP address"))}},
    "PodOS": {"name": _word("linux", "windows")},
    "PodSchedulingGate": {"name": _name(rule(LABEL_KEY, NO_LABEL_KEY), limit=317)},
    "PodSpec": {
        "hostAliases": {"maxItems": 256},
        "hostname": _name(_LABEL, limit=63),
        "subdomain": _name(_LABEL, limit=63),
        "serviceAccountName": _name(_NAME),
        "schedulerName": _name(_NAME),
        "nodeName": _name(_NAME),
        "runtimeClassName": _name(_NAME),
        "preemptionPolicy": _word("Never", "PreemptLowerPriority"),
        "schedulingGates": {"maxItems": 16},
        "topologySpreadConstraints": {"maxItems": 64},
        "imagePullSecrets": {"maxItems": 64},
    },
    "Toleration": {
        "key": _name(rule(f"self == '' || {LABEL_KEY}", NO_LABEL_KEY), limit=317),
        "value": _name(
            rule(
                f"self.matches('{LABEL_VALUE_PATTERN}')",
                "must be of letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
            ),
            limit=63,
        ),
    },
    "VolumeMount": {
        "mountPath": {
            "maxLength": 4096,
            **rules(rule("self != ''", "must be a folder")),
        }
    },
}
"""Of fields by the type that has them: more of their schemas."""

OBJECTS: Final[Mapping[str, tuple[dict[str, str], ...]]] = {
    "EnvVar": (
        rule(
            "!has(self.value) || self.value == '' || !has(self.valueFrom)",
            "has a value and valueFrom: remove one of the two",
        ),
    ),
    "EnvVarSource": (_one_of_fields("configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"),),
    "EnvFromSource": (_one_of_fields("configMapRef", "secretRef"),),
    "Probe": (_one_of_fields(*_HANDLERS),),
    "LifecycleHandler": (_one_of_fields("exec", "httpGet", "sleep", "tcpSocket"),),
    "Volume": (rule(f"{_count_of(*_VOLUME_SOURCES)} <= 1", "has two sources at once: keep one of them"),),
    "NodeSelector": (
        rule(
            "has(self.nodeSelectorTerms) && self.nodeSelectorTerms.size() > 0",
            "needs a term in nodeSelectorTerms",
        ),
    ),
    "NodeSelectorRequirement": (
        rule(
            "!(self.operator in ['In', 'NotIn']) || has(self.values) && self.values.size() > 0",
            "operators In and NotIn need values",
        ),
        rule(
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
            "operators Exists and DoesNotExist compare no values: remove them",
        ),
        rule(
            "!(self.operator in ['Gt', 'Lt']) || has(self.values) && self.values.size() == 1",
            "operators Gt and Lt compare one value, a whole number",
        ),
    ),
    "PodSpec": (
        rule(
            "!has(self.dnsPolicy) || self.dnsPolicy != 'None' || has(self.dnsConfig) && "
            "has(self.dnsConfig.nameservers) && self.dnsConfig.nameservers.size() > 0",
            "dnsPolicy None needs dnsConfig.nameservers",
        ),
        rule(
            "!has(self.initContainers) || self.initContainers.all(one, self.containers.all(other, other.name != "
            "one.name))",
            "an init container has the name of a container: give each its own",
        ),
    ),
}
"""Rules of objects, by their types."""

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "SecretVolumeSource": ("secretName",),
    "ConfigMapVolumeSource": ("name",),
    "ConfigMapEnvSource": ("name",),
    "SecretEnvSource": ("name",),
    "ConfigMapKeySelector": ("name",),
    "SecretKeySelector": ("name",),
    "LocalObjectReference": ("name",),
}
"""Fields that the client does not call required, and without which nothing is named."""

WITHHELD: Final[Mapping[str, tuple[str, ...]]] = {"PodSpec": ("ephemeralContainers",)}
"""Fields that a pod template may not have: debug containers come to pods that run."""
