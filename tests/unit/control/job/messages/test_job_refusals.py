"""Jobs that the API server does not take: what is said of them, and which of them end the TrainingJob."""

from typing import Any

import pytest
from tests.unit.control.builders import job_spec
from tests.unit.control.jobs import Jobs
from tests.unit.control.kueue.test_kueue_jobs import QUEUE

from tdcs.control.job.refusal_message import ChildRefusal, child_refusal_of
from tdcs.kube.errors import ForbiddenError, InvalidError, KubeError, UnavailableError
from tdcs.model.kube_resources import JOBS, PROVISIONING_REQUESTS, SERVICES, WORKLOADS, Resource

TYPED = "failed to create typed patch object (n/train-worker; batch/v1, Kind=Job): "
INVALID = 'Job.batch "train-worker" is invalid: '
NODE_NAEM = f"{TYPED}.spec.template.spec.nodeNaem: field not declared in schema"
REFUSED = "the API server refuses the Job of role Worker: "
WEBHOOK = 'admission webhook "gate.example.com" denied the request: not on Fridays'
POLICY = (
    "jobs.batch \"train-worker\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
    "spec.template.spec.hostNetwork is not allowed"
)
IMMUTABLE = f"{INVALID}spec.template: Invalid value: {{}}: field is immutable"


def raised(
    detail: str,
    kind: type[KubeError] = InvalidError,
    *,
    resource: Resource = JOBS,
    name: str = "train-worker",
) -> KubeError:
    code = 403 if kind is ForbiddenError else 422
    return kind(
        verb="apply", resource=resource, namespace="n", name=name, code=code, reason="", detail=detail
    )


def refusal(error: Exception) -> ChildRefusal:
    return child_refusal_of(error, job="train", spec=job_spec())


SEVERAL_MISFITS = (
    f"{TYPED}errors:\n  .spec.template.spec.nodeNaem: field not declared in schema\n"
    '  .spec.template.spec.containers[name="main"].command: expected list, got &{abc}'
)
SEVERAL_VALUES = (
    f"{INVALID}[spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "
    '"-1": must be greater than or equal to 0, '
    'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "x"]'
)
QUANTITY = (
    "failed to convert new object (n/train-worker; batch/v1, Kind=Job): quantities must match the "
    "regular expression"
)
FIELDS = {
    NODE_NAEM: "template.spec.nodeNaem: no such field",
    SEVERAL_MISFITS: (
        'template.spec.nodeNaem: no such field; template.spec.containers[name="main"].command: '
        "expected list, got abc"
    ),
    SEVERAL_VALUES: (
        'template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "-1": must be '
        'greater than or equal to 0, template.spec.containers[0].volumeMounts[0].name: Not found: "x"'
    ),
    QUANTITY: "quantities must match the regular expression",
}


@pytest.mark.parametrize("detail", FIELDS)
def test_a_template_that_makes_no_valid_job_is_refused_for_good_by_role_and_field(
    detail: str,
) -> None:
    assert refusal(raised(detail)) == ChildRefusal(message=f"{REFUSED}{FIELDS[detail]}", lasts=True)


@pytest.mark.parametrize(
    "detail", [WEBHOOK, POLICY, IMMUTABLE, f"{INVALID}spec.backoffLimit: Invalid value: -1"]
)
def test_a_refusal_that_may_pass_does_not_last(detail: str) -> None:
    refused_child = refusal(raised(detail))
    assert not refused_child.lasts
    assert refused_child.message.startswith(REFUSED)
    assert refused_child.message.endswith(detail.removeprefix(INVALID).replace("spec.template:", "template:"))


def test_a_missing_right_a_quota_and_a_service_are_said_as_the_server_says_them() -> None:
    for error in (
        raised("exceeded quota: jobs", ForbiddenError),
        raised(NODE_NAEM, ForbiddenError),
        raised("spec.ports: Invalid value", resource=SERVICES, name="train"),
    ):
        assert refusal(error) == ChildRefusal(message=str(error), lasts=False)


def test_a_mount_path_that_a_dataset_has_already_is_said() -> None:
    detail = (
        f'{TYPED}.spec.template.spec.containers[name="main"].volumeMounts: duplicate entries for key '
        '[mountPath="/data"]'
    )
    uses = [{"name": "pictures", "mountPath": "/data"}]
    refused_child = child_refusal_of(raised(detail), job="train", spec=job_spec(datasets=uses))
    assert refused_child.message.endswith(
        '[mountPath="/data"]; a dataset of the job is mounted at /data already'
    )


def refusing(jobs: Jobs, detail: str, kind: type[KubeError] = InvalidError) -> None:
    """The API server takes no Job."""

    def refuse(verb: str, resource: Resource) -> None:
        if resource is JOBS and verb == "create":
            raise raised(detail, kind)

    jobs.server.refuse = refuse


@pytest.fixture
def tried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused is tried again at once."""
    monkeypatch.setattr("tdcs.control.job.job_controller.REFUSED_RETRY", 0.05)


@pytest.mark.usefixtures("tried_soon")
async def test_a_template_that_makes_no_valid_job_for_ten_minutes_fails_the_job_with_a_remedy() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        refusing(jobs, NODE_NAEM)
        await jobs.create()
        await jobs.until(lambda: jobs.status().get("reason") == "ChildRefused")
        assert jobs.status()["state"] == "Waiting"
        jobs.advance(590)
        passes = jobs.passes
        await jobs.until(lambda: jobs.passes > passes + 2)
        assert jobs.status()["state"] == "Waiting"
        jobs.advance(15)
        await jobs.until_state("Failed")
        status = jobs.status()
        assert status["reason"] == "ChildRefused"
        assert status["message"] == (
            f"{REFUSED}template.spec.nodeNaem: no such field; correct it, and create the job again"
        )
        assert status["completionTime"]
        assert "startTime" not in status
        assert {kind: jobs.condition(kind)["status"] for kind in ("Failed", "Admitted", "Running")} == {
            "Failed": "True",
            "Admitted": "False",
            "Running": "False",
        }
        # When it is refused, and when it fails: the event is written after the status.
        await jobs.until(lambda: jobs.events().count("ChildRefused") == 2)
        # It is over, whatever the API server would take now.
        jobs.server.refuse = lambda verb, resource: None
        passes = jobs.passes
        jobs.gangs.touch()
        await jobs.create("other")
        await jobs.until(lambda: jobs.bound("other") == 2)
        assert jobs.passes > passes
        assert jobs.status()["state"] == "Failed"
        assert not jobs.pods("train")


@pytest.mark.usefixtures("tried_soon")
async def test_a_template_that_a_webhook_spoils_for_minutes_fails_no_job() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        refusing(jobs, SEVERAL_VALUES)
        await jobs.create()
        await jobs.until(lambda: jobs.status().get("reason") == "ChildRefused")
        jobs.advance(400)
        refusing(jobs, f'{INVALID}spec.template.spec.containers[1].volumeMounts[0].name: Not found: "y"')
        await jobs.until(lambda: "containers[1]" in jobs.status()["message"])
        jobs.server.refuse = lambda verb, resource: None
        await jobs.until(lambda: jobs.bound("train") == 2)


@pytest.mark.usefixtures("tried_soon")
@pytest.mark.parametrize(
    ("detail", "kind"),
    [(WEBHOOK, InvalidError), (POLICY, InvalidError), (IMMUTABLE, InvalidError), (NODE_NAEM, ForbiddenError)],
)
async def test_a_job_that_a_policy_refuses_waits_and_starts_once_it_does_not(
    detail: str, kind: type[KubeError]
) -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        refusing(jobs, detail, kind)
        await jobs.create()
        await jobs.until_state("Waiting")
        await jobs.until(lambda: jobs.status().get("reason") == "ChildRefused")
        jobs.server.refuse = lambda verb, resource: None
        await jobs.until(lambda: jobs.bound("train") == 2)


WEBHOOK_AWAY = 'failed calling webhook "validate.example.com": no endpoints available'
NEEDED: dict[tuple[str, Resource], dict[str, Any]] = {
    ("create", JOBS): {},
    ("create", SERVICES): {},
    ("create", WORKLOADS): {"kueue": True},
    ("get", WORKLOADS): {"kueue": True},  # Kueue's webhook converts its versions
    ("create", PROVISIONING_REQUESTS): {"provisioning": "ProvisioningRequest"},
}


def webhook_is_away(jobs: Jobs, verb: str, resource: Resource) -> None:
    """Requests of this kind fail as they do where a webhook has no endpoints."""

    def refuse(requested: str, of: Resource) -> None:
        if (requested, of) == (verb, resource):
            raise UnavailableError(
                verb=verb,
                resource=resource,
                namespace="n",
                name="train",
                code=500,
                reason="InternalError",
                detail=WEBHOOK_AWAY,
            )

    jobs.server.refuse = refuse


@pytest.mark.usefixtures("tried_soon")
@pytest.mark.parametrize(
    ("verb", "resource"), NEEDED, ids=[f"{verb} {resource.kind}" for verb, resource in NEEDED]
)
@pytest.mark.failure_mode("webhook-silent")
async def test_a_job_that_an_absent_webhook_holds_up_says_so_and_goes_on_when_it_is_back(
    verb: str, resource: Resource
) -> None:
    options = NEEDED[verb, resource]
    async with Jobs(gpus={"a": 8}, **options) as jobs:
        webhook_is_away(jobs, verb, resource)
        await jobs.create(workers=16 if "provisioning" in options else 2, labels=QUEUE)
        await jobs.until(lambda: jobs.status().get("reason") == "ChildNotMade")
        assert jobs.status()["state"] == "Waiting"
        assert f"cannot {verb} {resource.kind} n/train: {WEBHOOK_AWAY}" in jobs.status()["message"]
        await jobs.until(lambda: "ChildNotMade" in jobs.events())
        jobs.server.refuse = lambda verb, resource: None
        if resource in (JOBS, SERVICES):
            await jobs.until(lambda: jobs.bound("train") == 2)
        else:
            await jobs.until(lambda: bool(jobs.server.store(resource)))
            await jobs.until_state("Queued")


@pytest.mark.usefixtures("tried_soon")
async def test_a_restart_that_an_absent_webhook_holds_up_says_so_and_counts_once() -> None:
    async with Jobs(gpus={"a": 8}) as jobs:
        await jobs.create(framework="PyTorch")
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        webhook_is_away(jobs, "delete", JOBS)
        await jobs.end(jobs.pods("train")[0], code=1)
        await jobs.until(lambda: jobs.status().get("reason") == "ChildNotMade")
        assert f"cannot delete Job n/train: {WEBHOOK_AWAY}" in jobs.status()["message"]
        jobs.server.refuse = lambda verb, resource: None
        await jobs.until_running()
        assert jobs.status()["restarts"] == 1
