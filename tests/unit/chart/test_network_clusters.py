"""The chart's NetworkPolicies keep the cache clusters of a release apart."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import pytest
from tests.unit.chart.conftest import NAMESPACE, Helm, RefusedError, Rendered
from tests.unit.chart.network import PORTS, Network, Pod

from tdcs.api import names
from tdcs.control.cachecluster.blueprint import labels_of

COMPONENTS: Final = (names.COMPONENT_MASTER, names.COMPONENT_WORKER, names.COMPONENT_FUSE)
NAMED: Final = ("default", "second")
UNNAMED: Final = ("third", "fourth")
GROUPS: Final = (("default",), ("second",), UNNAMED)
"""Cache clusters that may reach each other."""

INSIDE: Final[Mapping[tuple[str, int], set[str]]] = {
    ("master", names.MASTER_RPC_PORT): {"worker", "fuse"},
    ("worker", names.WORKER_RPC_PORT): {"fuse"},
    ("worker", names.AGENT_CONTROL_PORT): {"worker"},
    ("worker", names.AGENT_BLOCK_PORT): {"worker"},
}
"""Who calls what among the pods of a cache."""

OWN: Final[Mapping[tuple[str, int], set[str]]] = {
    ("master", names.MASTER_RPC_PORT): {"operator"},
    ("worker", names.AGENT_CONTROL_PORT): {"operator", "csi", "reader-holder"},
    ("worker", names.AGENT_BLOCK_PORT): {"csi", "reader-holder"},
}
"""Which pods of the release call what of every cache."""

Target = tuple[str, str, int]
"""A cache cluster, a component and a port."""


def pod(cluster: str, component: str) -> Pod:
    return NAMESPACE, labels_of(cluster=cluster, component=component)


def own(component: str) -> Pod:
    labels = {
        "app.kubernetes.io/name": "tdcs",
        "app.kubernetes.io/instance": "tdcs",
        "app.kubernetes.io/component": component,
    }
    return NAMESPACE, labels


def targets(clusters: tuple[str, ...]) -> Iterator[Target]:
    return product(clusters, COMPONENTS, PORTS)


def admitted(groups: tuple[tuple[str, ...], ...]) -> dict[tuple[str, str], set[Target]]:
    """What each pod of a cache reaches, by its cluster and component, when only a group's own clusters do so."""
    return {
        (cluster, component): {
            (target, part, port)
            for (part, port), callers in INSIDE.items()
            for target in group
            if component in callers
        }
        for group in groups
        for cluster, component in product(group, COMPONENTS)
    }


def reached(network: Network, clusters: tuple[str, ...]) -> dict[tuple[str, str], set[Target]]:
    """What each pod of a cache reaches, by the policies of both sides."""
    return {
        caller: {
            (cluster, component, port)
            for cluster, component, port in targets(clusters)
            if network.allows(source=pod(*caller), target=pod(cluster, component), port=port)
        }
        for caller in product(clusters, COMPONENTS)
    }


def policies(rendered: Rendered) -> list[str]:
    """The names of the policies of caches' components, in the order in which they are applied."""
    policy_names = (str(policy["metadata"]["name"]) for policy in rendered.all("NetworkPolicy"))
    return [
        name for name in policy_names if name.startswith("tdcs-cache-") and name != "tdcs-cache-default-deny"
    ]


@pytest.fixture(scope="module")
def several(helm: Helm) -> Rendered:
    """The chart with its own cache cluster and another one that it knows."""
    return helm.template({"networkPolicy.cacheClusters": '["second"]'})


@pytest.mark.threat("other-cache-ports")
def test_a_cache_reaches_itself_and_no_other_and_those_that_are_not_named_reach_each_other(
    several: Rendered,
) -> None:
    assert reached(Network(several), (*NAMED, *UNNAMED)) == admitted(GROUPS)


@pytest.mark.threat("other-cache-ports")
def test_each_side_alone_keeps_two_caches_apart(several: Rendered) -> None:
    network, clusters = Network(several), (*NAMED, *UNNAMED)
    group_of = {cluster: group for group in GROUPS for cluster in group}
    for (source, caller), (target, component, port) in product(
        product(clusters, COMPONENTS), targets(clusters)
    ):
        if target in group_of[source]:
            continue
        sender, receiver = pod(source, caller), pod(target, component)
        case = (source, caller, target, component, port)
        assert not network.sends(source=sender, target=receiver, port=port), case
        assert not network.takes(source=sender, target=receiver, port=port), case


def test_operator_and_node_plugins_reach_every_cache(several: Rendered) -> None:
    network = Network(several)
    for caller, (cluster, component, port) in product(
        ("operator", "csi", "reader-holder"), targets((*NAMED, *UNNAMED))
    ):
        allowed = network.allows(source=own(caller), target=pod(cluster, component), port=port)
        assert allowed is (caller in OWN.get((component, port), ())), (caller, cluster, component, port)


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ({}, (("default",), ("second", "third"))),
        ({"cacheCluster.name": '"second"'}, (("second",), ("default", "third"))),
        ({"cacheCluster.create": "false"}, (("default", "second", "third"),)),
        # As in an upgrade with the values of a release that had no such list.
        ({"networkPolicy.cacheClusters": "null"}, (("default",), ("second", "third"))),
        (
            {"cacheCluster.create": "false", "networkPolicy.cacheClusters": '["second"]'},
            (("second",), ("default", "third")),
        ),
        # Named though the chart makes it.
        ({"networkPolicy.cacheClusters": '["second", "default"]'}, (("default",), ("second",), ("third",))),
    ],
)
@pytest.mark.threat("other-cache-ports")
def test_the_charts_own_cache_and_those_that_are_named_are_kept_from_all_others(
    helm: Helm, values: Mapping[str, Any], groups: tuple[tuple[str, ...], ...]
) -> None:
    rendered = helm.template(values)
    clusters = tuple(cluster for group in groups for cluster in group)
    assert reached(Network(rendered), clusters) == admitted(groups)
    assert len(set(policies(rendered))) == len(policies(rendered))


def test_a_pod_that_only_has_a_component_is_of_no_cache(several: Rendered) -> None:
    network = Network(several)
    for component, target in product(COMPONENTS, targets((*NAMED, *UNNAMED))):
        cluster, part, port = target
        nameless: Pod = (NAMESPACE, {names.LABEL_COMPONENT: component})
        assert not network.allows(source=nameless, target=pod(cluster, part), port=port), (component, target)


def test_an_upgrade_gives_a_cache_its_own_policies_before_the_others_leave_it_out(several: Rendered) -> None:
    # Helm applies them in this order; what is selected by none of them gets and sends nothing meanwhile.
    assert policies(several) == [
        *(f"tdcs-cache-{component}-{name}" for name in NAMED for component in COMPONENTS),
        *(f"tdcs-cache-{component}" for component in COMPONENTS),
    ]


def test_names_of_policies_are_unique_and_short_enough_for_every_cache(helm: Helm) -> None:
    longest = "a-name-of-twenty-ch0"
    clusters = ["deny", "default-deny", "master", "worker", "true", "e1", longest]
    listed = ", ".join(f'"{name}"' for name in clusters)
    policy_names = policies(helm.template({"networkPolicy.cacheClusters": f"[{listed}]"}))
    assert len(set(policy_names)) == len(policy_names) == len(COMPONENTS) * (len(clusters) + 2)
    assert max(map(len, policy_names)) <= 63


@pytest.mark.parametrize(
    "value_text",
    ['"second"', '["Upper"]', '["1st"]', '["a-name-of-more-than-twenty"]', '["second", "second"]', "[true]"],
)
def test_what_is_no_name_of_a_cache_cluster_is_refused(helm: Helm, value_text: str) -> None:
    with pytest.raises(RefusedError, match="cacheClusters"):
        helm.template({"networkPolicy.cacheClusters": value_text})
