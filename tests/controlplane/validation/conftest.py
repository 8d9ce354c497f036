"""An API server with the custom resources and nothing else of TDCS."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.controlplane import ControlPlane
from tests.support.kube import Kube

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(shared_control_plane: ControlPlane) -> Kube:
    """A client of an API server that knows the custom resources."""
    shared_control_plane.kube.install_crds(CHECKOUT / "crds")
    return shared_control_plane.kube


@pytest.fixture(scope="module")
def shared_namespace(installed: Kube) -> Iterator[str]:
    """A namespace for objects that are refused, and so leave nothing behind."""
    name = f"refused-{uuid.uuid4().hex[:6]}"
    installed.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    installed.delete("Namespace", name)
