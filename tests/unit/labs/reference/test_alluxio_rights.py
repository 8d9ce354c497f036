"""Each role may call what its process calls of Alluxio and nothing else, so that a wider table fails here."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tdcs import alluxio
from tdcs.alluxio import rpc
from tdcs.trust.roles import Role
from tdcs_labs.reference.alluxio_rights import Place, alluxio_rights

FOLDER = Path(alluxio.__file__).parent
CODE: Mapping[Role, tuple[str, ...]] = {
    Role.OPERATOR: ("export_sweep.py", "master_room.py"),
    Role.AGENT: ("worker_blocks.py", "exported_files.py", "master_room.py"),
}
"""The modules with all that processes of our own call."""

STOCK: Mapping[Role, frozenset[str]] = {
    # With these the experiment gives its bucket to a cache of the profile Stock, in the operator's container.
    Role.OPERATOR: frozenset({f"{rpc.FILE_SYSTEM}/Mount", f"{rpc.FILE_SYSTEM}/Unmount"}),
    # And so it is read.
    Role.WORKER: frozenset(
        {"alluxio.grpc.file.FileSystemMasterWorkerService/GetUfsInfo", f"{rpc.BLOCK_WORKER}/ReadBlock"}
    ),
    Role.FUSE: frozenset({f"{rpc.BLOCK_WORKER}/Cache"}),
}
"""What is called in a CacheCluster of the profile Stock alone, whose Alluxio mounts and reads a source."""

SERVICES = (
    *(rpc.FILE_SYSTEM, rpc.BLOCK_MASTER, rpc.CONFIGURATION, rpc.META_MASTER, rpc.METRICS_MASTER),
    rpc.BLOCK_WORKER,
)
WORKERS_OF_BLOCKS = "alluxio.grpc.block.BlockMasterWorkerService"
WORKERS_OF_FILES = "alluxio.grpc.file.FileSystemMasterWorkerService"
VERSION = "alluxio.grpc.version.ServiceVersionClientService"

NEEDED: Mapping[Role, frozenset[str]] = {
    Role.READER: frozenset(),
    # What Alluxio's own processes cannot do their work without: tests/engine/test_trust.py has them do it.
    Role.MASTER: frozenset({f"{rpc.CONFIGURATION}/GetConfiguration"}),
    Role.WORKER: frozenset(
        {
            *(
                f"{WORKERS_OF_BLOCKS}/{method}"
                for method in (
                    "BlockHeartbeat",
                    "CommitBlock",
                    "GetWorkerId",
                    "RegisterWorker",
                    "RegisterWorkerStream",
                    "RequestRegisterLease",
                )
            ),
            *(f"{WORKERS_OF_FILES}/{method}" for method in ("FileSystemHeartbeat", "GetPinnedFileIds")),
            *(f"{rpc.CONFIGURATION}/{method}" for method in ("GetConfiguration", "GetConfigHash")),
            f"{VERSION}/getServiceVersion",
        }
    ),
    Role.FUSE: frozenset(
        {
            *(f"{rpc.FILE_SYSTEM}/{method}" for method in ("GetStatus", "ListStatus")),
            *(
                f"{rpc.BLOCK_MASTER}/{method}"
                for method in ("GetBlockInfo", "GetBlockMasterInfo", "GetWorkerInfoList")
            ),
            *(f"{rpc.BLOCK_WORKER}/{method}" for method in ("OpenLocalBlock", "ReadBlock")),
            *(f"{rpc.CONFIGURATION}/{method}" for method in ("GetConfiguration", "GetConfigHash")),
            "alluxio.grpc.metric.MetricsMasterClientService/MetricsHeartbeat",
            f"{VERSION}/getServiceVersion",
        }
    ),
    Role.MONITOR: frozenset(),
}
"""What the other roles call; written down once more, so that no single edit gives a right."""


def named_in(*modules: str) -> frozenset[str]:
    """The methods that the code of modules names."""
    words = {
        node.value
        for module in modules
        for node in ast.walk(ast.parse((FOLDER / module).read_text()))
        if isinstance(node, ast.Constant)
    }
    methods = (method.rpartition("/") for method in alluxio_rights())
    return frozenset(
        f"{service}/{name}" for service, _, name in methods if name in words and service in SERVICES
    )


def allowed_to(role: Role, *, stock: bool = False) -> frozenset[str]:
    """The methods that a role may call: in every cache, or in one of the profile Stock besides."""
    return frozenset(
        method
        for method, places in alluxio_rights().items()
        if role in places and (places[role] is Place.STOCK) is stock
    )


@pytest.mark.parametrize("role", Role)
@pytest.mark.threat("alluxio-rpc")
def test_a_role_may_call_what_its_process_calls_and_nothing_else(role: Role) -> None:
    needed = named_in(*CODE[role]) if role in CODE else NEEDED[role]
    assert allowed_to(role) == needed
    assert allowed_to(role, stock=True) == STOCK.get(role, frozenset())


@pytest.mark.parametrize("role", [Role.READER, Role.MONITOR, Role.MASTER])
def test_who_has_nothing_to_change_may_call_no_method_that_does(role: Role) -> None:
    assert [
        method for method in allowed_to(role) if not method.rpartition("/")[2].startswith(("Get", "List"))
    ] == []


@pytest.mark.threat("alluxio-rpc")
def test_the_operator_alone_changes_mounts_and_settings_and_removes_what_agents_make() -> None:
    changing = {
        (method, role)
        for method, allowed in alluxio_rights().items()
        for role in allowed
        if method.partition("/")[0] in (rpc.FILE_SYSTEM, rpc.CONFIGURATION)
        and not method.rpartition("/")[2].startswith(("Get", "List"))
    }
    assert {role for _, role in changing} == {Role.OPERATOR, Role.AGENT}
    agent_calls = {method.rpartition("/")[2] for method, role in changing if role is Role.AGENT}
    assert agent_calls == {"CreateFile", "CompleteFile"}, "files below no mount: those are read-only"
