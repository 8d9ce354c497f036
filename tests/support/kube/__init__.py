"""Kubernetes for tests: a client on plain dicts, the objects that tests create, and what they say when a wait fails."""

from tests.support.kube.client import Kube, KubeRequestError, Object, Resource, UnknownKindError, condition

__all__ = ["Kube", "KubeRequestError", "Object", "Resource", "UnknownKindError", "condition"]
