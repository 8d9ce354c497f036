"""Whose failure counts: pods that were ended because another failed, or somebody deleted them, did not fail."""

from collections.abc import Iterable

from tdcs.model.job_pods import PodView


def failed_by_themselves(pods: Iterable[PodView]) -> list[PodView]:
    """The failed pods whose failure counts.

    A pod that is being deleted was ended by its Job, once another had failed, and by what exit code it answered the
    signal says nothing; unless the cluster ended it. Where all are being deleted, each counts: somebody deleted one.
    """
    failed = [pod for pod in pods if pod.phase == "Failed"]
    return [pod for pod in failed if pod.disrupted or not pod.going] or failed
