"""A more important job takes the place of running ones, where its PriorityClass and the chart say so."""

from tests.unit.control.jobs import Jobs, phase_of, role

from tdcs.api import names
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PRIORITY_CLASSES, Resource


async def with_classes(jobs: Jobs) -> None:
    for name, value, policy in (
        ("urgent", 100, "PreemptLowerPriority"),
        ("patient", 100, "Never"),
        ("low", 1, "Never"),
    ):
        obj = {
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }
        await jobs.server.create(PRIORITY_CLASSES, obj=obj)


async def running(jobs: Jobs, name: str, *, workers: int) -> None:
    await jobs.create(name, workers=workers)
    await jobs.until(lambda: jobs.bound(name) == workers)
    await jobs.run(name)
    await jobs.until_state("Running", name)


async def test_a_job_takes_the_place_of_one_which_queues_again_and_says_who_took_it() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await running(jobs, "kept", workers=4)
        await running(jobs, "victim", workers=4)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.bound("kept") == 4  # it is older
        assert jobs.job("victim-worker")["spec"]["suspend"]
        assert jobs.status("victim")["queue"]["preemptedBy"] == "n/urgent"
        assert "Preempted" in jobs.events()
        await jobs.until(lambda: jobs.condition("Admitted", "victim").get("reason") == "NotEnoughRoom")
        await jobs.run("urgent")
        for pod in jobs.pods("urgent"):
            await jobs.end(pod)
        await jobs.until(lambda: jobs.bound("victim") == 4)
        await jobs.run("victim")
        await jobs.until(lambda: "preemptedBy" not in (jobs.status("victim").get("queue") or {}))


async def test_a_victim_says_in_its_conditions_who_took_its_place() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await running(jobs, "victim", workers=4)
        messages: list[str] = []
        before = jobs.server.on_change

        def note(resource: Resource, obj: Object, deleted: bool) -> None:
            if not messages and jobs.condition("Admitted", "victim").get("reason") == "Preempted":
                messages.append(str(jobs.status("victim")["message"]))
                assert jobs.status("victim")["state"] == "Queued"
            before(resource, obj, deleted)

        jobs.server.on_change = note
        await jobs.create("urgent", workers=1, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 1)
        assert messages[0].startswith("n/urgent took its place, which has priority 100 (this job has 0)")


async def test_the_room_that_a_victim_leaves_is_not_given_to_another_job() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await running(jobs, "victim", workers=4)
        await jobs.create("small", workers=1)
        await jobs.until_state("Queued", "small")
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert not jobs.pods("small")
        assert not jobs.pods("victim")


async def test_no_job_gives_way_where_the_chart_or_the_class_does_not_say_so() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await running(jobs, "runs", workers=4)
        await jobs.create("patient", workers=4, scheduling={"priorityClassName": "patient"})
        await jobs.until_state("Queued", "patient")
        assert jobs.bound("runs") == 4
    async with Jobs(gpus={"a": 4}) as jobs:
        await with_classes(jobs)
        await running(jobs, "runs", workers=4)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until_state("Queued", "urgent")
        assert jobs.bound("runs") == 4


async def test_an_operator_that_is_killed_at_any_write_preempts_once_and_loses_no_job() -> None:
    for write in range(1, 8):
        async with Jobs(gpus={"a": 4, "b": 4}, preempts=True) as jobs:
            await with_classes(jobs)
            await running(jobs, "kept", workers=4)
            await running(jobs, "victim", workers=4)
            await jobs.stop()
            await jobs.start(killed_after=write)
            await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
            for _ in range(40):
                await jobs.play()
            await jobs.stop()
            await jobs.start()
            await jobs.until(lambda: jobs.bound("urgent") == 4)
            assert jobs.bound("kept") == 4, write
            await jobs.run("urgent")
            for pod in jobs.pods("urgent"):
                await jobs.end(pod)
            await jobs.until(lambda: jobs.bound("victim") == 4)


async def test_a_job_that_was_admitted_a_moment_ago_and_has_no_status_yet_is_understood() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await running(jobs, "train", workers=2)
        job = jobs.training_job("train")
        jobs.gangs.turns.change(job["metadata"]["uid"], admitted=2)
        del job["status"]
        entries = jobs.gangs._collector.collect()
        assert [running.key for running in entries.running] == [("n", "train")]
        assert not entries.news


async def test_a_job_that_found_no_place_in_what_others_left_ends_nobodys_work_again() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True, patience=0.2) as jobs:
        await with_classes(jobs)
        await running(jobs, "victim", workers=4)
        jobs.refuses = lambda pod: pod["metadata"]["name"].startswith("urgent-")
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: (jobs.status("urgent").get("queue") or {}).get("attempts"))
        await jobs.until(lambda: jobs.bound("victim") == 4)
        await jobs.until_running("victim")
        tried = jobs.status("urgent")["queue"]["attempts"]
        await jobs.until(lambda: jobs.condition("Admitted", "urgent").get("reason") == "NotEnoughRoom")
        for _ in range(30):
            await jobs.play()
        assert jobs.bound("victim") == 4
        assert jobs.status("urgent")["queue"]["attempts"] == tried


async def test_a_running_job_whose_class_was_deleted_does_not_give_way() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await jobs.create("important", workers=4, scheduling={"priorityClassName": "patient"})
        await jobs.until(lambda: jobs.bound("important") == 4)
        await jobs.until_running("important")
        await jobs.server.delete(PRIORITY_CLASSES, name="patient")
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until_state("Queued", "urgent")
        for _ in range(20):
            await jobs.play()
        assert jobs.bound("important") == 4


async def test_a_pod_with_the_label_of_a_job_that_no_job_made_does_not_count_as_leaving() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await jobs.stranger("squatter", node="a", gpus=4, **{names.LABEL_TRAINING_JOB: "none"})
        await running(jobs, "victim", workers=4)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.condition("Admitted", "victim")["status"] == "False"


async def test_a_job_whose_pods_take_a_year_to_end_gives_way_after_all_others_of_its_priority() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await running(jobs, "old", workers=4)
        slow = role(4, gpus=1)
        slow["template"]["spec"]["terminationGracePeriodSeconds"] = 365 * 86400
        await jobs.create("patient", roles={"Worker": slow})
        await jobs.until(lambda: jobs.bound("patient") == 4)
        await jobs.run("patient")
        await jobs.until_state("Running", "patient")
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.bound("patient") == 4  # although it is the younger one
        assert jobs.condition("Admitted", "old")["status"] == "False"


async def test_a_job_whose_pods_take_an_hour_to_end_gives_way_with_its_grace_period() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        slow = role(4, gpus=1)
        slow["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
        await jobs.create("hour", roles={"Worker": slow})
        await jobs.until(lambda: jobs.bound("hour") == 4)
        await jobs.run("hour")
        await jobs.until_state("Running", "hour")
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.status("hour")["queue"]["preemptedBy"] == "n/urgent"
        pod_spec = jobs.job("hour-worker")["spec"]["template"]["spec"]
        assert pod_spec["terminationGracePeriodSeconds"] == 3600


async def test_a_job_one_of_whose_pods_finds_no_node_gives_way_with_all_that_is_kept_for_it() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True, patience=3600) as jobs:
        await with_classes(jobs)
        jobs.refuses = lambda pod: pod["metadata"]["name"].startswith("victim-worker-3")
        await jobs.create("victim", workers=4)
        await jobs.until(lambda: jobs.bound("victim") == 3)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.status("victim")["queue"]["preemptedBy"] == "n/urgent"


async def test_a_job_none_of_whose_pods_finds_a_node_gives_way() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True, patience=3600) as jobs:
        await with_classes(jobs)
        jobs.refuses = lambda pod: pod["metadata"]["name"].startswith("victim-")
        await jobs.create("victim", workers=4)
        await jobs.until(lambda: len(jobs.pods("victim")) == 4)
        assert jobs.bound("victim") == 0
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.status("victim")["queue"]["preemptedBy"] == "n/urgent"


async def test_a_job_that_pauses_before_it_is_restarted_gives_way() -> None:
    async with Jobs(gpus={"a": 4}, preempts=True) as jobs:
        await with_classes(jobs)
        await jobs.create(
            "victim",
            framework="TensorFlow",
            roles={"Chief": role(1, gpus=1), "Worker": role(3, gpus=1)},
            runPolicy={"failurePolicy": {"restart": "All"}},
        )

        def pauses() -> bool:
            return "after a pause" in str(jobs.status("victim").get("message"))

        while not pauses():
            await jobs.until(
                lambda: pauses() or len([pod for pod in jobs.pods("victim") if starts(pod)]) == 4
            )
            if pauses():
                break
            await jobs.run("victim")
            failed = next(pod for pod in jobs.pods("victim") if "worker" in pod["metadata"]["name"])
            await jobs.end(failed, code=1)
            await jobs.until(lambda: "are restarted" in str(jobs.status("victim").get("message")))
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.status("victim")["queue"]["preemptedBy"] == "n/urgent"


def starts(pod: Object) -> bool:
    return phase_of(pod) == "Pending" and bool(pod["spec"].get("nodeName"))
