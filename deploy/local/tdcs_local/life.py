"""``up`` and ``down``: the cluster's life in the order of its steps."""

from tdcs_local import access, base_image, cache, cluster, host, node_image, preflight, products
from tdcs_local.cluster import State
from tdcs_local.errors import LocalError
from tdcs_local.paths import CHECKOUT, KUBECONFIG
from tdcs_local.steps import Reporter


def up(*, reporter: Reporter) -> None:
    """Brings the cluster up from whatever there is. Changes nothing where all is well."""
    name = cluster.name()
    if host.engine_answers() and cluster.look(name) is State.RUNNING:
        reporter.say(f"the cluster {name} runs already")
        return
    preflight.require(preflight.facts())
    host.start_engine(reporter=reporter)
    with cache.locked(
        f"cluster-{name}", on_wait=lambda: reporter.say(f"another process works on {name}: waiting")
    ):
        state = cluster.look(name)
        if state is State.FOREIGN:
            if not cluster.abandoned(name):
                raise cluster.foreign(name)
            reporter.say(f"the cluster {name} belongs to a checkout that is gone: it is replaced")
            state = State.BROKEN
        if state is State.STOPPED:
            state = _try_restart(name, reporter)
        if state is State.RUNNING:
            reporter.say(f"the cluster {name} runs already")
            return
        if state is State.BROKEN:
            reporter.say(f"the cluster {name} is made anew: {state.value}")
            cluster.delete(cluster=name, reporter=reporter)
        if state is not State.UNFINISHED:
            host.require_programs("mmdebstrap", "iptables", reporter=reporter)
            host.raise_limits(reporter=reporter)
            for product in ("kind", "kubernetes"):
                products.ensure(product, reporter=reporter)
            images = node_image.ensure(reporter=reporter)
            base_image.ensure(reporter=reporter)
            cluster.create(cluster=name, images=images, reporter=reporter)
        cluster.finish(cluster=name, reporter=reporter)
        reporter.say(f"the cluster {name} is up: export KUBECONFIG={KUBECONFIG.relative_to(CHECKOUT)}")


def down(*, reporter: Reporter, force: bool = False) -> None:
    """Removes the cluster of this checkout, and the engine if it was started here and nothing else uses it.

    ``force`` takes a cluster of this name away from the checkout that made it.
    """
    name = cluster.name()
    if not host.engine_answers():
        reporter.say("the container engine does not run, so no cluster does: nothing is changed")
        return
    with cache.locked(
        f"cluster-{name}", on_wait=lambda: reporter.say(f"another process works on {name}: waiting")
    ):
        if not force and any(node.owner != str(CHECKOUT) for node in cluster.nodes(name)):
            raise cluster.foreign(name)
        cluster.delete(cluster=name, reporter=reporter)
        access.remove()
        host.stop_engine(reporter=reporter)
    reporter.say(f"the cluster {name} is gone")


def status() -> tuple[list[str], bool]:
    """Lines on what there is, and whether this checkout's cluster runs."""
    name = cluster.name()
    if not host.engine_answers():
        return ["the container engine does not run, or does not let this user in"], False
    state = cluster.look(name)
    lines = [f"cluster {name}: {state.value}"]
    lines += [
        f"  {node.name}: {'running' if node.running else 'stopped'}, {node.image}"
        for node in cluster.nodes(name)
    ]
    if state is State.RUNNING:
        lines.append(f"  access: export KUBECONFIG={KUBECONFIG}")
    if host.own_engine() is not None:
        lines.append("container engine: started by this tool, `down` stops it when nothing else runs in it")
    return lines, state is State.RUNNING


def _try_restart(name: str, reporter: Reporter) -> State:
    try:
        cluster.restart(cluster=name, reporter=reporter)
    except LocalError as error:
        reporter.say(f"the nodes of {name} could not be started again: {error.what}")
        return State.BROKEN
    state = cluster.look(name)
    # what ran before the stop is only starting now: the last steps wait for it
    return State.UNFINISHED if state is State.RUNNING else state
