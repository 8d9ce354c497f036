"""What the extender measures. kube-scheduler itself has no metric for extenders and hides their failures in its
debug log.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tdcs.api.names import METRICS_PREFIX
from tdcs_scheduler.rank import AnswerKind

_PREFIX: Final = f"{METRICS_PREFIX}extender"
# Seconds: a call takes a fraction of a millisecond with some nodes and about one with 5000; 0.5 s is
# kube-scheduler's timeout.
_BUCKETS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class ExtenderMetrics:
    """The metrics of one extender, in a registry of their own."""

    def __init__(
        self,
        *,
        view_age_seconds: Callable[[], float],
        datasets: Callable[[], float],
        waiting_pods: Callable[[], float],
    ) -> None:
        self.registry: Final = CollectorRegistry()
        self.prioritize_seconds: Final = Histogram(
            f"{_PREFIX}_prioritize_seconds",
            "Time to decode a prioritize request, to score its nodes and to encode the answer.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._answers: Final = Counter(
            f"{_PREFIX}_answers",
            "Answers to prioritize requests by kind: "
            "scored, no_dataset, no_data, unknown_dataset (named by the pod, and not there), bad_annotation (of the "
            "pod), opted_out (by its label), no_reader (a worker of a pipeline that reads none), not_synced "
            "(Datasets not listed yet).",
            ["kind"],
            registry=self.registry,
        )
        # A pod that is retried is asked for again: this counts requests, not pods.
        self.answers: Final = {kind: self._answers.labels(kind.value) for kind in AnswerKind}
        self.decode_errors: Final = Counter(
            f"{_PREFIX}_decode_errors",
            "Requests that were refused because they are no prioritize request.",
            registry=self.registry,
        )
        reviews = Counter(
            f"{_PREFIX}_reviews",
            "Pods with a claim that the API server asked the webhook about, by whether it changed them so that they "
            "are placed by their data: their scheduler, or their node affinity.",
            ["placed_by_data"],
            registry=self.registry,
        )
        self.reviews: Final = {ours: reviews.labels(str(ours).lower()) for ours in (True, False)}
        self.review_seconds: Final = Histogram(
            f"{_PREFIX}_review_seconds",
            "Time to decode such a question and to encode the answer.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.claims_left_out: Final = Gauge(
            f"{_PREFIX}_claims_left_out",
            "Datasets for which the list of claims has no room (placeByData: Policy): pods with their claims go to the "
            "scheduler that they name, and are not placed by their data unless they name that of TDCS.",
            registry=self.registry,
        )
        Gauge(
            f"{_PREFIX}_view_age_seconds",
            "Time since the API server was last heard about Datasets; about a minute is normal when nothing changes.",
            registry=self.registry,
        ).set_function(view_age_seconds)
        Gauge(
            f"{_PREFIX}_datasets", "Datasets that the extender knows.", registry=self.registry
        ).set_function(datasets)
        Gauge(
            f"{_PREFIX}_waiting_pods",
            "Pods with datasets and without a node, those left out that fit nowhere now.",
            registry=self.registry,
        ).set_function(waiting_pods)
