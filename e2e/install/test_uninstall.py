"""An uninstall: first jobs, data and caches go, and leave nothing on the nodes' disks; then the release, and leaves
nothing in the cluster but what the how-to says stays.

Last: it takes TDCS away, its kinds too. The next run of this tier (or `make install`) installs it again.
"""

from collections.abc import Iterable

import pytest

from e2e.support.pods import finished
from tdcs_local import demo
from tdcs_local.errors import LocalError
from tdcs_local.kind import images, release
from tdcs_local.kind.kubectl import Kubectl, Object, condition
from tdcs_local.progress import Reporter

FOLDER = "/var/lib/tdcs"
CACHES = f"{FOLDER}/cache"
BLOCKS = f"find {CACHES} -path '*/alluxioworker/*' -type f | wc -l"
LEFT = f"find {CACHES} -mindepth 2 -not -path '*/.tiers/*' '(' -type f -o -name alluxioworker ')' | head -n 5"

UNCOUNTED = {"events", "events.events.k8s.io", "componentstatuses"}
KINDS = tuple(resource for resource, _ in release.CUSTOM_RESOURCES)
IN_EVERY_NAMESPACE = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}

FOUND_BEFORE = {
    *("Pod", "Deployment", "DaemonSet", "StatefulSet", "Service", "ConfigMap", "Secret", "ServiceAccount"),
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "CSIDriver", "Lease", "CacheCluster"),
}
"""Kinds of a running release's objects: those that are looked for afterwards would be found."""


def looker(*, node: str, namespace: str, image: str, folder: str = CACHES) -> Object:
    """A pod that sees a folder of a node, by default the caches'."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"look-{node}", "namespace": namespace},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "600"],
                    "volumeMounts": [{"name": "folder", "mountPath": folder, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "folder", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}],
        },
    }


@pytest.fixture
def lookers(kubectl: Kubectl, privileged_namespace: str, workers: list[str], toolbox: str) -> dict[str, str]:
    """The name of a running pod on each node."""
    names = {node: f"look-{node}" for node in workers}
    kubectl.apply(*(looker(node=node, namespace=privileged_namespace, image=toolbox) for node in workers))

    def look() -> str | None:
        pods = kubectl.list("pods", namespace=privileged_namespace)
        late = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") != "Running"]
        return f"{', '.join(late)} do not run" if late else None

    kubectl.wait(look, what="the pods that look at the disks do not run", seconds=180)
    return names


def test_before_tdcs_goes_its_data_goes_from_every_disk(
    tdcs: None,
    store_filled: None,
    kubectl: Kubectl,
    reporter: Reporter,
    privileged_namespace: str,
    lookers: dict[str, str],
) -> None:
    def output_by_node(command: str) -> dict[str, str]:
        return {
            node: kubectl("exec", pod, "-n", privileged_namespace, "--", "sh", "-ec", command).strip()
            for node, pod in lookers.items()
        }

    demo.load_dataset(reporter=reporter, kubectl=kubectl)
    held = demo.node_bytes(kubectl)
    before = output_by_node(BLOCKS)
    assert held
    assert all(int(before[node]) > 0 for node in held), (held, before)

    release.clear(reporter=reporter, kubectl=kubectl, seconds=120)

    assert [thing for resource, _ in release.CUSTOM_RESOURCES for thing in kubectl.list(resource)] == []
    assert output_by_node(LEFT) == dict.fromkeys(lookers, "")
    volumes = [volume["metadata"]["name"] for volume in kubectl.list("persistentvolumes")]
    assert not [name for name in volumes if name.startswith("tdcs.")]
    operator = kubectl.get("deployments", "tdcs-operator", namespace=release.NAMESPACE)
    assert condition(operator, "Available").get("status") == "True"


def everything(kubectl: Kubectl) -> list[Object]:
    """All objects of the cluster, of whatever kind can be listed."""
    kinds = set(kubectl("api-resources", "--verbs=list", "--output=name").split()) - UNCOUNTED
    return kubectl.list(",".join(sorted(kinds)))


def of_tdcs(thing: Object) -> bool:
    """Whether an object is the release's: in its namespace, or by its kind, its name, a label or Helm's annotation.

    Other namespaces, nodes and what is theirs are the user's, whatever they are called.
    """
    kind, metadata = thing["kind"], thing["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace")
    labels = metadata.get("labels") or {}
    if namespace == release.NAMESPACE:
        return (kind, name) not in IN_EVERY_NAMESPACE
    if kind == "Namespace":
        return bool(name == release.NAMESPACE)
    return (
        (namespace is None and kind not in {"Node", "CSINode"} and "tdcs" in name)
        or thing["apiVersion"].partition("/")[0] == "tdcs.io"
        or "tdcs" in (labels.get("app.kubernetes.io/part-of"), labels.get("app.kubernetes.io/managed-by"))
        or any(key.partition("/")[0].endswith("tdcs.io") for key in labels)
        or (metadata.get("annotations") or {}).get("meta.helm.sh/release-name") == release.RELEASE
        or (kind == "PersistentVolume" and claimant(thing) == release.NAMESPACE)
    )


def claimant(volume: Object) -> str:
    """The namespace of the claim that has a PersistentVolume."""
    return str((volume["spec"].get("claimRef") or {}).get("namespace", ""))


def names_of(things: Iterable[Object]) -> set[tuple[str, str, str]]:
    return {
        (thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]) for thing in things
    }


def registered(kubectl: Kubectl) -> list[str]:
    """The nodes whose kubelet knows the CSI plugin."""
    return [
        node["metadata"]["name"]
        for node in kubectl.list("csinodes")
        if any(driver["name"] == "csi.tdcs.io" for driver in node["spec"].get("drivers") or [])
    ]


def left_mounted(kubectl: Kubectl, namespace: str, nodes: Iterable[str], *, image: str) -> dict[str, str]:
    """What is mounted in TDCS's folder of each node, but for the folder itself: a new pod has it in its copy."""
    for node in nodes:
        thing = looker(node=node, namespace=namespace, image=image, folder=FOLDER)
        thing["metadata"]["name"] = f"mounted-{node}"
        thing["spec"]["restartPolicy"] = "Never"
        script = f"grep ' {FOLDER}/' /proc/self/mountinfo || true"
        thing["spec"]["containers"][0]["command"] = ["sh", "-ec", script]
        kubectl.apply(thing)
    return {node: finished(kubectl, f"mounted-{node}", namespace) for node in nodes}


def test_an_uninstall_leaves_kinds_and_namespace_alone_until_they_are_deleted(
    tdcs: None,
    kubectl: Kubectl,
    reporter: Reporter,
    workers: list[str],
    privileged_namespace: str,
    toolbox: str,
) -> None:
    """From a release whose cache runs; the order is that of docs/how-to/install.md."""
    tags = images.ensure(demo.SYSTEM_IMAGES, reporter=reporter)
    release.install(reporter=reporter, kubectl=kubectl, tags=tags)
    before = names_of(filter(of_tdcs, everything(kubectl)))
    assert {kind for kind, _, _ in before} >= FOUND_BEFORE
    assert set(workers) <= set(registered(kubectl))
    # Those of the release itself; the others belong to its cache.
    certificates = kubectl.list("secrets", namespace=release.NAMESPACE, selector="tdcs.io/certificate")
    stays = names_of(
        certificate for certificate in certificates if not certificate["metadata"].get("ownerReferences")
    )
    stays |= {("Namespace", "", release.NAMESPACE)}
    stays |= {("CustomResourceDefinition", "", kind) for kind in KINDS}
    stays |= {
        ("APIService", "", "v1alpha2.tdcs.io"),
        ("Lease", release.NAMESPACE, "tdcs-operator"),
    }
    assert stays <= before

    release.uninstall(reporter=reporter, kubectl=kubectl)

    def names_left() -> set[tuple[str, str, str]]:
        return names_of(filter(of_tdcs, everything(kubectl)))

    def more() -> str | None:
        """What the garbage collector and the kubelets have not taken yet."""
        try:
            extra = [" ".join(filter(None, thing)) for thing in sorted(names_left() - stays)]
        except LocalError as error:  # a kind was deleted between discovery and list
            return str(error)
        extra += [f"CSI plugin on {node}" for node in registered(kubectl)]
        return ", ".join(extra) or None

    kubectl.wait(more, what="the uninstalled release left objects behind", seconds=60)
    assert names_left() == stays
    assert left_mounted(kubectl, privileged_namespace, workers, image=toolbox) == dict.fromkeys(workers, "")

    for kind in KINDS:
        kubectl.delete("customresourcedefinitions", kind)
    kubectl.delete("namespace", release.NAMESPACE)
    stays.clear()
    kubectl.wait(more, what="something stayed longer than the kinds and the namespace", seconds=60)
