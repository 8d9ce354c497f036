"""Answers the AdmissionChecks of Kueue that ask for data, and has loaded ahead what the first Workloads lack.

Nothing is remembered but when a sentence was last written, a refusal logged, or data first asked for, and copies that
were handed out and cannot be observed yet: a restart reads the states from the Workloads.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.datacheck import DataCheckSpec
from tdcs.api.dataset import Dataset
from tdcs.control.context import Context
from tdcs.control.kueue.copy_assignments import CopyAssignments, pod_set_updates
from tdcs.decide.job.data_verdict import (
    DataState,
    KnownDataset,
    Verdict,
    to_load_ahead,
    verdict,
    verdict_without_spec,
)
from tdcs.decide.kueue.kueue_workload import CheckedWorkload, checked_workload
from tdcs.decide.kueue.workload_hold import hold_status, is_on_hold, queue_status
from tdcs.kube.errors import ConflictError, KubeError, NotFoundError
from tdcs.kube.informer import Informer, OnChange
from tdcs.model.humanize import explain_invalid
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import ADMISSION_CHECKS, DATA_CHECKS, PRELOADS, WORKLOADS

_log = logging.getLogger(__name__)

PASS_SECONDS = 2.0
"""Between two looks at all Workloads that wait."""

ABSENT_SECONDS = 30.0
"""Until it is asked again whether Kueue is there."""

SENTENCE_SECONDS = 15.0
"""A sentence whose state stays is renewed at most so often: the share that is cached changes all the time."""

REFUSAL_SECONDS = 60.0
"""A refusal that lasts is logged so often; the write is tried again in every pass."""

AHEAD_TTL_SECONDS = 600
"""After so long a Preload that loaded ahead goes."""


class KueueChecks:
    """The controller `tdcs.io/data`.

    Args:
        context: of the operator.
        on_workload: called with each Workload that changes.
    """

    def __init__(
        self,
        *,
        context: Context,
        on_workload: OnChange = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._clock = clock
        self._reported_at: dict[tuple[str, str], float] = {}
        self._refusals: dict[str, float] = {}
        self._first_asked: dict[Key, float] = {}
        """When it was first asked for that a Dataset is loaded ahead."""
        self._copies = CopyAssignments(stores=context.stores)
        api = context.api
        self._checks = Informer(api=api, resource=ADMISSION_CHECKS)
        self._parameters = Informer(api=api, resource=DATA_CHECKS)
        self._workloads = Informer(api=api, resource=WORKLOADS, on_change=on_workload)

    async def run(self) -> None:
        """Work until cancelled. Kueue may come later, or go."""
        await self._installed()
        informers = [self._checks, self._parameters, self._workloads]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            while True:
                try:
                    await self.look()
                except KubeError as error:
                    _log.warning("the AdmissionChecks for data: %s; they are looked at again", error)
                except Exception:
                    _log.exception("the AdmissionChecks for data: a pass failed by a defect of the operator")
                await asyncio.sleep(PASS_SECONDS)

    async def _installed(self) -> None:
        is_logged = False
        while True:
            try:
                await self._context.api.list(WORKLOADS)
            except NotFoundError:
                if not is_logged:
                    _log.warning(
                        "there is no Kueue with %s (0.19 or later): install it, or set the chart's value kueue.enabled "
                        "to false",
                        WORKLOADS.api_version,
                    )
                is_logged = True
            except KubeError as error:
                _log.warning("whether there is a Kueue is not known: %s", error)
            else:
                return
            await asyncio.sleep(ABSENT_SECONDS)

    async def look(self) -> None:
        """One pass over all checks of ours, and the Workloads that have them.

        Raises:
            KubeError: the API server gives no answer. What it refuses for one object is logged, and holds up no other.
        """
        self._copies.begin(self._workloads.store.values())
        checks = {
            name: check
            for (_, name), check in sorted(self._checks.store.items())
            if (check.get("spec") or {}).get("controllerName") == names.KUEUE_CONTROLLER
        }
        await self._free_unchecked(checks)
        first_asked: dict[Key, float] = {}
        for name, check in checks.items():
            spec, problem = self._spec_of(check)
            await self._report_active(check, problem=problem)
            workloads = [
                checked
                for obj in self._workloads.store.values()
                if (checked := checked_workload(obj, check=name, ours=checks)) is not None
            ]
            if spec is None:
                for workload in workloads:
                    blocked = verdict_without_spec(workload, problem=problem)
                    await self._answer(workload, blocked, check=name, datasets={})
                continue
            datasets = self._datasets(workloads)
            for workload in workloads:
                namespace, now = workload.key[0], self._context.now()
                own_datasets = {key[1]: dataset for key, dataset in datasets.items() if key[0] == namespace}
                answer = verdict(workload, spec=spec, datasets=own_datasets, now=now)
                refusal = await self._answer(workload, answer, check=name, datasets=own_datasets)
                if refusal:
                    answer = verdict(workload, spec=spec, datasets=own_datasets, now=now, refusal=refusal)
                    await self._answer(workload, answer, check=name, datasets=own_datasets)
            failed = [key for key in datasets if self._has_failed(key)]
            ahead = to_load_ahead(
                workloads,
                spec=spec,
                datasets=datasets,
                failed=failed,
                request_ages={key: self._clock() - at for key, at in self._first_asked.items()},
                now=self._context.now(),
            )
            for workload, dataset in ahead:
                key = workload.key[0], dataset
                first_asked[key] = self._first_asked.get(key, self._clock())
                await self._load_ahead(workload, dataset=dataset)
            uids = {workload.uid for workload in workloads}
            self._reported_at = {
                key: at for key, at in self._reported_at.items() if key[0] != name or key[1] in uids
            }
        self._first_asked = first_asked

    def _datasets(self, workloads: Sequence[CheckedWorkload]) -> dict[Key, KnownDataset]:
        """The Datasets that Workloads mount about which there is something to say: others are not even read."""
        known_datasets = {}
        named = {
            (workload.key[0], claim)
            for workload in workloads
            if not workload.closed
            for claim in workload.claims
        }
        for key in named:
            obj = self._context.stores.datasets.get(key)
            if obj is None:
                continue
            try:
                dataset = Dataset.model_validate(obj)
            except ValidationError:
                dataset = None  # its own status says what is wrong
            known_datasets[key] = KnownDataset(
                dataset=dataset,
                deleting=bool(obj["metadata"].get("deletionTimestamp")),
                generation=int(obj["metadata"].get("generation", 0)),
            )
        return known_datasets

    def _spec_of(self, check: Object) -> tuple[DataCheckSpec | None, str]:
        """What a check asks for, or why that cannot be known."""
        reference = check["spec"].get("parameters")
        if reference is None:
            return DataCheckSpec(), ""
        if (reference.get("apiGroup"), reference.get("kind")) != (names.GROUP, names.KIND_DATA_CHECK):
            text = f"spec.parameters names a {reference.get('kind')} of {reference.get('apiGroup')}"
            return None, f"{text}; name a {names.KIND_DATA_CHECK} of {names.GROUP}, or leave parameters out"
        parameters = self._parameters.store.get(("", str(reference.get("name"))))
        if parameters is None:
            text = f"there is no {names.KIND_DATA_CHECK} {reference.get('name')}"
            return None, f"{text}, which spec.parameters names; create it, or correct the name"
        try:
            return DataCheckSpec.model_validate(parameters.get("spec") or {}), ""
        except ValidationError as error:
            return None, f"{names.KIND_DATA_CHECK} {reference.get('name')}: {explain_invalid(error)}"

    async def _report_active(self, check: Object, *, problem: str) -> None:
        """Kueue stops a queue with a check that is not Active."""
        new_condition: dict[str, Any] = {
            "type": "Active",
            "status": "False" if problem else "True",
            "reason": "BadParameters" if problem else "Active",
            "message": problem or f"the operator of TDCS answers ({names.KUEUE_CONTROLLER})",
            "observedGeneration": check["metadata"].get("generation", 0),
        }
        conditions = (check.get("status") or {}).get("conditions") or ()
        old_condition: Mapping[str, Any] = next(
            (condition for condition in conditions if condition.get("type") == "Active"), {}
        )
        if {key: old_condition.get(key) for key in new_condition} == new_condition:
            return
        unchanged_since = old_condition.get("status") == new_condition["status"] and old_condition.get(
            "lastTransitionTime"
        )
        condition = {**new_condition, "lastTransitionTime": unchanged_since or self._context.now()}
        metadata = {"name": check["metadata"]["name"], "uid": check["metadata"]["uid"]}
        await self._write(ADMISSION_CHECKS, metadata, {"conditions": [condition]})

    async def _answer(
        self,
        workload: CheckedWorkload,
        new_verdict: Verdict | None,
        *,
        check: str,
        datasets: Mapping[str, KnownDataset],
    ) -> str:
        """Write a verdict that says something new; `datasets` are those of the Workload's namespace.

        Returns: why the Workload cannot be put on hold, in the words of who refused it; empty when nothing was refused.
        """
        namespace, name = workload.key
        if new_verdict is None or not self._is_news(workload, new_verdict, check=check):
            return ""
        unchanged_since = new_verdict.state == workload.state and workload.since
        state: dict[str, Any] = {
            "name": check,
            "state": new_verdict.state.value,
            "message": new_verdict.message[:2000],
            "lastTransitionTime": unchanged_since or self._context.now(),
        }
        if new_verdict.requeue_after_seconds is not None:
            state["requeueAfterSeconds"] = new_verdict.requeue_after_seconds
        if new_verdict.state is DataState.READY:
            copies = self._copies.of(workload, datasets=datasets)
            if updates := pod_set_updates(workload, copies=copies):
                state["podSetUpdates"] = updates
        refusal = ""
        retries = new_verdict.state is DataState.RETRY
        if workload.reserved_since is None or (retries and new_verdict.requeue_after_seconds is None):
            refusal = await self._hold_or_queue(workload, new_verdict, state=state)
        else:
            metadata = {"namespace": namespace, "name": name, "uid": workload.uid}
            if retries and workload.version:
                metadata["resourceVersion"] = workload.version  # not of one that Kueue has evicted meanwhile
            await self._write(WORKLOADS, metadata, {"admissionChecks": [state]})
        self._reported_at[check, workload.uid] = self._clock()
        return refusal

    async def _hold_or_queue(
        self, workload: CheckedWorkload, new_verdict: Verdict, *, state: Mapping[str, Any]
    ) -> str:
        """Returns: who refused a hold, and why; empty when nothing did."""
        obj = self._workloads.store.get(workload.key)
        if obj is None or str(obj["metadata"].get("resourceVersion", "")) != workload.version:
            return ""  # it is not the one that was judged: the next pass judges what is there now
        if new_verdict.state is DataState.RETRY:
            return await self._replace_status(obj, hold_status(obj, check=state, now=self._context.now()))
        now, requeued = self._context.now(), not workload.on_hold
        status = queue_status(obj, check=state, message=new_verdict.message, now=now, requeued=requeued)
        await self._replace_status(obj, status)
        return ""

    async def _free_unchecked(self, checks: Collection[str]) -> None:
        """Have Kueue queue those that are on hold, and have none of these checks any more."""
        for obj in list(self._workloads.store.values()):
            status = obj.get("status") or {}
            if not is_on_hold(obj) or {
                state.get("name") for state in status.get("admissionChecks") or ()
            } & set(checks):
                continue
            text = f"it has no AdmissionCheck with the controller {names.KUEUE_CONTROLLER} any more"
            await self._replace_status(
                obj, queue_status(obj, check=None, message=text, now=self._context.now())
            )

    async def _replace_status(self, obj: Object, status: Mapping[str, Any]) -> str:
        """Write what others have written too, unless they have written meanwhile. Returns the sentence of a refusal."""
        metadata = obj["metadata"]
        patch = {"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": status}
        try:
            await self._context.api.merge_status(
                WORKLOADS, name=metadata["name"], namespace=metadata["namespace"], patch=patch
            )
        except (ConflictError, NotFoundError) as error:
            _log.info("%s; it is gone, or has been written to: the next pass looks at it again", error)
        except KubeError as error:
            self._log_refusal(error)
            return error.detail or str(error)
        return ""

    def _is_news(self, workload: CheckedWorkload, new_verdict: Verdict, *, check: str) -> bool:
        if new_verdict.state != workload.state:
            return True
        if workload.reserved_since is None and workload.on_hold != (new_verdict.state is DataState.RETRY):
            return True
        last = self._reported_at.get((check, workload.uid))
        return new_verdict.message != workload.message and (
            last is None or self._clock() - last >= SENTENCE_SECONDS
        )

    async def _write(self, resource: Any, metadata: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        try:
            await self._context.api.apply_status(resource, obj={"metadata": metadata, "status": status})
        except (ConflictError, NotFoundError) as error:
            _log.info("%s; it is gone, or another one by now", error)
        except KubeError as error:
            self._log_refusal(error)

    def _log_refusal(self, error: KubeError) -> None:
        """Name the object that is refused; others go on.

        Raises:
            KubeError: it is no refusal: the API server gave no answer, nor would it for the others.
        """
        if error.code == 0:
            raise error
        text, now = str(error), self._clock()
        self._refusals = {refusal: at for refusal, at in self._refusals.items() if now - at < REFUSAL_SECONDS}
        if text not in self._refusals:
            self._refusals[text] = now
            _log.warning("%s; it is tried again, and holds up no other", text)

    def _has_failed(self, dataset: Key) -> bool:
        preload = self._context.stores.preloads.get(_preload_key(dataset)) or {}
        conditions = (preload.get("status") or {}).get("conditions") or ()
        return any(
            condition.get("type") == names.FAILED and condition.get("status") == "True"
            for condition in conditions
        )

    async def _load_ahead(self, workload: CheckedWorkload, *, dataset: str) -> None:
        """A Preload of a Dataset, which makes it one that is waited for; it goes with its Workload."""
        namespace, name = _preload_key((workload.key[0], dataset))
        if (namespace, name) in self._context.stores.preloads:
            return
        owner = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "name": workload.key[1],
            "uid": workload.uid,
        }
        preload = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND_PRELOAD,
            "metadata": {"namespace": namespace, "name": name, "ownerReferences": [owner]},
            "spec": {"datasetRef": {"name": dataset}, "ttlSecondsAfterFinished": AHEAD_TTL_SECONDS},
        }
        try:
            await self._context.api.create(PRELOADS, obj=preload)
        except ConflictError:
            return  # it is there, and has not been observed yet
        except KubeError as error:
            self._log_refusal(error)
            return
        _log.info("Dataset %s/%s is loaded ahead for Workload %s", namespace, dataset, workload.key[1])


def _preload_key(dataset: Key) -> Key:
    """The Preload that loads a Dataset ahead, each its own."""
    namespace, name = dataset
    return namespace, names.dns_label(f"ahead-{name}")
