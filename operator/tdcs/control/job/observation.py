"""What of the live views a pass over a TrainingJob looks at: its datasets, its Jobs and its pods."""

from collections.abc import Mapping

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import Role, TrainingJob
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.context import Stores
from tdcs.decide.job.observed_job import Observed, job_view, predicted_seconds
from tdcs.kube.apply import belongs
from tdcs.model.job_pods import pod_view
from tdcs.model.kube_objects import Object


def observe(obj: Object, job: TrainingJob, live: Mapping[Role, Object | None], *, stores: Stores) -> Observed:
    """What a pass over a TrainingJob looks at.

    Args:
        obj: the job, as the API server has it.
        job: the same, with the spec that counts.
        live: its Jobs, by role.
        stores: the live views.
    """
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    datasets, present, deleting = {}, set(), set()
    for use in job.spec.datasets:
        raw = stores.datasets.get((namespace, use.name))
        if raw is None:
            continue
        present.add(use.name)
        if raw["metadata"].get("deletionTimestamp"):
            deleting.add(use.name)
            continue
        try:
            datasets[use.name] = Dataset.model_validate(raw)
        except ValidationError:
            continue  # its own status says what is wrong
    own_jobs = {
        role: live_job for role, live_job in live.items() if live_job is not None and belongs(live_job, obj)
    }
    return Observed(
        spec=job.spec,
        status=job.status or TrainingJobStatus(),
        name=name,
        namespace=namespace,
        created=obj["metadata"].get("creationTimestamp", ""),
        predicted=predicted_seconds(obj["metadata"].get("annotations")),
        datasets=datasets,
        generations={
            name: int(stores.datasets[namespace, name]["metadata"].get("generation", 0)) for name in datasets
        },
        present=frozenset(present),
        deleting=frozenset(deleting),
        jobs={role: job_view(own_job) for role, own_job in own_jobs.items()},
        pods=[
            pod_view(pod)
            for (where, _), pod in stores.pods.items()
            if where == namespace
            and pod["metadata"].get("labels", {}).get(names.LABEL_TRAINING_JOB) == name
            and any(belongs(pod, own_job) for own_job in own_jobs.values())
        ],
    )
