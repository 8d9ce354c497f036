"""Whether a Dataset may read the source of another namespace's Dataset."""

from typing import Any

import pytest

from tdcs.api.dataset import Dataset
from tdcs.decide.problem import Refusal
from tdcs.decide.shared_source import UsedSource, used_source

GOLD = {"namespaceSelector": {"matchLabels": {"tier": "gold"}}}
BY_NAME = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "reader"}}}
EVERYBODY: dict[str, Any] = {"namespaceSelector": {}}
REFERENCE = {"datasetRef": {"namespace": "owner", "name": "pictures"}}


def dataset(source: dict[str, Any], **spec: Any) -> Dataset:
    return Dataset.model_validate({"spec": {"source": source, **spec}})


def owner_of(*grants: dict[str, Any]) -> Dataset:
    return dataset({"uri": "s3://pictures/of/owner", "bandwidth": "1Gi"}, sharedWith=list(grants))


def used(
    owner: Dataset | None, *, labels: dict[str, str] | None = None, **source: Any
) -> UsedSource | Refusal:
    return used_source(dataset({**REFERENCE, **source}), namespace="reader", labels=labels, owner=owner)


def test_a_dataset_with_its_own_source_reads_that_with_its_own_keys() -> None:
    plain = dataset({"uri": "s3://mine"})
    assert used_source(plain, namespace="reader", labels=None, owner=None) == UsedSource(
        spec=plain.spec.source, namespace="reader"
    )


@pytest.mark.parametrize(
    ("grants", "labels", "within"),
    [
        pytest.param([{"namespaces": ["other", "reader"]}], None, (), id="by name, labels not known yet"),
        pytest.param([GOLD], {"tier": "gold"}, (), id="by label"),
        pytest.param([BY_NAME], {}, (), id="by the label that each namespace has"),
        pytest.param([EVERYBODY], {}, (), id="every namespace"),
        pytest.param([{"namespaces": ["reader"], "paths": ["b/", "a"]}], {}, ("a", "b"), id="paths"),
        pytest.param(
            [{"namespaces": ["reader"], "paths": ["a"]}, {**GOLD, "paths": ["b", "a/"]}],
            {"tier": "gold"},
            ("a", "b"),
            id="paths of several grants",
        ),
        pytest.param(
            [{"namespaces": ["reader"], "paths": ["a"]}, GOLD], {"tier": "gold"}, (), id="one grants all"
        ),
        pytest.param(
            [{"namespaces": ["reader"], "paths": ["a"]}, GOLD], {"tier": "tin"}, ("a",), id="one is another's"
        ),
    ],
)
def test_a_namespace_reads_what_is_granted_to_it(
    grants: list[dict[str, Any]], labels: dict[str, str] | None, within: tuple[str, ...]
) -> None:
    source = used(owner_of(*grants), labels=labels, bandwidth="1Mi")
    assert isinstance(source, UsedSource)
    assert (source.namespace, source.within) == ("owner", within)
    assert (source.spec.uri, source.spec.bandwidth) == ("s3://pictures/of/owner", "1Mi")


def test_a_label_that_a_tenant_writes_does_not_make_its_namespace_another_one() -> None:
    forged = {"kubernetes.io/metadata.name": "friend"}
    friend = {"namespaceSelector": {"matchLabels": forged}}
    assert isinstance(used(owner_of(friend), labels=forged), Refusal)


@pytest.mark.parametrize("grants", [(), ({"namespaces": ["other"]},), (GOLD,)])
def test_a_dataset_that_is_not_shared_is_refused_in_the_words_of_one_that_is_not_there(
    grants: tuple[dict[str, Any], ...],
) -> None:
    refusal = used(owner_of(*grants), labels={"tier": "tin"})
    assert isinstance(refusal, Refusal)
    assert refusal.permanent
    assert refusal == used(None, labels={"tier": "tin"})


def test_while_labels_are_not_known_nothing_is_taken_away_where_they_might_grant() -> None:
    refusal = used(owner_of(GOLD), labels=None)
    assert isinstance(refusal, Refusal)
    assert not refusal.permanent
    by_name = used(owner_of({"namespaces": ["other"]}), labels=None)
    assert isinstance(by_name, Refusal)
    assert by_name.permanent


def test_a_shared_source_is_not_passed_on() -> None:
    between = dataset(
        {"datasetRef": {"namespace": "first", "name": "secret"}}, sharedWith=[{"namespaces": ["reader"]}]
    )
    refusal = used(between, labels={})
    assert isinstance(refusal, Refusal)
    assert refusal.permanent
    assert "first" not in refusal.message
