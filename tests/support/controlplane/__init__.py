"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK."""

from tests.support.controlplane.commands import Options
from tests.support.controlplane.instance import ControlPlane

__all__ = ["ControlPlane", "Options"]
