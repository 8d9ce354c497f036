"""A job without GPUs in a cluster that has some gets one warning and runs all the same."""

from typing import Any

import pytest
from tests.unit.control.jobs import GPU, Jobs

from tdcs.model.kube_resources import EVENTS


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "train", **container}]}}


def warnings(jobs: Jobs) -> list[str]:
    return [
        str(event["message"])
        for event in jobs.server.store(EVENTS).values()
        if event["reason"] == "NoGPUsAsked"
    ]


CASES: dict[str, tuple[dict[str, int], str, dict[str, Any], bool]] = {
    "no GPUs asked for": ({"a": 4}, "PyTorch", {}, True),
    "GPUs asked for": ({"a": 4}, "PyTorch", {"resources": {"limits": {GPU: 1}}}, False),
    "a part of a GPU": ({"a": 4}, "PyTorch", {"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}, False),
    "another maker's GPU": ({"a": 4}, "PyTorch", {"resources": {"limits": {"amd.com/gpu": 1}}}, False),
    "no node has any": ({"a": 0}, "PyTorch", {}, False),
    "anything": ({"a": 4}, "None", {}, False),
}


@pytest.mark.parametrize("case", CASES)
async def test_who_forgot_the_gpus_hears_of_it(case: str) -> None:
    gpus, framework, container, warned = CASES[case]
    async with Jobs(gpus=gpus) as jobs:
        await jobs.create(
            "train",
            framework=framework,
            roles={"Worker": {"replicas": 1, "template": pod(**container)}},
        )
        await jobs.until(lambda: jobs.status("train").get("conditions"))
        assert len(warnings(jobs)) == warned
        if warned:
            assert "none of its pods asks for a GPU, and 1 node has some" in warnings(jobs)[0]
