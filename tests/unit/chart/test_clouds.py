"""The files of values for clusters elsewhere (docs/how-to/clouds.md) render, and what they make is valid."""

from pathlib import Path

import pytest
from tests.unit.chart.conftest import ROOT, Helm, Object

from tdcs.api.cachecluster import CacheCluster
from tdcs.decide.worker_nodes import fitting_nodes

FILES = sorted((ROOT / "deploy" / "values").glob("*.yaml"))
GPU_NODES = {
    "aks": ({"kubernetes.azure.com/accelerator": "nvidia"}, ("sku", "gpu")),
    "eks": ({"nvidia.com/gpu.present": "true"}, ("nvidia.com/gpu", "present")),
    "gke": ({"tdcs.io/cache": "true"}, ("nvidia.com/gpu", "present")),
    "on-premises": ({"nvidia.com/gpu.present": "true"}, ("nvidia.com/gpu", "present")),
}
"""Labels and taint of a node with GPUs, as each cluster has them."""


def test_every_file_has_its_place_in_the_page_and_every_cluster_its_file() -> None:
    page = (ROOT / "docs" / "how-to" / "clouds.md").read_text()
    assert {file.stem for file in FILES} == GPU_NODES.keys()
    assert all(f"`deploy/values/{file.name}`" in page for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_values_give_gpu_nodes_workers_on_the_disk_that_the_plugin_sees(helm: Helm, file: Path) -> None:
    rendered = helm.template(files=[file])
    (obj,) = rendered.all("CacheCluster")
    cache = CacheCluster.model_validate(obj)

    labels, (key, value) = GPU_NODES[file.stem]
    node: Object = {
        "metadata": {"labels": labels},
        "spec": {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]},
    }
    plain_nodes: dict[str, Object] = {"plain": {"metadata": {"labels": {}}}}
    assert fitting_nodes(spec=cache.spec, nodes={"gpu": node, **plain_nodes}, present=()) == ["gpu"]

    folder = cache.spec.storage.tiers[0].path
    assert folder is not None
    mounted = {
        volume["hostPath"]["path"]
        for volume in rendered.pod_specs()["tdcs-csi"]["volumes"]
        if "hostPath" in volume
    }
    assert any(Path(folder).is_relative_to(path) for path in mounted), (folder, mounted)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_operator_and_scheduler_stay_off_nodes_that_an_autoscaler_removes(helm: Helm, file: Path) -> None:
    specs = helm.template(files=[file]).pod_specs()
    assert specs["tdcs-operator"]["nodeSelector"]
    assert specs["tdcs-operator"]["nodeSelector"] == specs["tdcs-scheduler"]["nodeSelector"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_image_comes_from_a_registry_that_the_file_does_not_name(helm: Helm, file: Path) -> None:
    images = {container["image"] for container in helm.template(files=[file]).containers().values()}
    own_images = {image for image in images if "kube-scheduler" not in image}
    assert own_images
    assert not {image for image in own_images if image.startswith(("tdcs/", "docker.io/"))}
