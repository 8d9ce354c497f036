"""What the chart asks of cert-manager, on an API server that has cert-manager's own definitions.

They come with Go's module cache, and with TDCS_ECOSYSTEM=1 (`make ecosystem`) they are fetched; without them the test
is skipped. cert-manager itself does not run here.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.controlplane.operator_world import CHECKOUT
from tests.support.ecosystem.go_modules import module_folder
from tests.support.kube import Kube, KubeRequestError, Object

from tdcs.trust.roles import Role
from tdcs_local import programs

MODULE = "github.com/cert-manager/cert-manager@v1.21.0"


def rendered(namespace: str, **values: str) -> list[Object]:
    """The chart's Issuers and Certificates."""
    options = [word for name, value in values.items() for word in ("--set", f"trust.{name}={value}")]
    text = subprocess.run(
        [
            programs.ensure("helm") / "helm",
            *("template", "tdcs", CHECKOUT / "charts" / "tdcs", "--namespace", namespace),
            *("--show-only", "templates/cert-manager.yaml", "--kube-version", "1.34.0"),
            *("--set", "trust.enabled=true", "--set", "trust.provider=certManager", *options),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [obj for obj in yaml.safe_load_all(text) if obj]


@pytest.fixture
def definitions(kube: Kube, tmp_path: Path) -> None:
    """cert-manager's Issuers, ClusterIssuers and Certificates are known."""
    folder = module_folder("kueue", module=MODULE) / "deploy" / "crds"
    for kind in ("issuers", "certificates"):
        shutil.copy(folder / f"cert-manager.io_{kind}.yaml", tmp_path)
    kube.install_crds(tmp_path)


def lost(sent: Any, kept: Any) -> bool:
    """Whether something that was sent is not kept as it was: what a definition does not know, the server drops."""
    if isinstance(sent, dict):
        return not isinstance(kept, dict) or any(lost(value, kept.get(key)) for key, value in sent.items())
    return bool(sent != kept)


@pytest.mark.usefixtures("definitions")
def test_cert_managers_definitions_know_every_field_of_what_the_chart_asks_for(
    kube: Kube, namespace: str
) -> None:
    objects = {(obj["kind"], obj["metadata"]["name"]): kube.create(obj) for obj in rendered(namespace)}
    assert len(objects) == 2 + 1 + len(Role)  # two Issuers, the authority, a certificate for each role
    for obj in rendered(namespace):
        assert not lost(obj["spec"], objects[obj["kind"], obj["metadata"]["name"]]["spec"]), obj
    certificates = rendered(
        namespace, **{"certManager.issuer.name": "ours", "certManager.issuer.kind": "ClusterIssuer"}
    )
    assert len(certificates) == len(Role)
    for obj in certificates:
        assert not lost(obj["spec"], kube.apply(obj)["spec"]), obj


@pytest.mark.usefixtures("definitions")
def test_cert_managers_definitions_refuse_what_the_chart_would_not_ask_for(
    kube: Kube, namespace: str
) -> None:
    certificate = next(obj for obj in rendered(namespace) if obj["kind"] == "Certificate")
    unknown = {**certificate, "spec": {**certificate["spec"], "organisations": ["tdcs.io"]}}
    assert lost(unknown["spec"], kube.create(unknown)["spec"])
    usage = {**certificate, "metadata": {"name": "other", "namespace": namespace}}
    usage["spec"] = {**certificate["spec"], "usages": ["everything"]}
    with pytest.raises(KubeRequestError, match="usages"):
        kube.create(usage)
