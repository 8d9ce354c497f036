"""Writes the fields of a CacheCluster's spec into the chart's schema of values; `python -m` this renews the file.

Names are kept, and nothing of their values: those are for the API server to judge, which says more about them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]

FILE = ROOT / "charts/tdcs/values.schema.json"

CRD = ROOT / "crds/tdcs.io_cacheclusters.yaml"

_PLACE = '    "cacheClusterSpec": '
"""What is before the definition, with its indentation."""


def field_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that refuses unknown fields of objects, also of those in lists and maps, and nothing else."""
    properties, items, values = (schema.get(key) for key in ("properties", "items", "additionalProperties"))
    if properties and not schema.get("x-kubernetes-preserve-unknown-fields"):
        fields = {name: field_names(inner) for name, inner in sorted(properties.items())}
        return {"additionalProperties": False, "properties": fields}
    if isinstance(items, Mapping) and (names := field_names(items)):
        return {"items": names}
    if isinstance(values, Mapping) and (names := field_names(values)):
        return {"additionalProperties": names}
    return {}


def spec_fields() -> dict[str, Any]:
    """The fields of a CacheCluster's spec, by its CRD."""
    crd = yaml.safe_load(CRD.read_text())
    (version,) = (each for each in crd["spec"]["versions"] if each["storage"])
    return {"type": "object"} | field_names(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def renewed(text: str) -> str:
    """The chart's schema with the fields as they are now."""
    begin = text.index(_PLACE) + len(_PLACE)
    _, length = json.JSONDecoder().raw_decode(text[begin:])
    return text[:begin] + json.dumps(spec_fields(), indent=2).replace("\n", "\n    ") + text[begin + length :]


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text()))
