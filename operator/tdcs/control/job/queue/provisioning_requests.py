"""The ProvisioningRequests of waiting gangs: made, followed, and deleted when nobody waits for them any more."""

from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import Finding, finding, is_true
from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role
from tdcs.control.context import Context
from tdcs.control.job.job_children import (
    CONSUME,
    NOT_BACKED_UP,
    PROVISIONING_CLASS,
    pod_template,
    spec_digest,
)
from tdcs.control.job.queue.turns import Turns
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.job_turn import over_finding
from tdcs.decide.queue.node_requests import OVER, RequestAnswer, RequestState, answer_of
from tdcs.kube.apply import ForeignObjectError, belongs, digest_of, owner_reference
from tdcs.kube.errors import ForbiddenError, InvalidError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import POD_TEMPLATES, PROVISIONING_REQUESTS

LOOK_SECONDS = 10.0
"""A job that asks for nodes looks so often at what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What is known of a job's request.

    Attributes:
        finding: the condition NodesRequested; None: nothing is to be said.
        marks: annotations by which its pods use the nodes that came.
    """

    finding: Finding | None = None
    marks: tuple[tuple[str, str], ...] = ()


class ProvisioningRequests:
    """Asks for the nodes of gangs that the queue says have no room."""

    def __init__(self, *, context: Context, turns: Turns) -> None:
        self._context = context
        self._turns = turns

    async def follow(self, obj: Object, observed: Observed) -> Followed:
        """Ask for nodes, look what came of it, or take the request back, as the queue wants it now."""
        uid = str(obj["metadata"]["uid"])
        turn = self._turns.of(uid)
        if not turn.nodes_since or observed.spec.run_policy.suspend:
            if not is_true(observed.status.conditions, names.NODES_REQUESTED):
                return Followed()
            await self._delete(obj, observed)
            return Followed(finding=over_finding(observed, turn))
        pods = sum(_pods(observed, role) for role in observed.spec.by_role())
        request_text = f"nodes for its {pods} pods are asked for"
        before = Followed(finding=finding(names.NODES_REQUESTED, True, RequestState.REQUESTED, request_text))
        if not is_true(observed.status.conditions, names.NODES_REQUESTED):
            return before  # the status says it first: an operator that is killed in between finds the request again
        try:
            live = await self._ensure(obj, observed)
        except NotFoundError:
            answer = RequestAnswer(
                state=RequestState.FAILED,
                message="this cluster does not know ProvisioningRequests (autoscaling.x-k8s.io/v1): install them, "
                "or set the chart's value operator.nodeProvisioning to Release or Off",
            )
            return await self._over(obj, observed, answer)
        except (ForbiddenError, InvalidError, ForeignObjectError) as error:
            return await self._over(
                obj, observed, RequestAnswer(state=RequestState.FAILED, message=str(error))
            )
        if live is None:
            return before
        answer = answer_of(live)
        waited = seconds_between(turn.nodes_since, self._turns.now())
        limit = self._context.settings.node_wait_seconds
        if answer.state not in {*OVER, RequestState.PROVISIONED} and waited >= limit:
            text = f"no nodes came within {limit} s (operator.nodeWaitSeconds)"
            answer_text = f": {answer.message}" if answer.message else ""
            answer = RequestAnswer(state=RequestState.FAILED, message=f"{text}{answer_text}")
        if answer.state in OVER and not observed.was_admitted:
            return await self._over(obj, observed, answer)
        answer_text = f": {answer.message}" if answer.message else ""
        requested_finding = finding(
            names.NODES_REQUESTED,
            True,
            answer.state,
            f"{request_text} (ProvisioningRequest {_name(observed.name)}){answer_text}",
        )
        if answer.state is not RequestState.PROVISIONED:
            return Followed(finding=requested_finding)
        marks = (
            (CONSUME, _name(observed.name)),
            (PROVISIONING_CLASS, self._context.settings.provisioning_class_name),
        )
        return Followed(finding=requested_finding, marks=marks)

    async def end(self, obj: Object, observed: Observed) -> None:
        """The job has ended, or is not this queue's any more."""
        if is_true(observed.status.conditions, names.NODES_REQUESTED):
            await self._delete(obj, observed)

    async def _ensure(self, obj: Object, observed: Observed) -> Object | None:
        """The request; None while one of an earlier spec of the job goes."""
        context, namespace = self._context, observed.namespace
        wanted_request, templates = self._wanted(obj, observed)
        live = await context.api.get(PROVISIONING_REQUESTS, name=_name(observed.name), namespace=namespace)
        if live is not None and belongs(live, obj):
            digest = names.ANNOTATION_SPEC_DIGEST
            marks = live["metadata"].get("annotations") or {}
            if (
                marks.get(digest) == wanted_request["metadata"]["annotations"][digest]
                or observed.was_admitted
            ):
                return live
            await self._delete(obj, observed)  # a request never changes
            return None
        for template in templates:
            await context.applier.apply(POD_TEMPLATES, wanted=template, live=None, owner=obj)
        return await context.applier.apply(PROVISIONING_REQUESTS, wanted=wanted_request, live=live, owner=obj)

    def _wanted(self, obj: Object, observed: Observed) -> tuple[Object, list[Object]]:
        """The request, and the templates of the pods that it names."""
        settings, name, namespace = self._context.settings, observed.name, observed.namespace
        roles = observed.spec.by_role()
        metadata = {
            "namespace": namespace,
            "labels": {
                NOT_BACKED_UP: "true",
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_TRAINING_JOB: name,
            },
            "ownerReferences": [owner_reference(obj)],
        }
        templates = [
            {
                "apiVersion": POD_TEMPLATES.api_version,
                "kind": POD_TEMPLATES.kind,
                "metadata": {**metadata, "name": names.role_job_name(job=name, role=role)},
                "template": pod_template(
                    owner=obj, spec=observed.spec, role=role, scheduler_name=settings.scheduler_name
                ),
            }
            for role in roles
        ]
        sets = [
            {
                "podTemplateRef": {"name": names.role_job_name(job=name, role=role)},
                "count": _pods(observed, role),
            }
            for role in roles
        ]
        digest = digest_of(
            [
                sets,
                settings.provisioning_class_name,
                [spec_digest(observed.spec, role) for role in roles],
            ]
        )
        request = {
            "apiVersion": PROVISIONING_REQUESTS.api_version,
            "kind": PROVISIONING_REQUESTS.kind,
            "metadata": {
                **metadata,
                "name": _name(name),
                "annotations": {names.ANNOTATION_SPEC_DIGEST: digest},
            },
            "spec": {"provisioningClassName": settings.provisioning_class_name, "podSets": sets},
        }
        return request, templates

    async def _over(self, obj: Object, observed: Observed, answer: RequestAnswer) -> Followed:
        """Nothing more comes of the request: the job asks again after a pause, and waits for room all the while."""
        await self._delete(obj, observed)
        uid = str(obj["metadata"]["uid"])
        self._turns.rest_from_asking(
            uid, reason=answer.state, message=answer.message.rstrip(".") or "no nodes came"
        )
        return Followed(finding=over_finding(observed, self._turns.of(uid)))

    async def _delete(self, obj: Object, observed: Observed) -> None:
        """Delete the request and its templates, where they are the job's own."""
        api, namespace = self._context.api, observed.namespace
        try:
            live = await api.get(PROVISIONING_REQUESTS, name=_name(observed.name), namespace=namespace)
            if live is None or not belongs(live, obj):
                return
            await api.delete(
                PROVISIONING_REQUESTS,
                name=_name(observed.name),
                namespace=namespace,
                uid=live["metadata"]["uid"],
            )
            for role in observed.spec.by_role():
                await api.delete(
                    POD_TEMPLATES, name=names.role_job_name(job=observed.name, role=role), namespace=namespace
                )
        except (NotFoundError, ForbiddenError):
            return  # the definition is gone, or the rights are: the garbage collector deletes them with the job


def _pods(observed: Observed, role: Role) -> int:
    """How many pods of a role the job starts with: an elastic one with as few workers as it allows."""
    elastic = observed.spec.elastic if role == "Worker" and observed.spec.is_elastic_gang else None
    return observed.spec.by_role()[role].replicas if elastic is None else elastic.min_replicas


def _name(job: str) -> str:
    return names.dns_label(f"trainingjob-{job}")
