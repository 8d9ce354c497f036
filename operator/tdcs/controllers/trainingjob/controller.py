"""One pass over a TrainingJob: observe, plan, apply, report."""

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.base import Model
from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import TrainingJob, TrainingJobStatus
from tdcs.controllers import status
from tdcs.controllers.clock import seconds_between
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.invalid import explain
from tdcs.controllers.trainingjob import children, plan
from tdcs.controllers.trainingjob.plan import Observed, PodView
from tdcs.kube.api import Object
from tdcs.kube.apply import ForeignObjectError, belongs
from tdcs.kube.errors import ForbiddenError, InvalidError
from tdcs.kube.resources import JOBS, SERVICES, TRAINING_JOBS

REFUSED_RETRY = 30.0
"""Seconds until a child that the server refused (a quota, a policy) is tried again."""


class TrainingJobController:
    """Keeps the children of every TrainingJob, and reports where its pods run."""

    def __init__(self, *, context: Context) -> None:
        self._context = context

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.api.get(TRAINING_JOBS, name=key.name, namespace=key.namespace)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None  # the garbage collector deletes the children
        try:
            job = TrainingJob.model_validate(obj)
        except ValidationError as error:
            # Whatever the status holds may be what does not parse: it is replaced.
            found = finding(names.ADMITTED, False, "InvalidSpec", explain(error))
            await self._publish(obj, TrainingJobStatus(state="Waiting"), [found])
            return None
        live = self._context.stores.jobs.get((key.namespace, names.worker_job_name(job=key.name)))
        seen = self._observe(obj, job, live)
        if seen.ended:
            return await self._expire(obj, seen)
        decision = plan.admission(seen)
        try:
            await self._apply(obj, seen, live, suspended=not decision.admitted)
        except (ForeignObjectError, InvalidError, ForbiddenError) as error:
            reason = "NameTaken" if isinstance(error, ForeignObjectError) else "ChildRefused"
            refused = finding(names.ADMITTED, False, reason, str(error))
            await self._publish(obj, seen.known.model_copy(update={"state": "Waiting"}), [refused])
            return REFUSED_RETRY
        state = plan.state_of(seen, decision)
        wanted = plan.status_of(seen, decision=decision, state=state, now=self._context.now())
        await self._publish(obj, wanted, plan.findings_of(seen, decision))
        # A job that has just ended is looked at once more, which then counts its time to live.
        return 0.0 if wanted.completion_time is not None else None

    def _observe(self, obj: Object, job: TrainingJob, live: Object | None) -> Observed:
        stores, namespace = self._context.stores, obj["metadata"]["namespace"]
        datasets = {}
        for use in job.spec.datasets:
            raw = stores.datasets.get((namespace, use.name))
            if raw is None or raw["metadata"].get("deletionTimestamp"):
                continue
            try:
                datasets[use.name] = Dataset.model_validate(raw)
            except ValidationError:
                continue  # its own status says what is wrong
        own = live if live is not None and belongs(live, obj) else None
        return Observed(
            spec=job.spec,
            known=job.status or TrainingJobStatus(),
            datasets=datasets,
            job=plan.job_view(own),
            pods=[
                _pod_view(pod)
                for (where, _), pod in stores.pods.items()
                if where == namespace
                and pod["metadata"].get("labels", {}).get(names.LABEL_TRAINING_JOB) == obj["metadata"]["name"]
                and pod["spec"].get("nodeName")
                and own is not None
                and belongs(pod, own)
            ],
        )

    async def _apply(self, obj: Object, seen: Observed, live: Object | None, *, suspended: bool) -> None:
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        context = self._context
        service = await context.api.get(SERVICES, name=name, namespace=namespace)
        await context.applier.apply(SERVICES, wanted=children.service(owner=obj), live=service, owner=obj)
        if seen.job.finished:
            return  # the Job is over: nothing in it matters any more
        if live is None:
            # The view may lag behind what an earlier pass made, or behind a stranger's Job of that name.
            job_name = names.worker_job_name(job=name)
            live = await context.api.get(JOBS, name=job_name, namespace=namespace)
        wanted = children.job(
            owner=obj,
            spec=seen.spec,
            suspended=suspended,
            scheduler_name=children.scheduler_for(live=live, configured=context.settings.scheduler_name),
        )
        await context.applier.apply(JOBS, wanted=wanted, live=live, owner=obj)

    async def _expire(self, obj: Object, seen: Observed) -> float | None:
        """Delete a job that ended, once its time to live is over."""
        ttl, ended = seen.spec.run_policy.ttl_seconds_after_finished, seen.known.completion_time
        if ttl is None or ended is None:
            return None
        left = ttl - seconds_between(ended, self._context.now())
        if left > 0:
            return left
        metadata = obj["metadata"]
        await self._context.api.delete(
            TRAINING_JOBS, name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
        )
        return None

    async def _publish(self, obj: Object, wanted: Model, findings: list[Finding]) -> None:
        await status.publish(
            context=self._context, resource=TRAINING_JOBS, obj=obj, status=wanted, findings=findings
        )


def _pod_view(pod: Object) -> PodView:
    metadata = pod["metadata"]
    return PodView(
        name=metadata["name"],
        node=pod["spec"]["nodeName"],
        index=metadata.get("annotations", {}).get(names.ANNOTATION_COMPLETION_INDEX, metadata["name"]),
        created=metadata.get("creationTimestamp", ""),
    )
