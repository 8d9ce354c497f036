"""The reference of roles is the tables that processes use."""

from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pb2

from tdcs.node.wire import frames
from tdcs.trust import rights
from tdcs.trust.roles import Role
from tdcs_labs.reference import roles
from tdcs_labs.reference.alluxio_rights import Place, alluxio_rights
from tdcs_labs.reference.roles import rights_text

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "roles.md"
RIGHTS = ROOT / "deploy" / "local" / "alluxio" / "names" / "io" / "tdcs" / "trust" / "rights.txt"


def alluxio_methods() -> set[str]:
    """Every method of the services whose descriptors the operator has."""
    data = resources.files("tdcs.alluxio").joinpath("alluxio.desc").read_bytes()
    return {
        f"{file.package}.{service.name}/{method.name}"
        for file in descriptor_pb2.FileDescriptorSet.FromString(data).file
        for service in file.service
        for method in service.method
    }


def test_the_page_in_the_docs_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == roles.markdown(), "run: make crds"


def test_alluxios_processes_read_the_table_that_the_page_shows() -> None:
    assert RIGHTS.read_text() == rights_text(), "run: make crds"


@pytest.mark.threat("alluxio-rpc")
def test_every_method_of_alluxios_protos_has_a_verdict_for_each_role() -> None:
    table = alluxio_rights()
    assert alluxio_methods() <= set(table)
    for method, allowed in table.items():
        assert set(allowed) <= set(Role), method
        assert method.count("/") == 1


def test_what_changes_or_shows_the_cache_is_for_those_who_need_it_alone() -> None:
    table = {method.rpartition("/")[2]: set(allowed) for method, allowed in alluxio_rights().items()}
    assert table["Mount"] == table["Unmount"] == table["Remove"] == {Role.OPERATOR}
    assert table["GetUfsInfo"] == {Role.WORKER}
    assert table["CreateLocalBlock"] == {Role.AGENT}
    assert table["ReadBlock"] == {Role.WORKER, Role.FUSE}
    assert (
        table["WriteBlock"] == table["Free"] == table["UpdateConfiguration"] == table["SetAttribute"] == set()
    )
    assert all(Role.MONITOR not in allowed for allowed in table.values())


@pytest.mark.threat("agent-others-blocks")
def test_an_agent_changes_blocks_from_the_worker_pod_alone() -> None:
    assert (
        "FileSystemMasterClientService/Mount` | `operator` (in a CacheCluster of the profile `Stock` alone) |"
        in (roles.markdown())
    )
    near = {
        (role, method.rpartition("/")[2])
        for method, places in alluxio_rights().items()
        for role, place in places.items()
        if place is Place.OWN_POD
    }
    assert near == {(Role.AGENT, "CreateLocalBlock"), (Role.AGENT, "RemoveBlock")}
    page = roles.markdown()
    assert "BlockWorker/RemoveBlock` | `agent` of the same pod |" in page
    assert "agent@pod alluxio.grpc.block.BlockWorker/RemoveBlock\n" in rights_text()


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "roles.md"
    result = CliRunner().invoke(roles.command, ["--output", str(page)])
    assert (result.exit_code, page.read_text()) == (0, roles.markdown())


@pytest.mark.threat("requests-outside-role")
def test_the_kinds_of_requests_are_those_of_the_block_service() -> None:
    assert (rights.READ_BLOCKS, rights.FOLLOW_BLOCKS, rights.READ_SOURCE) == (
        frames.READ,
        frames.FEED,
        frames.SOURCE,
    )


@pytest.mark.threat("alluxio-rpc")
def test_what_no_table_names_is_refused_to_every_role() -> None:
    for role in (None, *Role):
        assert not rights.may_ask(role, 4)
        for table in (rights.CONTROL_REQUESTS, rights.OPERATOR_REQUESTS):
            assert not rights.may_call(role, "DELETE /v1/state", requests=table)
            assert not rights.may_call(role, "GET /v1/anything", requests=table)
    assert not any(rights.may_ask(None, kind) for kind in rights.BLOCK_REQUESTS)
    for table in (rights.CONTROL_REQUESTS, rights.OPERATOR_REQUESTS):
        assert not any(rights.may_call(None, request, requests=table) for request in table)
