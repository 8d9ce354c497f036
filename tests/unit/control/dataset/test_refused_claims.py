"""The API server refuses the claim of a Dataset: the Dataset says so in the server's words, and its data counts."""

from dataclasses import replace

import pytest
from tests.unit.control.cluster import QUICK, Cluster
from tests.unit.control.dataset.conftest import ZONES, engine_of

from tdcs.api.dataset import Dataset
from tdcs.api.quantities import to_bytes
from tdcs.decide.job.job_phase import why_not_mounted
from tdcs.kube.errors import KubeError, error_class
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    DATASETS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    Resource,
)

KEY = ("n", "pictures")
REFUSALS = {
    "a quota": (
        403,
        (
            'persistentvolumeclaims "pictures" is forbidden: exceeded quota: team, requested: requests.storage=20Mi, '
            "used: requests.storage=0, limited: requests.storage=10Mi"
        ),
    ),
    "a LimitRange": (
        403,
        (
            'persistentvolumeclaims "pictures" is forbidden: maximum storage usage per PersistentVolumeClaim is 10Mi, '
            "but request is 20Mi"
        ),
    ),
    "a policy": (422, "ValidatingAdmissionPolicy 'sizes' denied request: claims have at most 10Mi"),
    "a webhook that cannot be called": (500, 'failed calling webhook "claims.team": connection refused'),
}


def refuse_large_claims(cluster: Cluster, *, code: int, detail: str) -> None:
    """No claim of more than 10 Mi is made."""
    create = cluster.server.create

    async def refusing(resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        large = resource is PERSISTENT_VOLUME_CLAIMS and (
            to_bytes(obj["spec"]["resources"]["requests"]["storage"]) > 10 << 20
        )
        if large:
            kind: type[KubeError] = error_class(code=code, detail=detail)
            name = obj["metadata"]["name"]
            raise kind(
                verb="apply", resource=resource, namespace="n", name=name, code=code, reason="", detail=detail
            )
        return await create(resource, obj=obj, dry_run=dry_run)

    cluster.server.create = refusing  # type: ignore[method-assign]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_claim_is_a_condition_with_the_servers_sentence_and_the_data_counts(
    refusal: str,
) -> None:
    settings = replace(QUICK, survey_seconds=60.0)
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}, settings=settings) as cluster:
        code, detail = REFUSALS[refusal]
        refuse_large_claims(cluster, code=code, detail=detail)
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset()

        await cluster.until(lambda: cluster.condition("Loaded").get("status") == "True")
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "ClaimRefused")

        ready, status = cluster.condition("Ready"), cluster.status()
        assert ready["status"] == "False"
        assert detail in ready["message"]
        assert "spec.claimSize" in ready["message"]
        assert (status["loadedRatio"], status.get("claimName")) == (1.0, None)
        assert sum(cluster.nodes().values()) == sum(cluster.held().values()) > 0
        await cluster.until(lambda: cluster.events("ClaimRefused"))
        assert detail in str(cluster.events("ClaimRefused")[0])
        dataset = Dataset.model_validate(cluster.server.store(DATASETS)[KEY])
        assert detail in why_not_mounted(dataset), "a job that waits for it says why"

        await cluster.change(DATASETS, "pictures", claimSize="1Mi")

        await cluster.until_state("Ready")
        claim = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)[KEY]
        (volume,) = cluster.server.store(PERSISTENT_VOLUMES).values()
        assert claim["spec"]["resources"]["requests"]["storage"] == "1Mi"
        assert volume["spec"]["capacity"]["storage"] == "1Mi", "a volume satisfies its claim"


async def test_a_size_that_changes_later_leaves_the_claim_as_it_is() -> None:
    async with Cluster(engine=engine_of(), nodes={name: {} for name in ZONES}) as cluster:
        await cluster.create_cache()
        await cluster.create_keys()
        await cluster.create_dataset(claimSize=5_000_000)
        await cluster.until_state("Ready")
        before = cluster.server.store(PERSISTENT_VOLUME_CLAIMS)[KEY]["spec"]
        passes = cluster.passes

        await cluster.change(DATASETS, "pictures", claimSize="1Mi")

        await cluster.until(lambda: cluster.passes > passes)
        await cluster.quiet()
        assert cluster.server.store(PERSISTENT_VOLUME_CLAIMS)[KEY]["spec"] == before
        assert before["resources"]["requests"]["storage"] == "5Mi"
