"""The chart as helm renders it, for tests that look at single objects of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.documents import documents
from tests.support.kube import Object

from tdcs_local import programs
from tdcs_local.paths import CHECKOUT


def rendered(
    values: Mapping[str, Any],
    *,
    release: str = "tdcs",
    namespace: str = "tdcs-system",
    templates: Sequence[str] = (),
) -> list[Object]:
    """The objects of a release with these values, its hooks and tests among them.

    Args:
        templates: names of those to render, without suffix; by default all.
    """
    command: list[str] = [
        *(str(programs.ensure("helm") / "helm"), "template", release, str(CHECKOUT / "charts" / "tdcs")),
        *("--namespace", namespace, "--kube-version", "1.34.0"),
        *(word for name in templates for word in ("--show-only", f"templates/{name}.yaml")),
        *(word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return documents(done.stdout)


def rules_of(role: Object) -> Iterator[tuple[str, str, str]]:
    """(group, resource, verb) of everything that a role allows; nothing of another object."""
    for rule in role.get("rules") or ():
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])
