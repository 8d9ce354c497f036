"""The PersistentVolumeClaims that a job's own templates name. No pod with one that does not exist is ever placed."""

from collections.abc import Callable, Iterator

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.kube.api import KubeApi
from tdcs.model.kube_resources import PERSISTENT_VOLUME_CLAIMS

RETRY = 10.0
"""Seconds until a claim that does not exist is looked for again: claims are not watched."""


class TemplateClaims:
    """Looks for claims: for each at most once in `RETRY` seconds, however many jobs wait and are looked at."""

    def __init__(self, *, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._answers: dict[tuple[str, str], tuple[float, bool]] = {}

    async def missing(self, *, spec: TrainingJobSpec, namespace: str) -> str:
        """Which claim of the templates does not exist, and what to do, as a sentence; empty when all exist."""
        for name, where in claims_of(spec):
            if not await self._exists(namespace, name):
                return (
                    f"PersistentVolumeClaim {name} of namespace {namespace} does not exist: create it, or correct "
                    f"{where}; it is looked for every {RETRY:g} s"
                )
        return ""

    async def _exists(self, namespace: str, name: str) -> bool:
        now = self._clock()
        cached = self._answers.get((namespace, name))
        if cached is not None and now - cached[0] < RETRY:
            return cached[1]
        exists = await self._api.get(PERSISTENT_VOLUME_CLAIMS, name=name, namespace=namespace) is not None
        self._answers = {key: answer for key, answer in self._answers.items() if now - answer[0] < RETRY}
        self._answers[namespace, name] = (now, exists)
        return exists


def claims_of(spec: TrainingJobSpec) -> Iterator[tuple[str, str]]:
    """The names of the claims, and where in the spec each is named."""
    for role, role_spec in spec.by_role().items():
        for place, volume in enumerate(role_spec.template["spec"].get("volumes") or ()):
            source = volume.get("persistentVolumeClaim")
            if isinstance(source, dict) and source.get("claimName"):
                yield str(source["claimName"]), f"template.spec.volumes[{place}] of role {role}"
