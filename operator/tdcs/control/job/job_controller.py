"""One pass over a TrainingJob: observe, plan, apply, report."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import finding
from tdcs.api.trainingjob import Role, TrainingJob
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset.access import template_claims
from tdcs.control.job import considered_nodes, data_meetings, ended_job
from tdcs.control.job.data_meetings import DataMeetings
from tdcs.control.job.ended_job import is_settled
from tdcs.control.job.framework_rendezvous import too_long
from tdcs.control.job.job_reporter import JobReporter
from tdcs.control.job.job_restarts import EARLIER_JOBS_CHECK, JobRestarts
from tdcs.control.job.observation import observe
from tdcs.control.job.pod_events import PodEvents
from tdcs.control.job.queue.admitter import Admitter, Turn
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.job.queue.growth_hold import LOOK_SECONDS, GrowthHold
from tdcs.control.job.refusal_message import child_refusal_of
from tdcs.control.job.role_jobs import RoleJobs
from tdcs.control.job.stalled_reads import DataStalls, status_of_stall
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job import node_failures, role_order
from tdcs.decide.job.ended_mark import (
    earlier_end,
    ended_before,
    ended_mark,
    has_mark,
    is_of_another_life,
    queues_again,
)
from tdcs.decide.job.gpu_warning import NO_GPUS_ASKED, gpu_warning
from tdcs.decide.job.job_headline import running
from tdcs.decide.job.job_phase import Decision, JobOutcome, seconds_to_live
from tdcs.decide.job.job_restart import JobRestart, restart_of, restart_pause
from tdcs.decide.job.left_sidecars import next_look, without_sidecars
from tdcs.decide.job.node_failures import avoiding
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.template_mounts import mount_problem
from tdcs.decide.kueue.pod_set_updates import PodSetConflictError
from tdcs.decide.queue.pod_admission import Reason
from tdcs.kube.apply import ForeignObjectError, PredecessorError
from tdcs.kube.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from tdcs.model.humanize import explain_invalid
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import TRAINING_JOBS

_log = logging.getLogger(__name__)

SERVER_ERROR = 500
"""An HTTP status from which on the server, or a webhook that it asks, has failed at a request."""

REFUSED_RETRY = 30.0
"""Seconds until a child that the server refused (a quota, a policy) is tried again."""

GOING_RETRY = 1.0
"""Seconds until it is looked whether what an earlier job of the same name has left is gone."""


@dataclass(frozen=True, slots=True)
class _End:
    """The pass ends. `again`: seconds until the next one; None when only a change calls for it."""

    again: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """No Job is made and no pod begins: those of an earlier try are still there, or the restart has a pause before it.
    What takes its place from the job, or stops it, does so at once.

    Attributes:
        again: seconds until it is looked again.
        restart: what the pause is before; None when earlier Jobs are waited for.
        going: the roles of these Jobs.
    """

    again: float
    restart: JobRestart | None = None
    going: Collection[Role] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Acted:
    """What a pass has done for a job that has not ended before.

    Attributes:
        hold: what its Jobs wait for; None: nothing.
        workers_made: how many workers its Job makes.
        look_at_pods: seconds until events may say more of its pods; None when nothing is awaited.
    """

    obj: Object
    observed: Observed
    turn: Turn
    decision: Decision
    outcome: JobOutcome | None
    workers_made: int
    look_at_pods: float | None
    now: str
    hold: _Hold | None


class TrainingJobController:
    """Keeps the children of every TrainingJob, and reports where its pods run."""

    def __init__(
        self,
        *,
        context: Context,
        gangs: GangQueue,
        admitter: Admitter,
        stalls: DataStalls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stalls = stalls
        self._context = context
        self._admitter = admitter
        self._meetings = DataMeetings(stores=context.stores, room=gangs.job_room)
        self._children = RoleJobs(context=context, clock=clock)
        self._reporter = JobReporter(context=context, stalls=stalls, clock=clock)
        self._restarts = JobRestarts(context=context, reporter=self._reporter)
        self._growth = GrowthHold(context=context, queue=gangs, clock=clock)
        self._pod_events = PodEvents(context=context)
        self._template_claims = template_claims.TemplateClaims(api=context.api, clock=clock)

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        opened = self._settled(key) or await self._open(key)
        if isinstance(opened, _End):
            return opened.again
        obj, job = opened
        live = await self._children.live(obj, job)
        observed = without_sidecars(
            observe(obj, job, live, stores=self._context.stores).as_admitted(), now=self._context.now()
        )
        self._stalls.follow(
            (key.namespace, key.name), obj["metadata"]["uid"], [pod.uid for pod in observed.pods]
        )
        if observed.ended:
            return await self._clean_up(obj, observed, live)
        before = await self._before_its_turn(obj, observed, live)
        if isinstance(before, _End):
            return before.again
        acted = await self._act(obj, observed, live, hold=before)
        return acted.again if isinstance(acted, _End) else await self._finish(acted)

    async def _open(self, key: WorkKey) -> "tuple[Object, TrainingJob] | _End":
        """The job as the API server has it, without the nodes that it avoids."""
        obj, where = await self._context.read(key), (key.namespace, key.name)
        if obj is None:
            self._children.drop(where)
            self._reporter.drop(where)
            self._stalls.drop_job(where)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            self._growth.drop(where)
            return _End()  # the garbage collector deletes the children
        if self._context.stores.is_going(key.namespace):
            return _End()  # nothing can be made in it: this job is deleted in a moment, too
        try:
            job = TrainingJob.model_validate(obj)
        except ValidationError as error:
            # Whatever the status holds may be what does not parse: it is replaced.
            await self._invalid(obj, TrainingJobStatus(), explain_invalid(error))
            return _End()
        created = obj["metadata"].get("creationTimestamp", "")
        if job.status is not None and is_of_another_life(job.status, created=created):
            await self._reporter.publish(obj, *queues_again())
            return _End(0.0)
        avoided = job.status.avoided_nodes if job.status is not None else ()
        return obj, job.model_copy(update={"spec": avoiding(job.spec, avoided)})

    async def _clean_up(
        self, obj: Object, observed: Observed, live: Mapping[Role, Object | None]
    ) -> float | None:
        """Of a job that has ended: delete what it shall not leave, and the job itself once its time is over."""
        self._growth.drop((observed.namespace, observed.name))
        # Its time to live may have changed, say, and the last reports of its reads come when it has ended.
        stall = status_of_stall(
            self._reporter.stall(obj), observed.status.data_stall, datasets=observed.datasets.values()
        )
        unanswered = observed.status.observed_generation != obj["metadata"].get("generation", 0)
        if unanswered or stall != observed.status.data_stall:
            obj = await self._reporter.publish(
                obj, observed.status.model_copy(update={"data_stall": stall}), []
            )
        await self._children.clean(obj, observed, live)
        await self._admitter.end(obj, observed)
        if observed.status.queue_name:
            published = TrainingJobStatus.model_validate(obj.get("status") or {})
            obj = await self._reporter.publish(obj, published.model_copy(update={"queue_name": None}), [])
        return await self._expire(obj, observed)

    async def _before_its_turn(
        self, obj: Object, observed: Observed, live: Mapping[Role, Object | None]
    ) -> "_End | _Hold | None":
        """What comes before a job is given its turn, and ends the pass: it has ended before a backup, all pods are
        restarted, or it asks for what cannot be made; or what its Jobs wait for. None when there is neither."""
        if (end := earlier_end(obj, observed.status)) is not None:
            await self._reporter.publish(obj, *ended_before(end, observed.status, now=self._context.now()))
            return _End(0.0)
        try:
            if going := await self._restarts.end_earlier(observed, live):
                return _Hold(again=EARLIER_JOBS_CHECK, going=going)
        except UnavailableError as error:
            return await self._held_up(obj, observed, error)
        if (restart := restart_of(observed)) is not None:
            if (pause := restart_pause(observed, restart, now=self._context.now())) > 0:
                return _Hold(again=pause, restart=restart)
            await self._restarts.begin(obj, observed, restart)
            return _End(0.0)
        if self._restarts.needs_avoided(observed):
            await self._restarts.give_up_avoiding(obj, observed)
            return _End(0.0)
        refusal = ""
        if not observed.was_admitted:
            too_large = too_long(job=observed.name, namespace=observed.namespace, spec=observed.spec)
            refusal = too_large or mount_problem(observed.spec)
        if refusal:
            await self._invalid(obj, observed.status, refusal)
            return _End()
        is_new = not (obj.get("status") or {}).get("conditions")
        if is_new and (warning := gpu_warning(observed.spec, self._context.stores.nodes.values())):
            await self._context.recorder.record(
                about=obj, reason=NO_GPUS_ASKED, message=warning, type_="Warning"
            )
        return None

    async def _act(
        self, obj: Object, observed: Observed, live: Mapping[Role, Object | None], *, hold: _Hold | None
    ) -> "_Acted | _End":
        """Have the Jobs made, ask the admitter whether they may run, and let them run or stop by its decision."""
        try:
            if hold is None:
                own_jobs = await self._children.ensure(obj, observed, live)
            else:
                # Those that go are nobody's business any more: they may be gone at any moment.
                jobs = {role: job for role, job in observed.jobs.items() if role not in hold.going}
                observed = replace(observed, jobs=jobs)
                own_jobs = {
                    role: live_job for role, live_job in live.items() if live_job is not None and role in jobs
                }
            observed = await self._with_claims(observed)
            observed, look_at_pods = await self._pod_events.complete(observed, namespace=observed.namespace)
            now = self._context.now()
            turn = await self._admitter.turn(
                obj, observed, now=now, preferred=self._children.preferred(observed, {})
            )
            observed = turn.observed
            outcome = decisions.outcome(observed, now=now) if hold is None else None
            decision = turn.decide(now=now, over=outcome is not None)
            if hold is not None and (decision is None or decision.admitted):
                return await self._keep_holding(obj, observed, turn, hold)
            if decision is None:
                return _End()  # its admitter has not looked at it yet, and wakes it when it has
            decision = replace(
                decision,
                message=f"{decision.message}{node_failures.left_out(observed, decision.reason)}",
                meetings=self._meetings.of(obj, observed, decision, now=now),
                considered=considered_nodes.after(observed, decision, stores=self._context.stores, now=now),
            )
            if decisions.says_more(observed, decision):
                # The word is kept first: an operator that is killed before it acts finds it, and acts.
                admits = decision.admitted and not observed.was_admitted
                written = await self._reporter.report(
                    obj, observed, decision, outcome, now=now, unchanged=admits
                )
                if admits and written is obj:
                    return _End(0.0)  # it has changed since it was read, which it may as long as it waits
                obj = written
            workers = self._workers_now(obj, observed, own_jobs, decision)
            nodes = await turn.pod_nodes(own_jobs) if decision.admitted else {}
            await self._children.steer(observed, own_jobs, decision, workers=workers, now=now, nodes=nodes)
            await turn.applied(runs=running(observed).status == "True")
        except (ForeignObjectError, InvalidError, ForbiddenError, PodSetConflictError) as error:
            return _End(await self._refused(obj, observed, error))
        except UnavailableError as error:
            return await self._held_up(obj, observed, error)
        return _Acted(
            obj=obj,
            observed=observed,
            turn=turn,
            decision=decision,
            outcome=outcome,
            workers_made=_made(own_jobs.get("Worker", {})),
            look_at_pods=look_at_pods,
            now=now,
            hold=hold,
        )

    async def _keep_holding(self, obj: Object, observed: Observed, turn: Turn, hold: _Hold) -> _End:
        """Nothing takes the job's place: it waits until its Jobs may be made. One that is admitted only now is told so
        then."""
        if hold.restart is not None:
            await self._restarts.pause(obj, observed, hold.restart)
        await turn.applied(runs=False)
        return _End(_soonest(hold.again, turn.due(now=self._context.now())))

    async def _finish(self, acted: "_Acted") -> float | None:
        """Report what was done; gives the seconds until the next pass."""
        obj, observed, decision, outcome, now = (
            acted.obj,
            acted.observed,
            acted.decision,
            acted.outcome,
            acted.now,
        )
        if outcome is not None:
            await self._mark_end(obj, outcome, now=now)
        # What is reported to a waiting job is no progress of pods: it is behind whom, and it is to be true.
        paced = outcome is None and decision.admitted
        held = self._reporter.pause_left(obj) if paced else 0.0
        await self._reporter.report(obj, observed, decision, outcome, now=now, paced=held > 0)
        if outcome is not None:
            return 0.0  # one look more, which cleans up and counts its time to live
        grows = self._growth.is_held((observed.namespace, observed.name), existing=acted.workers_made)
        return _soonest(
            acted.look_at_pods,
            held or None,
            acted.hold.again if acted.hold is not None else None,
            LOOK_SECONDS if grows else None,
            data_meetings.due(decision.meetings, now=now),
            acted.turn.due(now=now),
            self._due(observed, now=now),
        )

    async def _mark_end(self, obj: Object, outcome: JobOutcome, *, now: str) -> None:
        """Have the job itself say that it has ended, for a backup that leaves its status out."""
        if has_mark(obj):
            return
        mark = ended_mark(obj, succeeded=outcome.succeeded, time=outcome.time or now)
        metadata = obj["metadata"]
        try:
            await self._context.api.merge(
                TRAINING_JOBS,
                name=metadata["name"],
                namespace=metadata["namespace"],
                patch={"metadata": {"uid": metadata["uid"], "annotations": {names.ANNOTATION_ENDED: mark}}},
            )
        except (NotFoundError, ConflictError):
            return  # it was deleted meanwhile
        except (ForbiddenError, InvalidError) as error:
            _log.warning("%s; restored from a backup without its status the job would run again", error)

    def _settled(self, key: WorkKey) -> _End | None:
        """The end of the pass over a job that has ended, and for which nothing is left to do until it is deleted. A
        cluster keeps very many of them."""
        stores = self._context.stores
        obj = stores.training_jobs.get((key.namespace, key.name))
        if obj is None or not is_settled(obj, stores=stores) or self._reporter.stall(obj) is not None:
            return None
        seconds_left = ended_job.left(obj, now=self._context.now())
        return None if seconds_left is not None and seconds_left <= 0 else _End(seconds_left)

    async def _invalid(self, obj: Object, published: TrainingJobStatus, why: str) -> None:
        """What is asked for cannot be made: only a change helps."""
        self._admitter.withdraw(obj["metadata"]["uid"])
        invalid = finding(names.ADMITTED, False, "InvalidSpec", why)
        changed = {"state": "Waiting", "reason": invalid.reason, "message": invalid.message}
        try:
            await self._reporter.publish(obj, published.model_copy(update=changed), [invalid])
        except InvalidError:
            # An object that is older than its definition and does not fit it takes no status any more.
            await self._context.recorder.record(
                about=obj, reason=invalid.reason, message=why, type_="Warning"
            )

    async def _refused(self, obj: Object, observed: Observed, error: Exception) -> float:
        """A child cannot be as it should. A job that can never have it fails; one that runs is not stopped for that."""
        self._admitter.withdraw(obj["metadata"]["uid"])
        refusal = child_refusal_of(error, job=observed.name, spec=observed.spec, created_roles=observed.jobs)
        message, now = refusal.message, self._context.now()
        if refusal.lasts:
            message = f"{message}; correct it in the TrainingJob, which may change as long as it waits"
        if refusal.lasts and decisions.is_refused_for_good(observed, message=message, now=now):
            message = f"{refusal.message}; correct it, and create the job again"
            decision = decisions.refused(message=message, data=decisions.data(observed, now=now))
            outcome = JobOutcome(succeeded=False, reason=decision.reason.value, message=message)
            await self._reporter.report(obj, observed, decision, outcome, now=now)
            return 0.0  # to end what was made for its other roles
        going = isinstance(error, PredecessorError)
        reason = "NameTaken" if isinstance(error, ForeignObjectError) else Reason.REFUSED.value
        if isinstance(error, UnavailableError):
            reason, message = "ChildNotMade", f"{message}; it is tried again every {REFUSED_RETRY:.0f} s"
        reason = "EarlierJobGoing" if going else reason
        changed = {"reason": reason, "message": message}
        if not observed.was_admitted:
            changed["state"] = "Waiting"
        refused = finding(names.ADMITTED, observed.was_admitted, reason, message)
        await self._reporter.publish(obj, observed.status.model_copy(update=changed), [refused])
        return GOING_RETRY if going else REFUSED_RETRY

    async def _held_up(self, obj: Object, observed: Observed, error: UnavailableError) -> _End:
        """Something that belongs to the job can be neither made, read nor deleted: a webhook is away, say, Kueue's with
        its manager.

        Raises:
            UnavailableError: the same; there was no answer, or it is the job itself that cannot be written. Where it is
                the server that fails, saying so fails as well.
        """
        if error.resource is TRAINING_JOBS or error.code < SERVER_ERROR:
            raise error
        return _End(await self._refused(obj, observed, error))

    async def _with_claims(self, observed: Observed) -> Observed:
        """With a claim that its pods would wait for in vain; of a job that was admitted the scheduler says so."""
        if observed.was_admitted or observed.spec.run_policy.suspend:
            return observed
        missing = await self._template_claims.missing(spec=observed.spec, namespace=observed.namespace)
        return replace(observed, missing_claim=missing)

    def _due(self, observed: Observed, *, now: str) -> float | None:
        """Seconds until time alone changes something: a wait for data is over, or a grace."""
        waits = [decisions.patience_left(use, observed=observed, now=now) for use in observed.spec.datasets]
        dues = [
            seconds_left
            for seconds_left in waits
            if seconds_left is not None and seconds_left > 0 and not observed.was_admitted
        ]
        if observed.missing_claim:
            dues.append(template_claims.RETRY)
        if (left_alive := next_look(observed, now=now)) is not None:
            dues.append(left_alive)
        waits_for_larger = role_order.next_start(observed, now=now) if observed.was_admitted else None
        if waits_for_larger is not None:
            dues.append(waits_for_larger)
        if decisions.worker_0_decides(observed.spec) and observed.job("Worker").first_succeeded:
            dues.append(max(decisions.ending_left(observed, now=now), 0.0))
        return min(dues, default=None)

    def _workers_now(
        self, obj: Object, observed: Observed, live: Mapping[Role, Object], decision: Decision
    ) -> int | None:
        """How many workers there may be for now; None: as many as were admitted."""
        if not decision.admitted or "Worker" not in live:
            self._growth.drop((observed.namespace, observed.name))
            return None
        return self._growth.workers_now(obj, observed, existing=_made(live["Worker"]))

    async def _expire(self, obj: Object, observed: Observed) -> float | None:
        """Delete a job that ended, once its time to live is over."""
        seconds_left = seconds_to_live(
            observed.spec.run_policy.ttl_seconds_after_finished,
            ended=observed.status.completion_time,
            now=self._context.now(),
        )
        if seconds_left is None or seconds_left > 0:
            return seconds_left
        metadata = obj["metadata"]
        await self._context.api.delete(
            TRAINING_JOBS, name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
        )
        return None


def _made(job: Object) -> int:
    return int((job.get("spec") or {}).get("parallelism") or 0)


def _soonest(*seconds: float | None) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
