"""Which copy of each dataset a job reads: chosen when it is admitted, near free GPUs, and kept from then on."""

from tdcs.api import names
from tdcs.api.conditions import is_true
from tdcs.control.context import Stores
from tdcs.control.job.queue.job_room import JobRoom
from tdcs.control.job.queue.turns import Turns
from tdcs.control.status_publisher import conditions_of
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.place.data_location import chosen_from
from tdcs.decide.place.dataset_copies import FIRST_COPY
from tdcs.decide.queue.pod_admission import copy_to_read
from tdcs.model.kube_objects import Object


class CopyChoices:
    """Chooses the copies of its datasets for each job. A choice that no status says yet stands in the job's turn."""

    def __init__(self, *, stores: Stores, room: JobRoom, turns: Turns) -> None:
        self._stores = stores
        self._room = room
        self._turns = turns

    def of(self, obj: Object, observed: Observed, *, admitted: bool) -> dict[str, str]:
        """The copy of each dataset that the job reads, by the dataset's name; empty before it is admitted.

        Kubernetes lets no one change the pods of a Job that has started: a job that is suspended and goes on keeps
        its copies.
        """
        copy_of = {use.dataset: use.copy_id for use in observed.status.copies}
        if observed.was_admitted or any(job.start_time for job in observed.jobs.values()):
            return {use.name: copy_of.get(use.name, FIRST_COPY) for use in observed.spec.datasets}
        if not admitted:
            return {}
        chosen = {use.name: self._choose(obj, observed, use.name) for use in observed.spec.datasets}
        self._turns.change(obj["metadata"]["uid"], copies=chosen)
        return chosen

    def _choose(self, obj: Object, observed: Observed, name: str) -> str:
        dataset = observed.datasets.get(name)
        copies = {} if dataset is None else chosen_from(dataset)
        if len(copies) < 2:
            return next(iter(copies), FIRST_COPY)
        metadata = obj["metadata"]
        readers = self._readers(dataset=name, namespace=metadata["namespace"], but=metadata["uid"])
        active = {copy: len(readers.get(copy, ())) for copy in copies}
        return copy_to_read(
            active=active,
            limit=(dataset.spec.access.max_concurrent_jobs if dataset is not None else None) or 0,
            room=self._room.near(
                obj,
                copies={
                    copy: (
                        [node for node, worth in copy_on_nodes.worth.items() if worth > 0],
                        readers.get(copy, ()),
                    )
                    for copy, copy_on_nodes in copies.items()
                },
            ),
        )

    def _readers(self, *, dataset: str, namespace: str, but: str) -> dict[str, list[str]]:
        """The uids of the jobs that read each copy of a Dataset."""
        readers: dict[str, list[str]] = {}
        for job in self._stores.jobs_reading((namespace, dataset)).values():
            uid = job["metadata"].get("uid", "")
            if uid == but:
                continue
            admitted = is_true(conditions_of(job), names.ADMITTED)
            chosen = None if admitted else self._turns.of(uid).copies
            copy = chosen.get(dataset) if chosen is not None else published_copy(job, dataset)
            if copy is not None:
                readers.setdefault(copy, []).append(uid)
        return readers


def published_copy(job: Object, dataset: str) -> str | None:
    """The copy of a dataset that a job reads, as its status says; None when it reads none of it."""
    if not is_true(conditions_of(job), names.ADMITTED):
        return None
    copies = (job.get("status") or {}).get("copies") or ()
    return next((str(use.get("copy")) for use in copies if use.get("dataset") == dataset), None)
