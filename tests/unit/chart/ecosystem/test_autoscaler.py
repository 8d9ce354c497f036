"""The chart's HorizontalPodAutoscaler of the first cache cluster."""

import re
from collections.abc import Mapping

import pytest
from tests.support.documents import document
from tests.unit.chart.conftest import Helm, RefusedError, Rendered

from tdcs.api import names
from tdcs_labs.reference import metrics


def test_an_autoscaler_comes_with_its_rule_when_it_is_asked_for(helm: Helm, rendered: Rendered) -> None:
    assert not rendered.all("HorizontalPodAutoscaler")
    scaled = helm.template({"autoscaling": '{"enabled": true, "targetPercent": 70, "maxReplicas": 4}'})
    spec = scaled.one("HorizontalPodAutoscaler", "default")["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": names.API_VERSION,
        "kind": "CacheCluster",
        "name": "default",
    }
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)
    external = spec["metrics"][0]["external"]
    assert external["target"] == {"type": "AverageValue", "averageValue": "700m"}
    rules = document(scaled.one("ConfigMap", "tdcs-prometheus-adapter")["data"]["config.yaml"])
    (rule,) = rules["externalRules"]
    assert rule["name"]["as"] == external["metric"]["name"]
    for name in re.findall(r"tdcs_[a-z_]+", rule["metricsQuery"]):
        assert f"| `{name}` | gauge |" in metrics.markdown()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cacheCluster.spec.scaling.followJobs": "true"}, "choose one of them"),
        ({"cacheCluster.spec.replicas": "3"}, "remove cacheCluster.spec.replicas"),
        ({"autoscaling.minReplicas": "11"}, "must not be above"),
        ({"cacheCluster.create": "false"}, "set cacheCluster.create"),
    ],
)
def test_an_autoscaler_next_to_another_owner_of_the_number_is_refused(
    helm: Helm, values: Mapping[str, str], words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        helm.template({"autoscaling.enabled": "true", **values})
