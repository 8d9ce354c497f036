"""``up`` and ``down``: the cluster's life in the order of its steps."""

from collections.abc import Callable

from tdcs_local import cache, host, preflight, programs
from tdcs_local.containers import base_image, node_image
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster, kubeconfig
from tdcs_local.kind.cluster_state import State
from tdcs_local.paths import CHECKOUT, KUBECONFIG
from tdcs_local.progress import Reporter

NONE = 1
"""``status`` gives it when there is no cluster of this checkout."""

EXISTS_NOT_UP = 3
"""``status`` exits with it when a cluster of this checkout exists but is not up and well."""


def up(*, reporter: Reporter) -> None:
    """Brings the cluster up from whatever there is. Changes nothing where all is well.

    A cluster that was completed once is repaired; it is made again only when its nodes cannot be started again.
    """
    name = cluster.name()
    if host.engine_answers() and cluster.look(name) is State.RUNNING:
        _say_running(name, reporter)
        return
    preflight.require(preflight.facts())
    with (
        host.engine_in_use(
            on_wait=lambda: reporter.say("another process stops the container engine: waiting")
        ),
        cache.locked(
            f"cluster-{name}", on_wait=lambda: reporter.say(f"another process works on {name}: waiting")
        ),
    ):
        host.start_engine(reporter=reporter)
        state = _repaired(name, cluster.look(name), reporter)
        if state is State.RUNNING:
            _say_running(name, reporter)
            return
        if state is State.BROKEN:
            reporter.say(f"the cluster {name} is made again: {state.value}")
            cluster.delete(cluster=name, reporter=reporter)
        if state in {State.ABSENT, State.BROKEN}:
            host.require_programs("mmdebstrap", "iptables", reporter=reporter)
            host.raise_limits(reporter=reporter)
            programs.ensure("kind", reporter=reporter)
            images = node_image.ensure(reporter=reporter)
            node_image.kubectl(reporter=reporter)
            base_image.ensure(reporter=reporter)
            cluster.create(cluster=name, images=images, reporter=reporter)
        cluster.finish(cluster=name, reporter=reporter)
        _say_age(name, reporter)
        reporter.say(f"the cluster {name} is up: export KUBECONFIG={KUBECONFIG}")


def down(*, reporter: Reporter, force: bool = False) -> None:
    """Removes the cluster of this checkout, and the engine if it was started here and nothing else uses it.

    ``force`` takes a cluster of this name away from the checkout that made it.
    Raises :class:`LocalError` when this user may not use the engine: then nothing is known, and nothing changed.
    """
    name = cluster.name()
    engine = host.look_at_engine()
    if engine.state == "denied":
        raise LocalError(
            what=f"docker does not let this user in, so the cluster {name}, if there is one, stays",
            why="nothing was changed",
            remedy="sudo usermod -aG docker $USER, then log in again; or run as root",
        )
    if engine.state != "answers":
        kubeconfig.remove()
        reporter.say(
            "the container engine does not run or does not answer: containers of the cluster "
            f"{name}, if any, remain in it and go with `{cluster.make('down')}` when it runs again; "
            "its access is removed"
        )
        return
    with cache.locked(
        f"cluster-{name}", on_wait=lambda: reporter.say(f"another process works on {name}: waiting")
    ):
        if not force and any(node.owner != str(CHECKOUT) for node in cluster.nodes(name)):
            raise cluster.foreign(name)
        cluster.delete(cluster=name, reporter=reporter)
        kubeconfig.remove()
        host.stop_engine(reporter=reporter)
    reporter.say(f"the cluster {name} is gone")


def status() -> tuple[list[str], int]:
    """Lines on what there is, and the exit status.

    0: this checkout's cluster is up and well; :data:`NONE`: it has none; :data:`EXISTS_NOT_UP`: it has one that is
    stopped, unfinished or sick. While no engine answers, the kubeconfig in the checkout says that there is a cluster.
    """
    name = cluster.name()
    engine = host.look_at_engine()
    if engine.state != "answers":
        line = "docker runs, but does not let this user in"
        if engine.state == "absent":
            line = "the container engine does not run or does not answer"
        if KUBECONFIG.exists():
            return [line], EXISTS_NOT_UP
        return [
            f"there is no cluster {name} that is known here: {line}; `{cluster.make('up')}` starts both"
        ], NONE
    state = cluster.look(name)
    if state is State.ABSENT:
        return [f"there is no cluster {name}; `{cluster.make('up')}` makes it"], NONE
    lines = [f"cluster {name}: {state.value}"]
    lines += [
        f"  {node.name}: {'running' if node.running else 'stopped'}, {node.image}"
        for node in cluster.nodes(name)
    ]
    if state in {State.RUNNING, State.UNWELL}:
        lines.append(f"  access: export KUBECONFIG={KUBECONFIG}")
    if host.own_engine() is not None:
        lines.append("container engine: started by this tool, `down` stops it when nothing else runs in it")
    if state is State.RUNNING:
        return lines, 0
    return lines, NONE if state is State.FOREIGN else EXISTS_NOT_UP


def _repaired(name: str, state: State, reporter: Reporter) -> State:
    """What is left to do after all that can be mended without making the cluster again was mended."""
    if state is State.FOREIGN:
        if not cluster.abandoned(name):
            raise cluster.foreign(name)
        reporter.say(f"the cluster {name} belongs to a checkout that is gone: it is replaced")
        return State.BROKEN
    if state in {State.SILENT, State.STOPPED}:
        programs.ensure("kind", reporter=reporter)  # its failure is none of the cluster's
        node_image.kubectl(reporter=reporter)
    if state is State.SILENT:
        state = _try(cluster.reconnect, name, reporter, otherwise=State.STOPPED)
    if state is State.STOPPED:
        state = _try(cluster.restart, name, reporter, otherwise=State.BROKEN)
        if state in {State.SILENT, State.STOPPED}:
            return State.BROKEN
        # what ran before the stop is only starting now: the last steps wait for it
        return State.UNFINISHED if state is State.RUNNING else state
    return state


def _try(repair: Callable[..., None], name: str, reporter: Reporter, *, otherwise: State) -> State:
    try:
        repair(cluster=name, reporter=reporter)
    except LocalError as error:
        reporter.say(f"{name} could not be repaired by that: {error}")
        return otherwise
    return cluster.look(name)


def _say_running(name: str, reporter: Reporter) -> None:
    reporter.say(f"the cluster {name} runs already")
    _say_age(name, reporter)


def _say_age(name: str, reporter: Reporter) -> None:
    if cluster.older(name):
        reporter.say(
            f"the cluster {name} was made from an older node image; "
            f"`{cluster.make('down')} && {cluster.make('up')}` renews it"
        )
