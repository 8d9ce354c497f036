"""Does to the cluster what a plan says, and undoes it: also when the run fails in between."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.chaos import Fault, Step

from e2e.chaos.nodes import Node
from e2e.chaos.plan import JUMPS, Happened, Kind, Part
from e2e.chaos.source import Source
from tdcs_local.errors import LocalError
from tdcs_local.kind import release
from tdcs_local.kind.kubectl import Kubectl, Object, condition
from tdcs_local.store import operations

RESTORED_SECONDS = 240.0
"""A node that was started again, and the API server, must answer within this time."""
SLOW_SECONDS = 3.0
"""Of an answer of a slow source, at most."""
HARMLESS = {"operator.resources.requests.cpu": "51m", "csi.resources.requests.cpu": "11m"}
"""Values of the chart that an upgrade changes: operator and node plugins start again with them."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the processes of a part are: a container of pods."""

    selector: str
    container: str
    namespace: str = release.NAMESPACE


def _component(name: str, *, container: str = "") -> Place:
    return Place(selector=f"app.kubernetes.io/component={name}", container=container or name)


def _cache(name: str, *, container: str = "") -> Place:
    return Place(selector=f"tdcs.io/component={name}", container=container or name)


PLACES: Mapping[Part, Place] = {
    Part.OPERATOR: _component("operator"),
    Part.SCHEDULER: _component("scheduler", container="kube-scheduler"),
    Part.EXTENDER: _component("scheduler", container="extender"),
    Part.PLUGIN: _component("csi"),
    Part.READER: _component("csi", container="reader"),
    Part.HOLDER: _component("reader-holder", container="holder"),
    Part.MASTER: _cache("master"),
    Part.WORKER: _cache("worker"),
    Part.AGENT: _cache("worker", container="agent"),
    Part.STORE: Place(
        selector="app.kubernetes.io/name=tdcs-store", container="gateway", namespace=operations.NAMESPACE
    ),
    Part.API_SERVER: Place(
        selector="component=kube-apiserver", container="kube-apiserver", namespace="kube-system"
    ),
}
SECRETS: Mapping[Part, str] = {
    Part.CERTIFICATE: "tdcs.io/certificate,tdcs.io/certificate!=authority",
    Part.AUTHORITY: "tdcs.io/certificate=authority",
}
MODES: Mapping[Kind, str] = {
    Kind.DELAY: f"delay {SLOW_SECONDS:g}",
    Kind.TRUNCATE: "truncate",
    Kind.REFUSE: "refuse",
    Kind.SHORTEN: "shorten",
    Kind.FALSIFY: "falsify",
}


class NotPossibleError(Exception):
    """A fault could not begin: what it would happen to is away, because of an earlier one."""


class Faults:
    """The faults of a run.

    Args:
        kubectl: of the cluster.
        nodes: those with a cache.
        control_plane: the node of the API server.
        source: of the Datasets.
        install: installs the release with values that differ from its own.
        stop: ends all that lasts, early.
    """

    def __init__(
        self,
        *,
        kubectl: Kubectl,
        nodes: Sequence[Node],
        control_plane: Node,
        source: Source,
        install: Callable[[Mapping[str, str]], None],
        stop: threading.Event,
    ) -> None:
        self._kubectl = kubectl
        self._nodes = nodes
        self._control_plane = control_plane
        self._source = source
        self._install = install
        self._stop = stop
        self.done: list[Happened] = []
        """Those that were brought about, and undone."""

    def run(self, step: Step) -> list[str]:
        """Do all faults of a step at once and undo them; what was done, one line each."""
        with ThreadPoolExecutor(max_workers=len(step.faults)) as threads:
            return list(threads.map(self._run, step.faults))

    def _run(self, fault: Fault) -> str:
        try:
            begin = time.time()  # the nodes share the clock of this machine
            with self._happening(fault) as done:
                self._stop.wait(fault.seconds)
            self.done.append(Happened(fault=fault, begin=begin, end=time.time()))
        except NotPossibleError as error:
            return f"not possible: {fault}: {error}"
        return f"done: {fault}: {done}"

    @contextmanager
    def _happening(self, fault: Fault) -> Iterator[str]:
        """Do one fault, give what it was done to, and undo it."""
        kind, part = Kind(fault.kind), Part(fault.part)
        match kind:
            case Kind.KILL:
                node, container, name = self._container(part, fault.place)
                yield f"{self._signal(node, container, 'KILL')} processes of {name}"
            case Kind.PAUSE:
                node, container, name = self._container(part, fault.place)
                try:
                    yield f"{self._signal(node, container, 'STOP')} processes of {name}"
                finally:
                    self._resume(node, container)
                if part is Part.API_SERVER:
                    self._wait_for_api()
            case Kind.DELETE:
                pod = self._pod(part, fault.place)
                self._delete("pod", pod, "--grace-period=0", "--force")
                yield pod["metadata"]["name"]
            case Kind.REBOOT:
                node = self._node(fault.place)
                try:
                    node.cut_power()
                    yield node.name
                finally:
                    self._wait_for_node(node)
            case Kind.FILL:
                node = self._node(fault.place)
                try:
                    yield f"{node.name}: {node.fill()} bytes are free"
                finally:
                    node.free()
            case Kind.ADVANCE | Kind.TURN_BACK:
                node = self._node(fault.place)
                jump = JUMPS[fault.place // len(self._nodes) % len(JUMPS)]
                try:
                    node.set_clock(jump if kind is Kind.ADVANCE else -jump)
                    yield f"{node.name}, by {jump:.0f} s"
                finally:
                    node.set_clock(0)
            case Kind.DELAY | Kind.TRUNCATE | Kind.REFUSE | Kind.SHORTEN | Kind.FALSIFY:
                try:
                    self._try(lambda: self._source.set_mode(MODES[kind]))
                    yield MODES[kind]
                finally:
                    self._source.reset()
            case Kind.STOP:
                try:
                    self._control_plane.stop_api_server()
                    yield self._control_plane.name
                finally:
                    self._control_plane.start_api_server()
                    self._wait_for_api()
            case Kind.REPLACE:
                pod = self._one(self._list("secrets", SECRETS[part]), fault.place)
                self._delete("secret", pod)
                yield pod["metadata"]["name"]
            case Kind.UPGRADE:
                try:
                    self._install(HARMLESS)
                    yield ", ".join(HARMLESS)
                finally:
                    self._install({})

    def _container(self, part: Part, number: int) -> tuple[Node, str, str]:
        """The node of a part, the id of its container, and the name of its pod."""
        pod = self._pod(part, number)
        kinds = ("containerStatuses", "initContainerStatuses")  # the extender begins before the scheduler
        statuses = [container for kind in kinds for container in pod.get("status", {}).get(kind, [])]
        name = PLACES[part].container
        status: Object = next((container for container in statuses if container["name"] == name), {})
        if "running" not in status.get("state", {}):
            raise NotPossibleError(f"{name} of {pod['metadata']['name']} does not run")
        return (
            Node(pod["spec"]["nodeName"]),
            status["containerID"].partition("://")[2],
            pod["metadata"]["name"],
        )

    def _pod(self, part: Part, number: int) -> Object:
        place = PLACES[part]
        pods = self._list("pods", place.selector, namespace=place.namespace)
        # Node plugins run on the control plane, too, where no pod reads.
        with_cache = [pod for pod in pods if Node(pod["spec"].get("nodeName", "")) in self._nodes]
        return self._one(with_cache or pods, number)

    def _node(self, number: int) -> Node:
        return self._nodes[number % len(self._nodes)]

    def _list(self, resource: str, selector: str, *, namespace: str = release.NAMESPACE) -> list[Object]:
        objects: list[Object] = []
        self._try(
            lambda: objects.extend(self._kubectl.list(resource, namespace=namespace, selector=selector))
        )
        return [obj for obj in objects if not obj["metadata"].get("deletionTimestamp")]

    def _delete(self, resource: str, obj: Object, *how: str) -> None:
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        words = ("delete", resource, name, "-n", namespace, "--ignore-not-found", "--wait=false", *how)
        self._try(lambda: self._kubectl(*words))

    @staticmethod
    def _one(objects: Sequence[Object], number: int) -> Object:
        if not objects:
            raise NotPossibleError("there is none")
        ordered = sorted(
            objects, key=lambda obj: (obj.get("spec", {}).get("nodeName", ""), obj["metadata"]["name"])
        )
        return ordered[number % len(ordered)]

    @staticmethod
    def _try(action: Callable[[], object]) -> None:
        """Begin a fault. What prevents it is the other faults, and no failure of the run."""
        try:
            action()
        except LocalError as error:
            raise NotPossibleError(str(error)) from error

    def _signal(self, node: Node, container: str, signal: str) -> int:
        try:
            count = node.signal(container, signal)
        except LocalError as error:
            raise NotPossibleError(str(error)) from error
        if not count:
            raise NotPossibleError(f"container {container[:12]} on {node.name} has ended")
        return count

    @staticmethod
    def _resume(node: Node, container: str) -> None:
        """Let processes go on; a container that has ended meanwhile has none."""
        try:
            node.signal(container, "CONT")
        except LocalError:
            # The node may be starting: then they are gone with what ran on it, unless it is only busy.
            node.insist("true")
            try:
                node.signal(container, "CONT")
            except LocalError as error:
                if "not found" not in error.why:
                    raise

    def _wait_for_node(self, node: Node) -> None:
        def look() -> str | None:
            try:
                live = self._kubectl.get("node", node.name)
            except LocalError as error:
                return str(error)
            if node.insist("systemctl is-active kubelet || true") != "active":
                return "kubelet does not run"
            ready = condition(live, "Ready")
            return None if ready.get("status") == "True" else f"Ready is {ready.get('status')}"

        self._kubectl.wait(look, what=f"node {node.name} did not come back", seconds=RESTORED_SECONDS)

    def _wait_for_api(self) -> None:
        def look() -> str | None:
            try:
                self._kubectl("get", "--raw", "/readyz", timeout=10)
            except LocalError as error:
                return str(error)
            return None

        self._kubectl.wait(look, what="the API server did not come back", seconds=RESTORED_SECONDS)
