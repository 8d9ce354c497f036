"""One pass over a Preload: see how far its Dataset's controller is with it, and report."""

import dataclasses

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.api.dataset import Dataset
from tdcs.api.preload import Preload, PreloadStatus
from tdcs.controllers.context import Context, WorkKey
from tdcs.controllers.dataset import sharing, wants
from tdcs.controllers.dataset.controller import DatasetController
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.preload import plan as plans
from tdcs.controllers.preload.plan import Verdict, View
from tdcs.controllers.publish import publish_status
from tdcs.controllers.validation import explain_invalid
from tdcs.kube.api import Object
from tdcs.kube.resources import DATASETS, PRELOADS

SLOW_RETRY = 5.0
SHORTEST = 0.2


class PreloadController:
    """Reports on every Preload, and deletes those whose time after the end is over."""

    def __init__(self, *, context: Context, datasets: DatasetController) -> None:
        self._context = context
        self._datasets = datasets

    async def reconcile(self, key: WorkKey) -> float | None:
        """One pass; gives the seconds until the next one is due, None when only a change calls for it."""
        obj = await self._context.api.get(PRELOADS, name=key.name, namespace=key.namespace)
        if obj is None:
            self._context.gone(key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        try:
            preload = Preload.model_validate(obj)
        except ValidationError as error:
            told = Verdict(state="Failed", reason="InvalidSpec", message=explain_invalid(error))
            await self._publish(obj, told, PreloadStatus(state="Failed"))
            return None
        known = preload.status or PreloadStatus()
        if is_true(known.conditions, names.COMPLETE) or is_true(known.conditions, names.FAILED):
            return await self._after(key, preload, known)
        view = self._view(key, preload, known)
        verdict = plans.judge(view)
        wanted = plans.status_of(view, verdict=verdict, now=self._context.now())
        await self._publish(obj, verdict, wanted)
        if verdict.state in {"Complete", "Failed"}:
            # The Dataset keeps what was brought, or lets go of what could not be brought whole.
            self._wake_dataset(key, preload)
            return SHORTEST
        if verdict.state == "Scheduled":
            return min(view.starts_in + 1, self._context.settings.resync_seconds)
        moving = verdict.state in {"Loading", "Verifying"}
        return self._context.settings.progress_seconds if moving else SLOW_RETRY

    def _view(self, key: WorkKey, preload: Preload, known: PreloadStatus) -> View:
        now, spec = self._context.now(), preload.spec
        view = View(
            known=known,
            suspended=spec.suspend,
            starts_in=wants.seconds_until(spec.start_time, now=now),
            start=spec.start_time or "",
        )
        obj = self._context.stores.datasets.get((key.namespace, spec.dataset))
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            text = f"there is no Dataset {spec.dataset} in its namespace (spec.dataset): create it, or correct the name"
            return dataclasses.replace(view, waiting=("DatasetNotFound", text))
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError:
            text = f"Dataset {spec.dataset} cannot be understood: see its conditions"
            return dataclasses.replace(view, waiting=("DatasetNotReady", text))
        view = dataclasses.replace(view, generation=int(obj["metadata"].get("generation", 0)))
        path = dataset.status.mount_path if dataset.status else ""
        data = self._datasets.data_of(cluster=dataset.spec.cache_cluster, path=path)
        if data is None or data.survey is None or not dataset.status:
            return dataclasses.replace(view, waiting=("DatasetNotReady", _why(dataset, spec.dataset)))
        mine = wants.preload_key(namespace=key.namespace, name=key.name)
        expected = wants.of_preload(
            namespace=key.namespace, name=key.name, preload=preload, dataset=dataset, now=now
        )
        if not is_true(dataset.status.conditions, names.MOUNTED) and not _runs(data, mine):
            # Its Dataset has lost the cache, or its mount: nothing goes on before it has them back.
            waiting = ("DatasetNotReady", _why(dataset, spec.dataset))
            return dataclasses.replace(
                view, waiting=waiting, plan=data.want(mine), progress=data.progress(mine)
            )
        found = data.want(mine)
        if found is None or found.want != expected:
            self._wake_dataset(key, preload)  # it has not looked at this Preload yet, or at what it says now
            known_plan = found if found is not None and found.want.subset == expected.subset else None
            return dataclasses.replace(view, plan=known_plan, progress=data.progress(mine), loading=True)
        run = data.verifies.get(mine)
        return dataclasses.replace(
            view,
            verify=run.progress if run is not None else None,
            # Copies that differ are loaded again once: until then nothing is said about them.
            verifying=run is None or run.running or bool(run.progress.wrong and mine not in data.mended),
            verify_error=str(run.error) if run is not None and run.error is not None else "",
            plan=found,
            progress=data.progress(mine),
            loading=mine in data.runs,  # also one that has ended, until a listing has shown what it did
            trouble=data.troubles.get(mine),
            tries=data.tries.get(mine, 0),
        )

    async def _after(self, key: WorkKey, preload: Preload, known: PreloadStatus) -> float | None:
        ttl = preload.spec.ttl_seconds_after_finished
        if ttl is None:
            return None
        left = ttl - plans.ended_seconds(known, now=self._context.now())
        if left > 0:
            return left + 1
        if is_true(known.conditions, names.COMPLETE) and not self._is_kept(key, preload, known):
            self._wake_dataset(key, preload)
            return self._context.settings.progress_seconds
        await self._context.api.delete(PRELOADS, name=key.name, namespace=key.namespace)
        return None

    def _is_kept(self, key: WorkKey, preload: Preload, known: PreloadStatus) -> bool:
        """Whether the Dataset's status remembers what was loaded, or never will: it has changed or gone since, or
        keeps newer ones only."""
        obj = self._context.stores.datasets.get((key.namespace, preload.spec.dataset))
        if obj is None or obj["metadata"].get("generation") != known.dataset_generation:
            return True
        try:
            dataset = Dataset.model_validate(obj)
        except ValidationError:
            return False  # its own pass says so
        kept = dataset.status.kept if dataset.status is not None else []
        there = sharing.preloads_of(
            stores=self._context.stores, namespace=key.namespace, dataset=preload.spec.dataset
        )
        due = wants.kept_now(known=kept, preloads=there, generation=known.dataset_generation)
        return any(one.name == key.name for one in kept) or all(one.name != key.name for one in due)

    def _wake_dataset(self, key: WorkKey, preload: Preload) -> None:
        self._context.queue.add(WorkKey(DATASETS, key.namespace, preload.spec.dataset))

    async def _publish(self, obj: Object, verdict: Verdict, wanted: PreloadStatus) -> None:
        await publish_status(
            context=self._context,
            resource=PRELOADS,
            obj=obj,
            status=wanted,
            findings=plans.findings_of(verdict),
        )


def _runs(data: MountedData, key: str) -> bool:
    run = data.runs.get(key)
    return run is not None and run.running


def _why(dataset: Dataset, name: str) -> str:
    conditions = dataset.status.conditions if dataset.status else []
    ready = next((one.message for one in conditions if one.type == names.READY), "")
    return f"it waits for Dataset {name}" + (f": {ready}" if ready else "")
