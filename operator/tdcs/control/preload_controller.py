"""One pass over a Preload: see how far the mount of its Dataset is with it, and publish that."""

import dataclasses
import time
from collections.abc import Callable

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import is_true, shorten
from tdcs.api.dataset import Dataset
from tdcs.api.preload import Preload, PreloadStatus
from tdcs.control.context import Context, WorkKey
from tdcs.control.dataset.cached_data import CachedData
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.status_publisher import publish_status
from tdcs.decide import preload_status as conclusions
from tdcs.decide.cache import wants
from tdcs.decide.preload_status import Conclusion, PreloadView
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.humanize import explain_invalid
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, PRELOADS

INVALID = "InvalidSpec"
SLOW_RETRY = 5.0
SHORTEST = 0.2


class PreloadController:
    """Reports on every Preload, and deletes those that have been over for as long as they shall stay."""

    def __init__(
        self, *, context: Context, data: CachedData, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._data = data
        self._clock = clock
        self._stuck_since: dict[WorkKey, float] = {}

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.read(key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            self._stuck_since.pop(key, None)
            return None
        try:
            preload = Preload.model_validate(obj)
        except ValidationError as error:
            invalid = Conclusion(state="Failed", reason=INVALID, message=explain_invalid(error))
            await self._publish(obj, invalid, PreloadStatus(state="Failed", message=shorten(invalid.message)))
            return None
        previous = preload.status or PreloadStatus()
        if self._runs_again(key, preload, previous) or _was_invalid(previous):
            # It has brought nothing: as it was then it could not be understood, or it ended for a Dataset that is gone.
            preload, previous = preload.model_copy(update={"status": None}), PreloadStatus()
        if is_true(previous.conditions, names.COMPLETE) or is_true(previous.conditions, names.FAILED):
            self._stuck_since.pop(key, None)
            if previous.observed_generation != obj["metadata"].get("generation", 0):
                # What has ended is not changed by, say, another ttl; but who waits for the status sees it answered.
                await publish_status(
                    context=self._context, resource=PRELOADS, obj=obj, status=previous, findings=()
                )
            return await self._after(key, preload, previous)
        view = self._patient(key, self._view(key, obj, preload, previous))
        conclusion = conclusions.conclude(view)
        new_status = conclusions.status_of(view, conclusion=conclusion, now=self._context.now())
        await self._publish(obj, conclusion, new_status)
        if conclusion.state in {"Complete", "Failed"}:
            # The Dataset keeps what was brought, or lets go of what could not be brought whole.
            self._wake_dataset(key, preload)
            return SHORTEST
        if conclusion.state == "Scheduled":
            return min(view.starts_in + 1, self._context.settings.resync_seconds)
        moving = conclusion.state in {"Loading", "Verifying"}
        return self._context.settings.progress_seconds if moving else SLOW_RETRY

    def _runs_again(self, key: WorkKey, preload: Preload, previous: PreloadStatus) -> bool:
        """Whether it ended for an earlier Dataset of the name, and is run for the one that there is now."""
        owner = self._context.stores.datasets.get((key.namespace, preload.spec.dataset_ref.name))
        if owner is None:
            return False
        uid = str(owner["metadata"].get("uid") or "")
        if not wants.is_of_another(previous, dataset_uid=uid):
            return False
        siblings = self._siblings(key, preload)
        return wants.runs_again(preload, name=key.name, preloads=siblings, dataset_uid=uid)

    def _siblings(self, key: WorkKey, preload: Preload) -> list[tuple[str, Preload]]:
        preloads = mount_readers.preloads_of(
            stores=self._context.stores, namespace=key.namespace, dataset=preload.spec.dataset_ref.name
        )
        return [(name, sibling) for name, _, sibling in preloads]

    def _patient(self, key: WorkKey, view: PreloadView) -> PreloadView:
        """The view with whether what cannot be had has been tried for long enough."""
        if not view.stuck:
            self._stuck_since.pop(key, None)
            return view
        since = self._stuck_since.setdefault(key, self._clock())
        return dataclasses.replace(
            view, gives_up=self._clock() - since >= self._context.settings.give_up_seconds
        )

    def _view(self, key: WorkKey, obj: Object, preload: Preload, previous: PreloadStatus) -> PreloadView:
        now, spec = self._context.now(), preload.spec
        view = PreloadView(
            known=previous,
            suspended=spec.suspend,
            starts_in=wants.seconds_until(spec.start_time, now=now),
            start=spec.start_time or "",
        )
        owner = self._context.stores.datasets.get((key.namespace, spec.dataset_ref.name))
        name = spec.dataset_ref.name
        if owner is not None and owner["metadata"].get("deletionTimestamp"):
            text = (
                f"Dataset {name} is being deleted; the Preload goes on when there is one of that name again"
            )
            return dataclasses.replace(view, waiting=(Reason.DELETING.value, text))
        if owner is None:
            text = (
                f"there is no Dataset {name} in namespace {key.namespace} (spec.datasetRef): create it, or create the "
                "Preload again with another name"
            )
            return dataclasses.replace(view, waiting=(Reason.MISSING.value, text))
        try:
            dataset = Dataset.model_validate(owner)
        except ValidationError:
            text = f"Dataset {spec.dataset_ref.name} cannot be understood: see its conditions"
            return dataclasses.replace(view, waiting=("DatasetNotReady", text))
        view = dataclasses.replace(
            view,
            generation=int(owner["metadata"].get("generation", 0)),
            uid=str(owner["metadata"].get("uid", "")),
            unknown_nodes=tuple(node for node in spec.nodes if ("", node) not in self._context.stores.nodes),
        )
        path = dataset.status.mount_path if dataset.status else ""
        report = self._data.report_of(dataset.spec.cache_cluster_ref.name, path)
        if report is None or report.listed is None or not dataset.status:
            return dataclasses.replace(
                view, waiting=("DatasetNotReady", _why(dataset, spec.dataset_ref.name))
            )
        mine = wants.preload_key(namespace=key.namespace, name=key.name)
        expected = wants.of_preload(
            namespace=key.namespace,
            name=key.name,
            uid=str(obj["metadata"].get("uid", "")),
            preload=preload,
            dataset=dataset,
            dataset_uid=str(owner["metadata"].get("uid") or ""),
            now=now,
        )
        placement, progress = report.placements.get(mine), report.progress.get(mine)
        if progress is not None:
            view = dataclasses.replace(view, placement=placement, progress=progress)
        if not is_true(dataset.status.conditions, names.MOUNTED):
            # Its Dataset has lost the cache, or its mount: nothing is known before it has them back.
            return dataclasses.replace(
                view, waiting=("DatasetNotReady", _why(dataset, spec.dataset_ref.name))
            )
        if placement is None or progress is None or dataclasses.replace(placement.want, ids=()) != expected:
            self._wake_dataset(key, preload)  # it has not looked at this Preload yet, or at what it says now
            is_expected = placement is not None and placement.want.subset == expected.subset
            return view if is_expected else dataclasses.replace(view, placement=None)
        return dataclasses.replace(
            view,
            assigned=set(placement.nodes) <= report.current,
            failures=report.failures,
            away=report.away if progress.failed_bytes else "",
            checks=report.checks(expected.check),
        )

    async def _after(self, key: WorkKey, preload: Preload, previous: PreloadStatus) -> float | None:
        ttl = preload.spec.ttl_seconds_after_finished
        if ttl is None:
            return None
        seconds_left = ttl - conclusions.ended_seconds(previous, now=self._context.now())
        if seconds_left > 0:
            return seconds_left + 1
        if is_true(previous.conditions, names.COMPLETE) and not self._is_kept(key, preload, previous):
            self._wake_dataset(key, preload)
            return self._context.settings.progress_seconds
        await self._context.api.delete(PRELOADS, name=key.name, namespace=key.namespace)
        return None

    def _is_kept(self, key: WorkKey, preload: Preload, previous: PreloadStatus) -> bool:
        """Whether the Dataset's status remembers what was loaded, or never will: it has changed or gone since, or
        keeps newer ones only."""
        obj = self._context.stores.datasets.get((key.namespace, preload.spec.dataset_ref.name))
        if obj is None or obj["metadata"].get("generation") != previous.dataset_generation:
            return True
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError:
            return False  # its own pass says so
        remembered = dataset.status.kept if dataset.status is not None else []
        due = wants.kept_now(
            previous=remembered,
            preloads=self._siblings(key, preload),
            generation=previous.dataset_generation,
            dataset_uid=str(obj["metadata"].get("uid") or ""),
        )
        return any(entry.name == key.name for entry in remembered) or all(
            entry.name != key.name for entry in due
        )

    def _wake_dataset(self, key: WorkKey, preload: Preload) -> None:
        self._context.queue.add(WorkKey(DATASETS, key.namespace, preload.spec.dataset_ref.name))

    async def _publish(self, obj: Object, conclusion: Conclusion, new_status: PreloadStatus) -> None:
        await publish_status(
            context=self._context,
            resource=PRELOADS,
            obj=obj,
            status=new_status,
            findings=conclusions.findings_of(conclusion),
        )


def _was_invalid(status: PreloadStatus) -> bool:
    return any(
        condition.type == names.FAILED and condition.reason == INVALID for condition in status.conditions
    )


def _why(dataset: Dataset, name: str) -> str:
    conditions = dataset.status.conditions if dataset.status else []
    ready = next((condition.message for condition in conditions if condition.type == names.READY), "")
    return f"it waits for Dataset {name}" + (f": {ready}" if ready else "")
