"""What a stolen token of the operator cannot do: by its rights, and by the chart's policies where these go too far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest
from tests.controlplane.operator_command import install_rights, remove_cluster_wide
from tests.controlplane.operator_world import API_VERSION, World, world
from tests.controlplane.rights.stolen_objects import (
    WRITABLE,
    adding,
    claim,
    config_map,
    container,
    endings,
    host_path,
    job,
    labelled,
    labels_of_part,
    metadata,
    owner,
    secret,
    secret_volume,
    service,
    thefts,
    volume,
    workload,
)
from tests.support.kube import Kube, KubeRequestError, Object

from tdcs.control.dataset.access import volume_objects as objects

__all__ = ["world"]

RIGHTS = ["operator-rbac", "operator"]
NODE_NAMED_X = {"key": "metadata.name", "operator": "In", "values": ["x"]}


@pytest.fixture
def release(world: World) -> Iterator[str]:
    """The operator's account with its rights, and none of the policies."""
    name = f"tdcs-{world.cluster}"
    objects = install_rights(world.kube, release=name, namespace=world.namespace, templates=RIGHTS)
    yield name
    remove_cluster_wide(world.plane, objects)


@pytest.fixture
def thief(world: World, release: str) -> Kube:
    """A client with the operator's token."""
    return world.plane.client_as(service_account=f"{release}-operator", namespace=world.namespace)


@pytest.fixture
def policies(world: World, release: str) -> Iterator[Policies]:
    """The chart's policies, which the test puts in force."""
    policies = Policies(world, release)
    yield policies
    policies.remove()


class Policies:
    """The chart's admission policies about the operator's account, in all namespaces."""

    def __init__(self, world: World, release: str) -> None:
        self._world = world
        self._release = release
        self._objects: list[Object] = []

    def enforce(self, probe: Object, *, by: Kube) -> None:
        """Install them, and wait until `probe` is refused."""
        self.install()
        self._world.wait(lambda: refusal(by, self._world.kube, probe))

    def install(self, values: Mapping[str, object] | None = None) -> None:
        """Install them with other values of the chart; they hold some time later."""
        self._objects = install_rights(
            self._world.kube,
            release=self._release,
            namespace=self._world.namespace,
            templates=["admission-operator"],
            values={"admissionPolicies.nodeFolders": ["/srv", "/srv/team"], **(values or {})},
            everywhere=True,
        )

    def remove(self) -> None:
        """Remove them, and wait until they hold no more: the next test's objects are theirs, too."""
        remove_cluster_wide(self._world.plane, self._objects)
        kube, foreign_volume = self._world.kube, volume({"hostPath": {"path": "/srv"}})
        self._world.wait(lambda: not refused(lambda: kube.create(foreign_volume, dry_run=True)))


def refusal(thief: Kube, admin: Kube, obj: Object) -> str:
    """Why an object is not taken; empty when it is, and then the administrator removes it."""
    try:
        thief.create(obj)
    except KubeRequestError as error:
        return str(error)
    admin.delete(obj["kind"], obj["metadata"]["name"], namespace=obj["metadata"].get("namespace"))
    return ""


def refused(call: Callable[[], object]) -> str:
    """Why a call is refused; empty when it is not."""
    try:
        call()
    except KubeRequestError as error:
        return str(error)
    return ""


@pytest.mark.threat(
    "node-by-job",
    "token-kube-system",
    "token-release-namespace",
    "token-webhook",
    "token-host-path",
    "token-capabilities",
)
def test_a_stolen_token_of_the_operator_makes_only_what_the_operator_makes(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    attempts = thefts(world.namespace, release)
    # Its rights alone allow every one of these: without the policies this test is of nothing.
    assert [refusal(thief, world.kube, obj) for obj, _ in attempts] == [""] * len(attempts)
    policies.enforce(attempts[0][0], by=thief)
    answers = [(refusal(thief, world.kube, obj), words) for obj, words in attempts]
    assert [attempt for attempt in answers if attempt[1] not in attempt[0]] == []
    # What it makes is still to be made.
    ours = metadata(world.namespace, owner("CacheCluster"))
    allowed = [
        job(metadata("default", owner("TrainingJob"))),
        job(
            ours,
            **host_path("/var/lib/tdcs/cache/default"),
            initContainers=[adding("CHOWN", "DAC_OVERRIDE", "FOWNER", name="i")],
        ),
        volume({"csi": {"driver": "csi.tdcs.io", "volumeHandle": "x"}}),
        job(ours, **host_path("/srv"), containers=[container(volumeMounts=[{**WRITABLE, "readOnly": True}])]),
        job(metadata("default", owner("TrainingJob")), **secret_volume("keys")),
        labelled(job(ours), labels_of_part("another-release", "scheduler")),
        labelled(job(metadata("default", owner("TrainingJob"))), labels_of_part(release, "scheduler")),
        service(metadata("default", owner("TrainingJob")), clusterIP="None"),
        config_map(world.namespace, "stolen-properties", owner("CacheCluster")),
    ]
    assert [refusal(thief, world.kube, obj) for obj in allowed] == [""] * len(allowed)


@pytest.mark.threat("token-release-namespace", "token-others-objects")
def test_a_stolen_token_deletes_changes_and_takes_over_nothing_of_others(
    world: World, thief: Kube, policies: Policies
) -> None:
    kube, namespace = world.kube, world.namespace
    world.create_cluster()
    world.create_dataset()
    theirs = metadata(namespace, labelled=False)
    foreign_volume = {**volume({"hostPath": {"path": "/srv"}}), "metadata": {"name": f"other-{namespace}"}}
    release = {"type": "helm.sh/release.v1", "metadata": {**theirs, "name": "sh.helm.release.v1.x.v1"}}
    helm = {"apiVersion": "v1", "kind": "Secret", **release}
    claims = config_map(namespace, "tdcs-claims")
    for name, ttl, ended in (("lasting", False, True), ("running", True, False), ("ended", True, True)):
        for obj in endings(name, namespace, ttl=ttl):
            kube.create(obj)
            if ended:
                status = {"status": {"completionTime": "2026-01-01T00:00:00Z"}}
                kube.patch(obj["kind"], name, status, namespace=namespace, subresource="status")
    for obj in (
        job(theirs),
        claim(namespace),
        service(theirs, clusterIP="None"),
        foreign_volume,
        helm,
        claims,
    ):
        kube.create(obj)
    certificate = {"labels": secret(namespace, "x", "worker")["metadata"]["labels"]}
    policies.enforce(job(metadata("kube-system")), by=thief)
    volume_name = foreign_volume["metadata"]["name"]
    mine = {"labels": metadata("x")["labels"], "ownerReferences": [owner("TrainingJob")]}
    calls: dict[str, Callable[[], object]] = {
        "delete a Job": lambda: thief.delete("Job", "stolen", namespace=namespace),
        "take over a Job": lambda: thief.patch("Job", "stolen", {"metadata": mine}, namespace=namespace),
        "delete a claim": lambda: thief.delete("PersistentVolumeClaim", "stolen", namespace=namespace),
        "label a Service": lambda: thief.patch(
            "Service", "stolen", {"metadata": {"labels": mine["labels"]}}, namespace=namespace
        ),
        "delete a volume": lambda: thief.delete("PersistentVolume", volume_name),
        "change what Helm installs": lambda: thief.patch(
            "Secret", "sh.helm.release.v1.x.v1", {"data": {"release": "eA=="}}, namespace=namespace
        ),
        "take over a Secret": lambda: thief.patch(
            "Secret", "sh.helm.release.v1.x.v1", {"metadata": certificate}, namespace=namespace
        ),
        "change a ConfigMap": lambda: thief.patch(
            "ConfigMap", "tdcs-claims", {"data": {"kube-system.x": ""}}, namespace=namespace
        ),
        "give itself folders": lambda: thief.patch(
            "CacheCluster", world.cluster, {"spec": {"sourceFolders": ["/etc"]}}, namespace=namespace
        ),
        "label a Dataset": lambda: thief.patch(
            "Dataset", "pictures", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace
        ),
        "keep a Dataset forever": lambda: thief.patch(
            "Dataset", "pictures", {"metadata": {"finalizers": ["example.com/other"]}}, namespace=namespace
        ),
        "annotate a Dataset": lambda: thief.patch(
            "Dataset",
            "pictures",
            {"metadata": {"annotations": {"tdcs.io/refresh": "now"}}},
            namespace=namespace,
        ),
        **{
            f"delete a {kind} {name}": partial(thief.delete, kind, name, namespace=namespace)
            for kind in ("TrainingJob", "Preload")
            for name in ("lasting", "running")
        },
        "have a Dataset read elsewhere": lambda: thief.patch(
            "Dataset", "pictures", {"spec": {"placement": {"nodeCount": 1}}}, namespace=namespace
        ),
    }
    try:
        answers = {name: refused(call) for name, call in calls.items()}
        assert [name for name, answer in answers.items() if "TDCS's operator" not in answer] == []
        # Of an API server that protects owners, as this one does: the operator has no right to delete these.
        for kind, name in (("Service", "stolen"), ("Dataset", "pictures")):
            takeover = refused(partial(thief.patch, kind, name, {"metadata": mine}, namespace=namespace))
            assert "cannot set an ownerRef on a resource you can't delete" in takeover
        # Finalizers are its own to write.
        for kind, name in (("CacheCluster", world.cluster), ("Dataset", "pictures")):
            thief.patch(kind, name, {"metadata": {"finalizers": ["tdcs.io/finalizer"]}}, namespace=namespace)
        # So is the end of what has ended, as its author has asked.
        for kind in ("TrainingJob", "Preload"):
            thief.delete(kind, "ended", namespace=namespace)
    finally:
        kube.delete("PersistentVolume", volume_name)


@pytest.mark.threat("token-secrets")
def test_a_stolen_token_runs_no_pod_and_reads_no_secret_outside_of_its_namespaces(
    world: World, thief: Kube
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stolen", "namespace": "kube-system"},
        "spec": {"containers": [container()]},
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": "default"}}
    world.kube.create(secret)
    try:
        calls: list[Callable[[], object]] = [
            lambda: thief.create(pod),
            lambda: thief.create({**pod, "metadata": {"name": "stolen", "namespace": world.namespace}}),
            lambda: thief.get("Secret", "theirs", namespace="default"),
            lambda: thief.list("Secret", namespace="kube-system"),
            lambda: thief.create_under(
                "ServiceAccount", "default", "token", {"spec": {}}, namespace="kube-system"
            ),
        ]
        for call in calls:
            with pytest.raises(KubeRequestError) as error:
                call()
            assert error.value.code == 403
    finally:
        world.kube.delete("Secret", "theirs", namespace="default")


@pytest.mark.threat("token-secrets")
def test_with_given_certificates_no_pod_mounts_the_key_of_their_authority(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    ours = metadata(world.namespace, owner("CacheCluster"))
    policies.install({"trust.provider": "certManager"})
    authority, other_secret, own_pod = (
        workload("StatefulSet", ours, **secret_volume(name))
        for name in (f"{release}-trust-ca", "another-worker-trust", f"{release}-trust-worker")
    )
    world.wait(lambda: refusal(thief, world.kube, authority))
    assert "any other Secret" in refusal(thief, world.kube, other_secret)
    assert refusal(thief, world.kube, own_pod) == ""


@pytest.mark.threat("forged-status", "forged-volume", "volume-name-taken")
def test_nobody_forges_a_volume_or_a_status_in_the_operators_place(
    world: World, thief: Kube, policies: Policies
) -> None:
    kube = world.kube
    world.create_dataset()
    forged = volume(
        {
            "csi": {
                "driver": "csi.tdcs.io",
                "volumeHandle": "x",
                "volumeAttributes": {"cluster": world.cluster, "path": "/datasets/0123456789abcdef"},
            }
        }
    )
    status = {"status": {"mountPath": "/datasets/0123456789abcdef"}}

    def write(client: Kube) -> str:
        return refused(
            lambda: client.patch(
                "Dataset", "pictures", status, namespace=world.namespace, subresource="status"
            )
        )

    assert write(kube) == refusal(kube, kube, forged) == ""
    policies.enforce(job(metadata("kube-system")), by=thief)
    # Another policy than the one that refuses the Job: each holds from a moment of its own.
    world.wait(lambda: "only TDCS's operator writes the status" in write(kube))
    assert "are made by TDCS's operator" in refusal(kube, kube, forged)
    # The name of another tenant's Dataset to come, which could have no volume then.
    foreign_volume = volume({"hostPath": {"path": "/srv"}})
    assert "are made by TDCS's operator" in refusal(kube, kube, foreign_volume)
    foreign_volume["metadata"]["name"] = "of-another-driver"
    assert refusal(kube, kube, foreign_volume) == ""
    assert write(thief) == ""
    thief.create(forged)
    name = forged["metadata"]["name"]
    # As the controllers of Kubernetes do; but not to another tenant's.
    kube.patch("PersistentVolume", name, {"metadata": {"annotations": {"a": "b"}}})
    stolen = {"metadata": {"labels": {"tdcs.io/dataset-uid": "another"}}}
    assert "are made by TDCS's operator" in refused(lambda: kube.patch("PersistentVolume", name, stolen))
    kube.delete("PersistentVolume", name)


UID = "00000000-0000-0000-0000-000000000000"
VOLUME_SPECS: dict[str, Object] = {
    "spec.claimRef.namespace": {"claimRef": {"namespace": "kube-public"}},
    "spec.claimRef.name": {"claimRef": {"name": "another"}},
    "spec.claimRef.uid": {"claimRef": {"uid": UID}},
    "spec.claimRef.namespace, spec.claimRef.name, spec.claimRef.uid": {"claimRef": None},
    "spec.mountOptions": {"mountOptions": ["exec"]},
    "spec.persistentVolumeReclaimPolicy": {"persistentVolumeReclaimPolicy": "Delete"},
    "spec.storageClassName": {"storageClassName": "fast"},
    "spec.accessModes": {"accessModes": ["ReadWriteMany"]},
    "spec.capacity": {"capacity": {"storage": "1Ki"}},
    "spec.nodeAffinity": {
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [NODE_NAMED_X]}]}}
    },
    "spec.volumeAttributesClassName": {"volumeAttributesClassName": "fast"},
}
"""What of a volume's spec only the operator writes, and a change of it."""

# With one that does not exist the garbage collector would delete the volume.
OWNERS = [{"apiVersion": "v1", "kind": "Node", "name": "absent", "uid": UID}]
VOLUME_CHANGES: dict[str, Object] = {
    **{field: {"spec": spec} for field, spec in VOLUME_SPECS.items()},
    "metadata.ownerReferences": {"metadata": {"ownerReferences": OWNERS}},
    "metadata.ownerReferences, spec.mountOptions": {
        "metadata": {"ownerReferences": OWNERS},
        "spec": {"mountOptions": ["exec"]},
    },
}


@pytest.mark.threat("forged-volume", "claim-made-lost")
def test_a_bound_volume_keeps_what_the_operator_wrote_and_kubernetes_binds_it(
    world: World, thief: Kube, policies: Policies
) -> None:
    kube, namespace = world.kube, world.namespace
    world.create_dataset()
    uid = kube.get("Dataset", "pictures", namespace=namespace)["metadata"]["uid"]
    meta = {"name": "pictures", "namespace": namespace, "uid": uid}
    dataset: Object = {"apiVersion": API_VERSION, "kind": "Dataset", "metadata": meta}
    bound_volume = objects.volume(
        dataset=dataset, storage="1Mi", attributes={"cluster": "c", "path": "/datasets/x"}
    )
    name = bound_volume["metadata"]["name"]
    policies.enforce(job(metadata("kube-system")), by=thief)
    thief.create(bound_volume)
    # The operator's account makes no claims of Datasets that are not there; who makes this one does not matter.
    kube.create(objects.claim(dataset=dataset, storage="1Mi"))

    def phase(kind: str, name: str, **where: str) -> str:
        return str((kube.get(kind, name, **where).get("status") or {}).get("phase"))

    try:
        world.wait(lambda: phase("PersistentVolumeClaim", "pictures", namespace=namespace) == "Bound")
        assert phase("PersistentVolume", name) == "Bound"
        answers = {
            field: refused(partial(kube.patch, "PersistentVolume", name, change))
            for field, change in VOLUME_CHANGES.items()
        }
        assert {
            field: words
            for field, words in answers.items()
            if f"PersistentVolume {name}: {field} " not in words or "create or change a Dataset" not in words
        } == {}
        # An administrator's own label, and what Kubernetes writes.
        kube.patch(
            "PersistentVolume", name, {"metadata": {"labels": {"team": "a"}, "annotations": {"a": "b"}}}
        )
        kube.patch("PersistentVolume", name, {"metadata": {"finalizers": ["example.com/kept"]}})
        assert phase("PersistentVolumeClaim", "pictures", namespace=namespace) == "Bound"
        kube.patch("PersistentVolume", name, {"metadata": {"finalizers": None}})
        # The binder lets a volume go when its claim is deleted.
        kube.delete("PersistentVolumeClaim", "pictures", namespace=namespace)
        world.wait(lambda: phase("PersistentVolume", name) == "Released")
    finally:
        kube.delete("PersistentVolume", name)


@pytest.mark.threat("forged-volume")
def test_only_the_binder_of_kubernetes_writes_the_uid_of_a_claim_and_it_names_no_other(
    world: World, thief: Kube, policies: Policies
) -> None:
    kube, name = world.kube, "tdcs.stolen.volume"
    binder = world.plane.client_as(service_account="persistent-volume-binder", namespace="kube-system")
    reserved = volume({"csi": {"driver": "csi.tdcs.io", "volumeHandle": "x"}})
    reserved["spec"]["claimRef"] = {"namespace": world.namespace, "name": "absent", "uid": "1"}

    def replaced(reference: Object | None) -> str:
        """Why the binder may not write this claimRef; empty when it may. Kubernetes writes the volume's status too."""

        def replace() -> None:
            volume_object = kube.get("PersistentVolume", name)
            binder.replace({**volume_object, "spec": {**volume_object["spec"], "claimRef": reference}})

        while "has been modified" in (answer := refused(replace)):
            continue
        return answer

    policies.enforce(job(metadata("kube-system")), by=thief)
    thief.create(reserved)
    try:
        cleared = {"spec": {"claimRef": {"uid": None}}}
        assert "spec.claimRef.uid" in refused(lambda: kube.patch("PersistentVolume", name, cleared))
        assert replaced({"namespace": world.namespace, "name": "absent"}) == ""
        # An administrator is no binder: with the uid of another claim the Dataset's own would never be bound.
        written = {"spec": {"claimRef": {"uid": UID}}}
        assert "spec.claimRef.uid " in refused(lambda: kube.patch("PersistentVolume", name, written))
        assert replaced({"namespace": world.namespace, "name": "absent", "uid": UID}) == ""
        # It clears all of the reference only where it has chosen the volume, which anybody's annotation says.
        assert "spec.claimRef.name" in replaced(None)
        assert "spec.claimRef.name" in replaced({"namespace": world.namespace, "name": "another"})
        claim_patch = {"spec": {"claimRef": {"name": "another"}}}
        assert refused(lambda: thief.patch("PersistentVolume", name, claim_patch)) == ""
    finally:
        kube.delete("PersistentVolume", name)


def test_with_kueue_the_operator_creates_preloads_of_workloads_and_no_others(
    world: World, release: str, thief: Kube, policies: Policies
) -> None:
    kube, namespace = world.kube, world.namespace
    workload_of_kueue = {**owner("Workload", "job-x"), "apiVersion": "kueue.x-k8s.io/v1beta2"}

    def preload(*owners: Object) -> Object:
        return {
            "apiVersion": API_VERSION,
            "kind": "Preload",
            "metadata": {"name": "ahead-pictures", "namespace": namespace, "ownerReferences": list(owners)},
            "spec": {"datasetRef": {"name": "pictures"}},
        }

    ahead = preload(workload_of_kueue)
    preloads = [preload(), preload(owner("Workload")), preload(owner("TrainingJob"))]
    enabled = {"kueue.enabled": True}
    rights = install_rights(kube, release=release, namespace=namespace, templates=["kueue"], values=enabled)
    try:
        assert [refusal(thief, kube, obj) for obj in (ahead, *preloads)] == [""] * 4
        policies.enforce(ahead, by=thief)  # those of a chart without Kueue
        policies.install(enabled)
        world.wait(lambda: not refusal(thief, kube, ahead))
        words = "creates none of them but Preloads that Workloads of Kueue own"
        assert [answer for obj in preloads if words not in (answer := refusal(thief, kube, obj))] == []
    finally:
        remove_cluster_wide(world.plane, rights)
