"""The audit log of the cluster's API server: which requests the service accounts of TDCS's namespace made.

Only their metadata is logged, and nothing of any other user, so the log stays small. It is kept on the node of the
control plane, in files of 50 MB that replace the oldest.
"""

import json
import subprocess
from pathlib import Path
from typing import IO, Any

from tdcs_local.errors import LocalError
from tdcs_local.kind.release import NAMESPACE

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch is logged when it starts, and may outlive its reader.
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]},
        {"level": "None"},
    ],
}
POLICY_FILE = "audit-policy.json"
"""In the folder that nodes see."""
FOLDER = "/var/log/kubernetes"
LOG = f"{FOLDER}/audit.jsonl"
MEGABYTES = 50
FILES = 4


def write_policy(folder: Path) -> None:
    """Write the policy into the folder that nodes see."""
    (folder / POLICY_FILE).write_text(json.dumps(POLICY, indent=1))


def api_server(*, node_folder: str) -> dict[str, Any]:
    """What kubeadm's ClusterConfiguration says of the API server; `node_folder` is where nodes see the policy."""
    policy = f"/etc/kubernetes/{POLICY_FILE}"
    return {
        "extraArgs": {
            "audit-policy-file": policy,
            "audit-log-path": LOG,
            "audit-log-maxsize": str(MEGABYTES),
            "audit-log-maxbackup": str(FILES - 1),
        },
        "extraVolumes": [
            {
                "name": "audit-policy",
                "hostPath": f"{node_folder}/{POLICY_FILE}",
                "mountPath": policy,
                "readOnly": True,
                "pathType": "File",
            },
            {"name": "audit-log", "hostPath": FOLDER, "mountPath": FOLDER, "pathType": "DirectoryOrCreate"},
        ],
    }


def read(*, cluster: str, into: IO[bytes]) -> None:
    """Write the lines of the log to a file, oldest first.

    Raises :class:`LocalError` when there is none: the cluster is older than its log.
    """
    # Files that were replaced have the time in their names, so they sort by age.
    replaced = f"{LOG.removesuffix('.jsonl')}-*.jsonl"
    script = f'for file in {replaced}; do [ ! -e "$file" ] || cat "$file"; done; exec cat {LOG}'
    command = ["docker", "exec", f"{cluster}-control-plane", "sh", "-ec", script]
    done = subprocess.run(command, stdout=into, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise LocalError(
            what=f"the audit log of the cluster {cluster} cannot be read",
            why=done.stderr.decode(errors="replace").strip(),
            remedy="a cluster that was made without one is renewed by `make down` and `make up`",
        )
