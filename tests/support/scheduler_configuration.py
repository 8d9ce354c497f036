"""The KubeSchedulerConfiguration of the scheduler that asks the extender, as the chart has it, with its reasons."""

from typing import Any, Final

from tdcs.api import names

PRIORITIZE_VERB: Final = "prioritize"

EXTENDER_WEIGHT: Final = 51
"""How much the data counts: an extender's score of 0 to 10 enters the sum as score x weight x 10.

What kube-scheduler's own plugins say without any wish of the user is at most 500 points apart: even spread of pods
200, free resources 100, their balance 100, images already there 100. With weight 51 a node with any of a pod's data
gets at least 510, so it comes before every node with none, and among those with data the one with a tenth more of it
comes first. A wish that the user wrote down (preferred affinity to nodes or pods, 200 each, or a PreferNoSchedule
taint, 300) decides between nodes with about the same data; a required one is never overruled.
"""

EXTENDER_TIMEOUT: Final = "500ms"
"""kube-scheduler waits for the extender in the one loop that places all pods: its default of 5 s would stop the
cluster.
"""


def scheduler_configuration(
    *,
    scheduler_name: str = names.SCHEDULER_NAME,
    extender_url: str = f"http://127.0.0.1:{names.EXTENDER_PORT}",
    weight: int = EXTENDER_WEIGHT,
) -> dict[str, Any]:
    """The configuration for one replica of kube-scheduler with the extender next to it.

    All feasible nodes are scored: kube-scheduler otherwise looks at a sample of a larger cluster, and the sample may
    miss the data.
    """
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": scheduler_name}],
        "extenders": [
            {
                "urlPrefix": extender_url,
                "prioritizeVerb": PRIORITIZE_VERB,
                "weight": weight,
                "nodeCacheCapable": True,
                "httpTimeout": EXTENDER_TIMEOUT,
                "ignorable": True,
            }
        ],
    }
