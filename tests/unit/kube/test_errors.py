"""Which answers of the server are worth another try."""

import pytest

from tdcs.kube.errors import InvalidError, KubeError, UnavailableError, error_class

MISFIT = (
    "failed to create typed patch object (n/train-worker; batch/v1, Kind=Job): errors:\n"
    '  .spec.template.spec.containers[name="main"].command: expected list, got &{abc}'
)


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [
        (422, "spec.replicas: Invalid value", InvalidError),
        (500, MISFIT, InvalidError),
        (
            500,
            "failed to convert new object (n/a; batch/v1, Kind=Job): quantities must match the regular",
            InvalidError,
        ),
        (500, "etcdserver: request timed out", UnavailableError),
        (503, MISFIT, UnavailableError),
    ],
)
def test_what_does_not_fit_its_type_is_refused_and_not_an_outage(
    code: int, detail: str, kind: type[KubeError]
) -> None:
    assert error_class(code=code, detail=detail) is kind
