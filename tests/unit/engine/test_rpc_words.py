"""Users read no names of gRPC: what they do about a failure is in words that a user of Kubernetes knows."""

import re

import grpc
import pytest

from tdcs.alluxio.plain_reason import plain_reason
from tdcs.model.job_pods import pod_view

CODES = list(grpc.StatusCode)


def rpc_words(text: str) -> list[str]:
    """The words of gRPC in a message."""
    return [
        *(code.name for code in CODES if re.search(rf"\b{code.name}\b", text)),
        *re.findall(r"rpc error|StatusCode|StatusRuntimeException|code = \w+", text),
    ]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "text", ["", "io.grpc.StatusRuntimeException: {code}: failed to connect", "safe mode"]
)
def test_no_reason_has_words_of_grpc(code: grpc.StatusCode, text: str) -> None:
    assert not rpc_words(plain_reason(text.format(code=code.name)))


def test_what_the_kubelet_repeats_of_a_call_is_told_without_the_call() -> None:
    image = 'rpc error: code = NotFound desc = failed to pull and unpack image "x": not found'
    waiting = {"reason": "ErrImagePull", "message": image}
    pod = {
        "metadata": {"name": "train-worker-0"},
        "spec": {"nodeName": "a"},
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}],
        },
    }
    view = pod_view(pod)
    assert str(view.waiting) == 'ErrImagePull: failed to pull and unpack image "x": not found'
    assert not rpc_words(str(view.waiting))
