"""Stores outside of the cluster: a container on the network of its nodes, with stores of an attacker and a true one."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.engine.stores import countless_store, flat_store

from e2e.attacks import false_stores
from tdcs_local import shell

TRUE_PORT = 7070
BUCKET = "ledger"
FILES = 4
ACCOUNT, KEY, OTHER_KEY = "tenant", "the-key-of-the-tenant", "the-key-after-it-was-revoked"

FILL = f"""
from pathlib import Path
from tdcs_store.buckets import Buckets
Buckets(root=Path("/data")).fill_from_seed("{BUCKET}", files={FILES}, sizes=(1000, 2000), seed="1")
"""
# The gateway has one account, which it reads when it starts.
PROGRAM = f"""
echo '{KEY}' > /tmp/key
python3 -c "$FILL"
python3 /stores/false_stores.py &
export STORE_ACCESS_KEY_ID={ACCOUNT}
while :; do
  STORE_SECRET_ACCESS_KEY="$(cat /tmp/key)" store-gateway --root /data/buckets &
  echo $! > /tmp/gateway
  wait $!
done
"""
REVOKE = 'echo "$1" > /tmp/key && kill "$(cat /tmp/gateway)"'


@dataclass(frozen=True, kw_only=True)
class Outside:
    """The container.

    Attributes:
        name: of the container.
        address: on the network of the nodes.
    """

    name: str
    address: str

    def endpoint(self, port: int) -> str:
        """Of one of the stores."""
        return f"http://{self.address}:{port}"

    def revoke(self) -> None:
        """The true store takes the tenant's key no more."""
        shell.capture(["docker", "exec", self.name, "sh", "-ec", REVOKE, "sh", OTHER_KEY])

    def end(self) -> None:
        """Remove the container."""
        shell.capture(["docker", "rm", "--force", "--volumes", self.name])


def begin(*, image: str, node: str) -> Outside:
    """Start the container, on the network of this node."""
    networks = json.loads(
        shell.capture(["docker", "inspect", "--format", "{{json .NetworkSettings.Networks}}", node])
    )
    network = next(iter(networks))
    name = f"e2e-outside-{uuid.uuid4().hex[:8]}"
    modules = (false_stores, flat_store, countless_store)
    files = [Path(str(module.__file__)) for module in modules]
    shell.capture(
        [
            *("docker", "run", "--detach", "--name", name, "--network", network, "--user", "0"),
            *("--volume", "/data", "--env", f"FILL={FILL}"),
            *(word for file in files for word in ("--volume", f"{file}:/stores/{file.name}:ro")),
            *("--entrypoint", "sh", image, "-c", PROGRAM),
        ]
    )
    address = shell.capture(
        [
            "docker",
            "inspect",
            "--format",
            f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}',
            name,
        ]
    ).strip()
    return Outside(name=name, address=address)
