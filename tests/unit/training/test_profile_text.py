"""Profiles as text: what is read, and what is refused."""

from pathlib import Path

import pytest

from tdcs_train.errors import InputError
from tdcs_train.plan.graph import pruned
from tdcs_train.plan.profile_text import parse, render

GOOD = """\
n1 -- Input0 -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=8.0, parameter_size=0.0
n2 -- Linear(2, 2) -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0, parameter_size=24.0
n3 -- Split -- forward_compute_time=0.5, backward_compute_time=0.5, activation_size=[4.0; 4.0], parameter_size=0.0
n4 -- Add -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=4.0, parameter_size=0.0 -- stage_id=1
\tn1 -- n2
\tn2 -- n3
\tn3 -- n4
"""


def test_a_profile_is_read_as_it_is_written() -> None:
    graph = parse(GOOD)
    assert graph.layers["n3"].activation_bytes == (4.0, 4.0)
    assert graph.layers["n3"].output_bytes == 8
    assert graph.layers["n4"].stage == 1
    assert graph.seconds == pytest.approx(0.004)
    assert graph.order == ("n1", "n2", "n3", "n4")
    assert parse(render(graph)) == graph


def test_the_order_of_lines_means_nothing() -> None:
    shuffled = "\n".join(reversed(GOOD.splitlines()))
    assert parse(shuffled).order == parse(GOOD).order


@pytest.mark.parametrize("name", ["vgg16", "resnet18", "resnet50", "squeezenet1_0", "alexnet", "gnmt"])
def test_published_profiles_are_read_and_written(published: Path, name: str) -> None:
    graph = parse((published / f"{name}.txt").read_text())
    assert parse(render(graph)) == graph


def test_inputs_and_unused_items_are_no_layers_to_cut(attention: Path) -> None:
    graph = pruned(parse(attention.read_text()))
    assert not {"node1", "node2", "node6"} & set(graph.layers)
    assert {"node5", "node8"} <= set(graph.layers)


BAD = {
    "a missing field": (GOOD.replace(", parameter_size=24.0", ""), "line 2: n2 has no parameter_size"),
    "an unknown node": (GOOD + "\tn4 -- n9\n", "the edge n4 -- n9 names n9, which is no node"),
    "a cycle": (GOOD + "\tn4 -- n2\n", "form a cycle"),
    "an edge to itself": (GOOD + "\tn4 -- n4\n", "form a cycle"),
    "a negative time": (
        GOOD.replace("forward_compute_time=1.0", "forward_compute_time=-1.0"),
        "not negative",
    ),
    "a time that is not a number": (
        GOOD.replace("backward_compute_time=2.0", "backward_compute_time=fast"),
        "a number",
    ),
    "an infinite time": (GOOD.replace("backward_compute_time=2.0", "backward_compute_time=inf"), "finite"),
    "a size of nan": (GOOD.replace("[4.0; 4.0]", "[4.0; nan]"), "activation_size of n3 is .* must be finite"),
    "two outputs": (GOOD.replace("\tn3 -- n4\n", "\tn2 -- n4\n"), r"2 nodes have no successor \(n3, n4\)"),
    "no parameters": (GOOD.replace("24.0", "0.0"), "no node has parameters"),
    "a source that is no input": (
        GOOD.replace("\tn1 -- n2\n", ""),
        r"n2 \(Linear\(2, 2\)\) has no edge that leads to it",
    ),
    "a node twice": (GOOD + GOOD.splitlines()[0], "the node n1 occurs twice"),
    "an edge of three": (GOOD + "\tn1 -- n2 -- n3\n", "an edge is two names"),
    "a list of times": (
        GOOD.replace("backward_compute_time=2.0", "backward_compute_time=[2.0; 1.0]"),
        "must be one",
    ),
    "no node line": ("hello\n", "line 1: a node is NAME -- DESCRIPTION -- VALUES"),
    "nothing": ("\n", "there is no node in it"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_profile_is_refused_by_file_and_place(what: str) -> None:
    text, message = BAD[what]
    with pytest.raises(InputError, match=message) as refusal:
        parse(text, source="graph.txt")
    assert str(refusal.value).startswith("graph.txt")
