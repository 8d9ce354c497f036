"""The PersistentVolumeClaims that a job's own templates name. No pod with one that does not exist is ever placed."""

from collections.abc import Iterator

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.kube.api import KubeApi
from tdcs.kube.resources import PERSISTENT_VOLUME_CLAIMS

RETRY = 10.0
"""Seconds until a claim that does not exist is looked for again: claims are not watched."""


async def missing_claim(api: KubeApi, *, spec: TrainingJobSpec, namespace: str) -> str:
    """Which claim of the templates does not exist, and what to do, as a sentence; empty when all exist."""
    known: set[str] = set()
    for name, where in claims_of(spec):
        if name in known:
            continue
        if await api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace) is None:
            return (
                f"PersistentVolumeClaim {name} of namespace {namespace} does not exist: create it, or correct {where}; "
                f"it is looked for every {RETRY:g} s"
            )
        known.add(name)
    return ""


def claims_of(spec: TrainingJobSpec) -> Iterator[tuple[str, str]]:
    """The names of the claims, and where in the spec each is named."""
    for role, each in spec.by_role().items():
        for place, volume in enumerate(each.template["spec"].get("volumes") or ()):
            source = volume.get("persistentVolumeClaim")
            if isinstance(source, dict) and source.get("claimName"):
                yield str(source["claimName"]), f"template.spec.volumes[{place}] of role {role}"
