"""Selectors of namespaces."""

from hypothesis import given
from hypothesis import strategies as st

from tdcs.api.namespace_selector import NamespaceSelector


@given(st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")))
def test_selectors_of_namespaces_are_those_of_kubernetes(labels: dict[str, str]) -> None:
    def holds(operator: str, *values: str) -> bool:
        term = {"key": "a", "operator": operator, "values": list(values)}
        return NamespaceSelector.model_validate({"matchExpressions": [term]}).selects(labels)

    assert NamespaceSelector().selects(labels)
    assert holds("In", "x") is (labels.get("a") == "x")
    assert holds("NotIn", "x") is (labels.get("a") != "x")
    assert holds("Exists") is ("a" in labels)
    assert holds("DoesNotExist") is ("a" not in labels)
