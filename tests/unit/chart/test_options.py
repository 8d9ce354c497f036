"""The values of the chart that are options of a process have the names, defaults and limits of its settings."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from importlib.metadata import entry_points
from typing import Any

import click
import pytest
from tests.support.documents import document
from tests.support.generators.chart_schema import FILE, renewed, spec_fields
from tests.unit.chart.conftest import CHART, Helm, RefusedError, Rendered

from tdcs.options import FieldOption, Parsed

VALUES = document((CHART / "values.yaml").read_text())
SCHEMA = document((CHART / "values.schema.json").read_text())
ANOTHER_DEFAULT = {"operator.logFormat"}
"""Values that differ from the command's default: programs read the log of a pod, and people that of a terminal."""

PARTS = {
    "tdcs-operator/operator": "operator",
    "tdcs-scheduler/extender": "extender",
    "tdcs-csi/reader": "reader",
}
"""Containers with options that the template makes of all values of a part."""


def commands(rendered: Rendered) -> Iterator[tuple[str, click.Command, list[str]]]:
    """Each long-running container, its subcommand, and the subcommand's arguments."""
    (script,) = entry_points(group="console_scripts", name="tdcs")
    for name, container in rendered.containers().items():
        words = list(container.get("args", ()))
        current: click.Command | None = script.load()
        while isinstance(current, click.Group) and words:
            current = current.get_command(click.Context(current), words.pop(0))
        if current and any(isinstance(option, FieldOption) for option in current.params):
            yield name, current, words


def charted(rendered: Rendered) -> dict[tuple[str, str], FieldOption]:
    """By container and key of the values, the option that users set."""
    return {
        (name, option.chart): option
        for name, command, _ in commands(rendered)
        for option in command.params
        if isinstance(option, FieldOption) and option.chart
    }


def value_of(key: str, values: Mapping[str, Any] = VALUES) -> Any:
    return reduce(lambda part, word: part[word], key.split("."), values)


def schema_of(key: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = value_of(key.replace(".", ".properties."), SCHEMA["properties"])
    return schema


def as_given(option: FieldOption, value: Any) -> Any:
    """A value as the command has it: a table is given as one NAME=VALUE after the other."""
    return tuple(f"{name}={part}" for name, part in value.items()) if option.multiple else value


def another(option: FieldOption) -> Any:
    """Another value than the chart's."""
    if option.multiple:
        return {"another": 2}
    match option.type:
        case click.Choice(choices=choices):
            return next(choice for choice in choices if choice != value_of(option.chart))
        case click.types.BoolParamType():
            return not value_of(option.chart)
        case click.FloatRange() | click.IntRange():
            return value_of(option.chart) + 1
        case Parsed():
            return "1Mi"
        case click.Path():
            return "/another/folder"
    return "another"


def test_the_processes_of_the_chart_have_options_that_users_set(default: Rendered) -> None:
    assert {name for name, _, _ in commands(default)} >= {
        "tdcs-operator/operator",
        "tdcs-scheduler/extender",
        "tdcs-csi/csi",
        "tdcs-csi/reader",
        "tdcs-reader-holder/holder",
    }
    assert {key for _, key in charted(default)} >= {
        "csi.waitSeconds",
        "operator.revokedKeysSeconds",
        "reader.buffer",
    }


def test_a_value_has_the_options_default_and_limits(default: Rendered) -> None:
    for (_, key), option in charted(default).items():
        expected = str(option.default) if isinstance(option.type, click.Path) else option.default
        assert key in ANOTHER_DEFAULT or as_given(option, value_of(key)) == expected, key
        schema = schema_of(key)
        match option.type:
            case click.Choice(choices=choices):
                assert set(schema["enum"]) == set(choices), key
            case click.FloatRange() | click.IntRange() as limits:
                assert (schema.get("minimum"), schema.get("maximum")) == (limits.min, limits.max), key
            case click.types.BoolParamType():
                assert schema["type"] == "boolean", key


def test_a_value_reaches_its_process(helm: Helm, default: Rendered) -> None:
    by_option = charted(default)
    values = {option.chart: another(option) for option in by_option.values()}
    rendered = helm.template({key: json.dumps(value) for key, value in values.items()})
    reached = set()
    for name, command, words in commands(rendered):
        parameters = command.make_context(name, words, resilient_parsing=True).params
        for option in command.params:
            if isinstance(option, FieldOption) and option.chart:
                value = as_given(option, values[option.chart])
                expected = option.type_cast_value(click.Context(command), value)
                assert parameters[option.name] == expected, option.chart
                reached.add((name, option.chart))
    assert reached == by_option.keys()


def test_a_value_with_an_options_name_is_declared_with_the_option(default: Rendered) -> None:
    for name, command, _ in commands(default):
        part = PARTS.get(name, "")
        flags = {flag: option for option in command.params for flag in option.opts}
        for key in VALUES.get(part, ()):
            option = flags.get("--" + re.sub("([A-Z])", r"-\1", key).lower())
            assert option is None or (isinstance(option, FieldOption) and option.chart == f"{part}.{key}")


def test_a_misspelt_field_of_the_cache_is_refused_as_other_values_are(helm: Helm) -> None:
    assert schema_of("cacheCluster.spec")["$ref"] == "#/definitions/cacheClusterSpec"
    with pytest.raises(RefusedError, match="engin"):
        helm.template({"cacheCluster.spec.engin": json.dumps("Native")})


@pytest.mark.parametrize(
    ("value", "misspelt"),
    [
        ({"cacheCluster.spec.scaling.minReplica": "1"}, "minReplica"),
        ({"cacheCluster.spec.storage.tiers[0].quotaa": json.dumps("1Gi")}, "quotaa"),
        ({"cacheCluster.spec.worker.resource.limits.cpu": "1"}, "resource"),
    ],
)
def test_a_misspelt_field_below_the_first_level_of_the_cache_is_refused_too(
    helm: Helm, value: Mapping[str, str], misspelt: str
) -> None:
    with pytest.raises(RefusedError, match=rf"\b{misspelt}\b"):
        helm.template(value)


def test_the_charts_fields_of_the_cache_are_those_of_the_crd() -> None:
    assert renewed(FILE.read_text()) == FILE.read_text(), "renew it: make crds"
    assert spec_fields()["properties"].keys() >= {"engine", "storage", "scaling"}


def test_a_cache_that_the_values_name_no_more_keeps_its_data(helm: Helm) -> None:
    for name in ("default", "other"):
        cache = helm.template({"cacheCluster.name": json.dumps(name)}).one("CacheCluster", name)
        assert cache["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_every_kind_with_a_scale_has_a_policy_for_objects_that_are_deleted(default: Rendered) -> None:
    scaled = set()
    for path in (CHART / "crds").iterdir():
        crd = document(path.read_text())
        if any("scale" in version.get("subresources", {}) for version in crd["spec"]["versions"]):
            scaled.add(f"{crd['spec']['names']['plural']}/scale")
    covered = set()
    for policy in default.all("ValidatingAdmissionPolicy"):
        if "is being deleted, so scaling it" in str(policy["spec"]["validations"]):
            (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
            covered.update(rule["resources"])
    assert covered == scaled
