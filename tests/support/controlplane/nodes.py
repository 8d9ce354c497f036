"""Nodes that KWOK plays, in any number."""

from collections.abc import Mapping, Sequence

from tests.support.controlplane.commands import KWOK
from tests.support.controlplane.instance import ControlPlane
from tests.support.kube import Object, condition
from tests.support.kube.objects import fake_node
from tests.support.waiting import eventually


def add_fake_nodes(
    plane: ControlPlane,
    *,
    names: Sequence[str],
    gpus: int,
    labels: Mapping[str, str] | None = None,
    deadline: float = 180,
) -> None:
    """Create nodes with ``gpus`` GPUs each, and wait until pods can be scheduled on all of them."""
    plane.kube.create_many(fake_node(name=name, gpus=gpus, labels=labels) for name in names)
    expected = set(names)

    def missing() -> set[str]:
        return expected - {node["metadata"]["name"] for node in plane.kube.list("Node") if _is_usable(node)}

    eventually(
        lambda: not missing(),
        deadline=deadline,
        describe=lambda: f"not usable: {sorted(missing())[:20]}\n{plane.process(KWOK).tail()}",
        interval=0.25,
    )


def _is_usable(node: Object) -> bool:
    # A new node carries the not-ready taint until the node controller has seen it Ready.
    return condition(node, "Ready") == "True" and not node["spec"].get("taints")
