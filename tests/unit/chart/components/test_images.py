"""Which images the chart's programs and the cache's pods are started from."""

import json
from pathlib import Path

import pytest
from tests.support.documents import document
from tests.unit.chart.conftest import CHART, Helm, RefusedError, Rendered


def test_the_operator_knows_its_own_image_for_the_agents(rendered: Rendered) -> None:
    (operator,) = rendered.pod_specs()["tdcs-operator"]["containers"]
    assert f"--agent-image={operator['image']}" in operator["args"]


def test_images_have_the_charts_version_unless_another_is_named(helm: Helm, default: Rendered) -> None:
    version = document((CHART / "Chart.yaml").read_text())["appVersion"]
    assert default.containers()["tdcs-operator/operator"]["image"] == f"tdcs/tdcs:{version}"
    assert f"--image=tdcs/alluxio:{version}" in default.containers()["tdcs-operator/operator"]["args"]

    containers = helm.template({"image.tag": '"t1"', "alluxio.image.tag": '"t2"'}).containers()
    assert containers["tdcs-csi/csi"]["image"] == "tdcs/tdcs:t1"
    assert "--image=tdcs/alluxio:t2" in containers["tdcs-operator/operator"]["args"]


@pytest.mark.threat("image-registry")
def test_a_digest_wins_over_a_tag_for_every_image(helm: Helm) -> None:
    images = ("image", "alluxio.image", "scheduler.image")
    digest = {name: f"sha256:{number:064x}" for number, name in enumerate(images)}
    values = {f"{name}.digest": json.dumps(value) for name, value in digest.items()}
    rendered = helm.template({**values, "image.tag": '"t1"'})
    scheduler = f"registry.k8s.io/kube-scheduler@{digest['scheduler.image']}"
    used = {container["image"] for container in rendered.containers().values()}
    assert used == {f"tdcs/tdcs@{digest['image']}", scheduler}
    operator = rendered.containers()["tdcs-operator/operator"]["args"]
    assert f"--image=tdcs/alluxio@{digest['alluxio.image']}" in operator
    assert f"--agent-image=tdcs/tdcs@{digest['image']}" in operator
    stock = helm.template({**values, "cacheCluster.spec.profile": '"Stock"'})
    policy = stock.one("ValidatingAdmissionPolicy", "tdcs-operator")
    assert f"tdcs/alluxio@{digest['alluxio.image']}" in json.dumps(policy), "the FUSE client's image"


@pytest.mark.parametrize("digest", ["sha256:1", "4f53", f"sha512:{'a' * 64}", f"sha256:{'A' * 64}"])
@pytest.mark.threat("image-registry")
def test_what_is_no_digest_is_refused(helm: Helm, digest: str) -> None:
    with pytest.raises(RefusedError, match="digest"):
        helm.template({"image.digest": json.dumps(digest)})


def test_the_caches_pods_pull_with_the_charts_secrets(helm: Helm) -> None:
    rendered = helm.template({"imagePullSecrets": '[{"name": "a"}, {"name": "b"}]'})
    arguments = rendered.containers()["tdcs-operator/operator"]["args"]
    assert [a for a in arguments if "pull" in a] == ["--image-pull-secret=a", "--image-pull-secret=b"]


def test_the_notes_name_the_images_that_have_no_digest(helm: Helm, tmp_path: Path) -> None:
    digest = json.dumps(f"sha256:{'a' * 64}")
    unset = "alluxio.image.digest, image.digest, scheduler.image.digest"
    assert unset in helm.notes({}, folder=tmp_path)
    values = {"image.digest": digest, "alluxio.image.digest": digest}
    assert "  scheduler.image.digest\n" in helm.notes(values, folder=tmp_path)
    assert "by tag" not in helm.notes({**values, "scheduler.enabled": "false"}, folder=tmp_path)
    assert "by tag" not in helm.notes({**values, "scheduler.image.digest": digest}, folder=tmp_path)
