"""Pods that do nothing but mount a Dataset's claim run on its nodes: by the real API server's admission, the real
kube-scheduler and the real extender."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping

import yaml
from tests.controlplane.extender_world import (
    CRDS,
    SCHEDULER,
    Extender,
    extender,
    landed,
    put_claim,
    put_dataset,
    start_extender,
)
from tests.controlplane.pod_admission import (
    CHART,
    admission,
    extender_with_webhook,
    gets_our_scheduler,
    held_back,
    job_of,
    unnamed,
)
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes, OwnControlPlane
from tests.support.kube import Kube, Object
from tests.support.kube.claimed_pods import CLAIM, NEW_PODS, volumes
from tests.support.kube.describe import describe
from tests.support.report import Measured
from tests.support.waiting import eventually

from tdcs.decide.place.pod_affinity import PREFERRED, named_node
from tdcs_local import programs

__all__ = ["extender"]

GB = 10**9
POLICIES_SERVED = {
    "kube-apiserver": [
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    ]
}
"""Kubernetes 1.34 has the policies for those who ask for them."""


def test_a_job_and_a_bare_pod_go_by_their_claim_through_the_extender_alone(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=4)
    put_dataset(extender, kube, namespace=namespace, held={nodes[3]: GB, nodes[7]: GB}, name=CLAIM)
    put_claim(kube, namespace=namespace, name=CLAIM)

    pod = unnamed("by-hand", namespace=namespace, set_="data", schedulerName=SCHEDULER)
    kube.create(pod)
    kube.create(job_of(pod, pods=5))
    places = landed(kube, namespace=namespace, count=6, labels={"set": "data"})

    assert set(places) <= {nodes[3], nodes[7]}, extender.process.tail()


def test_a_dataset_that_is_deleted_while_its_pod_waits_holds_nothing_up(
    control_plane: ControlPlane, extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=4)
    annotation = put_dataset(extender, kube, namespace=namespace, held={nodes[2]: GB}, name=CLAIM)
    put_claim(kube, namespace=namespace, name=CLAIM)
    with control_plane.process("kube-scheduler-tdcs").away():
        kube.create(unnamed("waits", namespace=namespace, set_="data", schedulerName=SCHEDULER))
        # The claim stays for now, as with an operator that is away.
        orphan = {"metadata": {"ownerReferences": None}}
        kube.patch("PersistentVolumeClaim", CLAIM, orphan, namespace=namespace)
        kube.delete("Dataset", CLAIM, namespace=namespace)
        eventually(lambda: not extender.scored(annotation), deadline=60)

    assert sum(landed(kube, namespace=namespace, count=1, labels={"set": "data"}).values()) == 1


def test_a_claim_without_a_dataset_is_placed_as_by_any_scheduler(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=5)
    put_dataset(extender, kube, namespace=namespace, held={nodes[1]: GB}, name="others")
    stranger = {"metadata": {"name": CLAIM, "namespace": namespace, "uid": "of-no-dataset"}}
    claim = put_stranger(kube, stranger)

    for number in range(5):
        kube.create(unnamed(f"p{number}", namespace=namespace, set_="data", schedulerName=SCHEDULER))

    assert landed(kube, namespace=namespace, count=5, labels={"set": "data"}) == dict.fromkeys(nodes, 1)
    assert extender.answers("no_dataset") >= 4
    kube.delete("PersistentVolume", claim)


def put_stranger(kube: Kube, named: Object) -> str:
    """A claim that belongs to no Dataset; gives the name of its volume."""
    namespace, name = named["metadata"]["namespace"], named["metadata"]["name"]
    size = {"storage": "1Mi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"own-{namespace}"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadOnlyMany"],
            "claimRef": {"namespace": namespace, "name": name},
            "hostPath": {"path": "/nowhere"},
        },
    }
    kube.create(volume)
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": named["metadata"] | {"uid": None},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": volume["metadata"]["name"],  # type: ignore[index]
                "resources": {"requests": size},
            },
        }
    )
    return f"own-{namespace}"


def schedulers_of_new_pods(kube: Kube, *, namespace: str) -> Mapping[str, str]:
    """The scheduler that each pod of the table gets. The pods are only tried, so that none has to be placed."""
    return {
        name: kube.create(held_back(pod.build(name=name, namespace=namespace)))["spec"]["schedulerName"]
        for name, pod in NEW_PODS.items()
    }


def expected() -> Mapping[str, str]:
    return {
        name: SCHEDULER if pod.ours else str(pod.spec.get("schedulerName", "default-scheduler"))
        for name, pod in NEW_PODS.items()
    }


def test_an_upgrade_keeps_the_certificate_that_the_api_server_trusts(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    def made() -> list[Object]:
        text = subprocess.run(
            [
                *(programs.ensure("helm") / "helm", "template", "tdcs", CHART, "--namespace", namespace),
                *("--dry-run=server", "--kubeconfig", control_plane.kubeconfig),
                *("--show-only", "templates/place-by-data.yaml", "--set", "placeByData=Webhook"),
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        return [obj for obj in yaml.safe_load_all(text) if obj]

    first = made()
    assert made() != first, "there was nothing to keep"
    (secret,) = (obj for obj in first if obj["kind"] == "Secret")
    kube.create(secret)
    assert made() == first


def test_the_webhook_brings_pods_with_a_claim_and_no_others(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=10, gpus=4)
    with extender_with_webhook(control_plane, namespace=namespace) as extender:
        put_dataset(extender, kube, namespace=namespace, held={nodes[3]: GB, nodes[7]: GB}, name=CLAIM)
        put_claim(kube, namespace=namespace, name=CLAIM)
        tries = iter(range(1000))
        eventually(
            lambda: gets_our_scheduler(kube, namespace=namespace, tries=tries),
            deadline=60,
            describe=extender.process.tail,
        )

        assert schedulers_of_new_pods(kube, namespace=namespace) == expected()

        pod = unnamed("bare", namespace=namespace, set_="data")
        kube.create(pod)
        kube.create(job_of(pod, pods=5))
        assert set(landed(kube, namespace=namespace, count=6, labels={"set": "data"})) <= {nodes[3], nodes[7]}

        extender.process.kill()
        away = kube.create(held_back(unnamed("webhook-away", namespace=namespace, set_="away")))
        assert away["spec"]["schedulerName"] == "default-scheduler"


def test_the_policy_brings_pods_with_a_claim_and_no_others(
    own_control_plane: OwnControlPlane,
) -> None:
    plane = own_control_plane(extra_args=POLICIES_SERVED)
    kube, namespace = plane.kube, "default"
    kube.install_crds(CRDS)
    objects = admission(kube, namespace=namespace, values=["placeByData=Auto", "placeByAffinity=false"])
    assert {obj["kind"] for obj in objects} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ConfigMap",
    }
    extender = start_extender(plane, options=[f"--claim-list-namespace={namespace}"])
    put_dataset(extender, kube, namespace=namespace, held={"a": GB}, name=CLAIM)
    tries = iter(range(1000))
    eventually(
        lambda: gets_our_scheduler(kube, namespace=namespace, tries=tries),
        deadline=60,
        describe=lambda: describe(kube, namespace=namespace, kinds=("ConfigMap", "MutatingAdmissionPolicy")),
    )

    assert schedulers_of_new_pods(kube, namespace=namespace) == expected()

    kube.delete("Dataset", CLAIM, namespace=namespace)
    eventually(lambda: not gets_our_scheduler(kube, namespace=namespace, tries=tries), deadline=60)
    # Without its list the policy lets every pod be.
    kube.delete("ConfigMap", "tdcs-claims", namespace=namespace)
    pod = held_back(unnamed("no-list", namespace=namespace, set_="away"))
    assert kube.create(pod)["spec"]["schedulerName"] == "default-scheduler"


def bytes_on_nodes(kube: Kube, *, namespace: str, held: Mapping[str, Mapping[str, int]], set_: str) -> int:
    """The bytes of each pod's Dataset that its node holds, over all pods of a set."""
    pods = [
        pod
        for pod in kube.list("Pod", namespace=namespace)
        if pod["metadata"].get("labels", {}).get("set") == set_
    ]
    claims = [
        (volume["persistentVolumeClaim"]["claimName"], pod["spec"]["nodeName"])
        for pod in pods
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    return sum(held[claim].get(node, 0) for claim, node in claims)


def test_the_stock_scheduler_reaches_nearly_the_same_bytes_by_the_affinity_that_pods_get(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes, measured: Measured
) -> None:
    """200 pods on 32 nodes, which read four Datasets: each is on ten nodes, in unequal parts."""
    nodes = fake_nodes(count=32, gpus=8)
    held = {
        f"data-{number}": {
            nodes[(number * 8 + place) % 32]: GB * (10 if place < 6 else 4) for place in range(10)
        }
        for number in range(4)
    }
    with extender_with_webhook(control_plane, namespace=namespace) as extender:
        for name, where in held.items():
            put_dataset(extender, kube, namespace=namespace, held=where, name=name)
            put_claim(kube, namespace=namespace, name=name)
        tries = iter(range(1000))
        eventually(
            lambda: affinity_of(kube, namespace=namespace, claim="data-0", tries=tries),
            deadline=60,
            describe=extender.process.tail,
        )
        local_bytes = {}
        for set_, scheduler in (("ours", SCHEDULER), ("stock", "default-scheduler")):
            for number in range(200):
                claimed = {"volumes": volumes(f"data-{number % 4}"), "schedulerName": scheduler}
                pod = unnamed(f"{set_}-{number}", namespace=namespace, set_=set_, **claimed)
                if set_ == "stock":
                    pod["metadata"]["annotations"] = {"tdcs.io/data-affinity": "preferred"}
                kube.create(pod)
            landed(kube, namespace=namespace, count=200, labels={"set": set_})
            local_bytes[set_] = bytes_on_nodes(kube, namespace=namespace, held=held, set_=set_)
            for number in range(200):
                kube.delete("Pod", f"{set_}-{number}", namespace=namespace)

    share = local_bytes["stock"] / local_bytes["ours"]
    measured(f"bytes on node, stock scheduler over ours: {share:.2f} ({local_bytes})")
    assert share >= 0.9


def affinity_of(kube: Kube, *, namespace: str, claim: str, tries: Iterator[int]) -> Object:
    """The affinity that a new pod of another scheduler gets; empty while the webhook is not called."""
    spec = {"volumes": volumes(claim), "schedulerName": "volcano"}
    pod = kube.create(unnamed(f"other-{next(tries)}", namespace=namespace, set_="tried", **spec))
    return dict(pod["spec"].get("affinity") or {})


def test_a_gated_pod_of_another_scheduler_goes_by_what_holds_when_its_gate_goes(
    control_plane: ControlPlane, kube: Kube, namespace: str, fake_nodes: FakeNodes
) -> None:
    nodes = fake_nodes(count=3)
    with extender_with_webhook(control_plane, namespace=namespace) as extender:
        put_dataset(extender, kube, namespace=namespace, held={nodes[0]: GB}, name=CLAIM)
        put_claim(kube, namespace=namespace, name=CLAIM)
        tries = iter(range(1000))
        eventually(
            lambda: affinity_of(kube, namespace=namespace, claim=CLAIM, tries=tries),
            deadline=60,
            describe=extender.process.tail,
        )
        pod = kube.create(held_back(unnamed("gated", namespace=namespace, set_="g", schedulerName="volcano")))
        assert preferred_nodes(pod) == [nodes[0]]

        copies = [{"id": "0", "nodes": [{"name": nodes[2], "bytes": GB}]}]
        kube.patch(
            "Dataset", CLAIM, {"status": {"copies": copies}}, namespace=namespace, subresource="status"
        )
        eventually(
            lambda: (
                preferred_nodes(
                    kube.create(
                        held_back(
                            unnamed(
                                f"again-{next(tries)}", namespace=namespace, set_="g", schedulerName="volcano"
                            )
                        )
                    )
                )
                == [nodes[2]]
            ),
            deadline=60,
        )
        kube.patch("Pod", "gated", {"spec": {"schedulingGates": None}}, namespace=namespace)

        assert preferred_nodes(kube.get("Pod", "gated", namespace=namespace)) == [nodes[2]]


def preferred_nodes(pod: Object) -> list[str]:
    """The nodes that a pod prefers by their names."""
    node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return [name for term in node.get(PREFERRED) or () for name in named_node(term["preference"])]
