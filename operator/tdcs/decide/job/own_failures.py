"""Pods that failed themselves, as opposed to pods that were ended after another failure or by a deletion."""

from collections.abc import Iterable

from tdcs.model.job_pods import PodView


def failed_by_themselves(pods: Iterable[PodView]) -> list[PodView]:
    """The failed pods whose failure counts.

    A pod that is being deleted was ended by its Job after another pod failed, so its exit code says nothing, unless the
    cluster ended it. If all failed pods are being deleted, each counts: a user deleted one.
    """
    failed = [pod for pod in pods if pod.phase == "Failed"]
    return [pod for pod in failed if pod.disrupted or not pod.going] or failed
