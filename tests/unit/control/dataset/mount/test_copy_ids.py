"""Which copies of a Dataset stay when fewer are asked for follows from the jobs that read them."""

from tdcs.control.context import Stores
from tdcs.control.dataset.mount.mount_readers import with_ids
from tdcs.decide.cache.wants import Want
from tdcs.model.kube_objects import Object

HELD = {"Dataset n/pictures": {"0": frozenset("a"), "1": frozenset("b")}}


def job(copy: str, *, ended: str = "") -> Object:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    return {"status": {"copies": [{"dataset": "pictures", "copy": copy}], "conditions": conditions}}


def ids(*jobs: Object, namespace: str = "n") -> tuple[str, ...]:
    """The ids of one copy, where there are two, with these jobs."""
    stores = Stores(training_jobs={(namespace, f"j{number}"): job for number, job in enumerate(jobs)})
    (want,) = with_ids([Want(key="Dataset n/pictures", copies=1)], stores=stores, held=HELD)
    return want.ids


def test_the_copy_that_a_job_reads_stays() -> None:
    assert ids(job("1")) == ("1",)


def test_without_jobs_or_with_ended_or_foreign_ones_the_oldest_stays() -> None:
    assert ids() == ("0",)
    assert ids(job("1", ended="Succeeded")) == ("0",)
    assert ids(job("1"), namespace="other") == ("0",)
