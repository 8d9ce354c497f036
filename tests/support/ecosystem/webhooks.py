"""Webhook configurations of a project, as it ships them, that lead to a process on loopback."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator
from pathlib import Path

import yaml
from tests.support.kube import Object

ASKED = {"tests.tdcs.io/ecosystem": "asked"}
"""Label of the namespaces about which managers are asked: not those of other tests."""


def local_webhooks(
    manifests: Path, *, name: str, port: int, authority: bytes, groups: Collection[str]
) -> Iterator[Object]:
    """The configurations of a file.

    Args:
        manifests: the project's own.
        name: of each of them on the control plane.
        port: where the process serves them.
        authority: certificate that signed the process's.
        groups: API groups that are of interest; hooks for others are left out.
    """
    trusted = base64.b64encode(authority).decode()
    for configuration in yaml.safe_load_all(manifests.read_text()):
        hooks = []
        for hook in configuration["webhooks"]:
            if not {group for rule in hook["rules"] for group in rule["apiGroups"]} <= set(groups):
                continue
            url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
            called = {"url": url, "caBundle": trusted}
            hooks.append({**hook, "clientConfig": called, "namespaceSelector": {"matchLabels": ASKED}})
        yield {
            "apiVersion": configuration["apiVersion"],
            "kind": configuration["kind"],
            "metadata": {"name": name},
            "webhooks": hooks,
        }
