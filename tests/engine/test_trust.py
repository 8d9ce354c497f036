"""A real Alluxio with certificates: what works with the right role, and the attacks that are refused without it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from tests.engine import block_reads
from tests.engine.agents.agent_nodes import agents_of, master_of
from tests.engine.block_reads import refusal
from tests.engine.servers import AlluxioCluster, S3Server, random_network
from tests.support.certificates import DAY, TestAuthority, now, write_identity
from tests.support.waiting import eventually_async

from tdcs.alluxio.export_sweep import ExportSweep
from tdcs.alluxio.exported_files import ExportedFiles, worker_name
from tdcs.alluxio.rpc import (
    BLOCK_MASTER,
    BLOCK_WORKER,
    CONFIGURATION,
    FILE_SYSTEM,
    Rpc,
    RpcFailureError,
    method_types,
)
from tdcs.api import names
from tdcs.model.agent_state import NO_SLOTS
from tdcs.trust.certificates import end_of
from tdcs.trust.identity import Identify, Identity
from tdcs.trust.roles import Role

ONE, TWO = "node-1", "node-2"
CAPACITY: Final = 256 << 20
MASTER_WORKER = "alluxio.grpc.file.FileSystemMasterWorkerService"
FILES = {f"{number:02}": os.urandom(30_000) for number in range(12)}
SECRET = b"what is outside of the mounted folder"

CALLS: Sequence[tuple[str, str, str, Mapping[str, Any], frozenset[Role]]] = (
    ("list mounts", FILE_SYSTEM, "GetMountTable", {}, frozenset()),
    ("keys of a source", MASTER_WORKER, "GetUfsInfo", {"mountId": 1}, frozenset()),
    ("free", FILE_SYSTEM, "Free", {"path": "/none", "options": {}}, frozenset()),
    (
        "mount /etc",
        FILE_SYSTEM,
        "Mount",
        {"alluxioPath": "/evil", "ufsPath": "/etc"},
        frozenset(),
    ),
    ("delete", FILE_SYSTEM, "Remove", {"path": "/datasets"}, frozenset({Role.OPERATOR})),
    ("configure", CONFIGURATION, "UpdateConfiguration", {"properties": {"a": "b"}}, frozenset()),
    ("workers", BLOCK_MASTER, "GetWorkerInfoList", {}, frozenset({Role.FUSE})),
)
"""Calls to the master: what for, service, method, request, and who may."""

PROBED = (Role.READER, Role.AGENT, Role.WORKER, Role.FUSE, Role.MONITOR, Role.MASTER)
"""Whose certificates an attacker may have."""


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture(scope="module")
def cluster(
    alluxio_home: Path, authority: TestAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AlluxioCluster]:
    cluster = AlluxioCluster(
        home=alluxio_home,
        folder=tmp_path_factory.mktemp("trusted"),
        network=random_network(),
        workers={ONE: CAPACITY, TWO: CAPACITY},
        overrides={},
        authority=authority,
    )
    cluster.start()
    yield cluster
    cluster.stop()


@asynccontextmanager
async def calling(
    cluster: AlluxioCluster, identify: Identify, *, patience: float = 10.0
) -> AsyncIterator[Rpc]:
    """Calls to the master with the certificate of the moment."""
    rpc = Rpc(target=cluster.target, patience=patience, identify=identify)
    try:
        yield rpc
    finally:
        await rpc.close()


async def folders(rpc: Rpc) -> list[str]:
    """The folders at the master's root, as the operator asks for them; it fails when the master does not answer."""
    return await ExportSweep(master=rpc, root="/", mounts=nothing).folders()


async def nothing() -> list[str]:
    return []


async def live(cluster: AlluxioCluster, identity: Identity) -> list[str]:
    """The workers that the master knows to be alive, as a client asks for them."""
    async with calling(cluster, lambda: identity) as rpc:
        answer = await rpc.unary(service=BLOCK_MASTER, method="GetWorkerInfoList", deadline=10)
    return sorted(worker_name(info.address) for info in answer.workerInfos)


def worker_of(cluster: AlluxioCluster) -> str:
    return f"{cluster.worker_hosts[ONE]}:{names.WORKER_RPC_PORT}"


def channel(
    target: str, identity: Identity | None, *, authorities: bytes, name: str | None = None
) -> grpc.aio.Channel:
    """To a process, with this certificate or with none; `name` is its own where `target` is a relay."""
    options = [("grpc.ssl_target_name_override", name)] if name is not None else []
    if identity is None:
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(authorities), options)
    credentials = grpc.ssl_channel_credentials(authorities, identity.key, identity.certificate)
    return grpc.aio.secure_channel(target, credentials, options)


@asynccontextmanager
async def relayed(target: str, *, source: str) -> AsyncIterator[str]:
    """Where to call so that the process at `target` sees a caller with the address `source`, one of this machine's."""
    host, _, port = target.rpartition(":")

    async def pass_on(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the other side has gone
            while data := await one.read(1 << 16):
                other.write(data)
                await other.drain()
        other.close()

    async with asyncio.TaskGroup() as tasks:
        passing: list[asyncio.Task[None]] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            upstream, back = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            passing.extend(
                tasks.create_task(pass_on(sender, receiver))
                for sender, receiver in ((reader, back), (upstream, writer))
            )

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in passing:
                task.cancel()


def address_of_this_machine() -> str:
    """An address of this machine that is not loopback's: the one from which it would send elsewhere."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


async def answer(
    to: grpc.aio.Channel, service: str, method: str, request: Mapping[str, Any]
) -> grpc.StatusCode:
    """How a call ends."""
    request_type, response_type = method_types(service, method)
    call: Any = to.unary_unary(
        f"/{service}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response_type.FromString,
    )
    try:
        await call(request_type(**request), timeout=20)
    except grpc.aio.AioRpcError as error:
        is_refused = f"may not call {service}/{method}" in (error.details() or "")
        return grpc.StatusCode.PERMISSION_DENIED if is_refused else error.code()
    return grpc.StatusCode.OK


async def read_block(
    target: str, identity: Identity, *, block: int, length: int, authorities: bytes, path: str = ""
) -> bytes | grpc.StatusCode:
    """Have a worker give a block, or what it reads at a path of the caller's choice."""
    asker = Identity(identity.certificate, identity.key, authorities)
    try:
        return await block_reads.read_block(target, block=block, path=path, length=length, identity=asker)
    except grpc.aio.AioRpcError as failure:
        return failure.code()


async def test_agents_bring_and_a_fuse_client_reads_with_the_certificates_of_their_roles(
    cluster: AlluxioCluster, s3: S3Server, tmp_path: Path
) -> None:
    """The whole way: bring from a source and from a peer and export as agents, workers' heartbeats, and a client that
    reads blocks of other nodes."""
    s3.make_bucket("trusted")
    s3.put_files("trusted", {f"data/{name}": content for name, content in FILES.items()})
    async with agents_of(cluster, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
        version = await agents.version(s3.source("s3://trusted/data"))
        await agents.give(ONE, version)
        await agents.holds(ONE, version)
        peer = agents.nodes[ONE].peer()
        await agents.give(TWO, version, origin=NO_SLOTS, source=None, peers=[peer])
        await agents.holds(TWO, version)
        assert agents.nodes[TWO].content(version) == FILES
        await agents.exported(version.manifest.path, FILES, ONE, TWO)
        path = version.manifest.path.lstrip("/")
        fuse = await asyncio.to_thread(cluster.mount_fuse, "node-3")
        for name, content in FILES.items():
            assert await asyncio.to_thread((fuse.folder / path / name).read_bytes) == content
        await asyncio.to_thread(fuse.stop)


@pytest.mark.threat("alluxio-rpc")
async def test_calls_of_strangers_and_of_other_roles_are_refused(
    cluster: AlluxioCluster, authority: TestAuthority
) -> None:
    believed = authority.pair.certificate
    strangers: Mapping[str, Identity | None] = {
        "no certificate": None,
        "another authority": TestAuthority().identity(Role.OPERATOR, believes=believed),
        "ended": authority.identity(Role.OPERATOR, until=now() - DAY),
    }
    codes: dict[tuple[str, str], grpc.StatusCode] = {}
    for target, calls in (
        (cluster.target, [call[:4] for call in CALLS]),
        (worker_of(cluster), [("remove", BLOCK_WORKER, "RemoveBlock", {"block_id": 1})]),
    ):
        for caller, identity in strangers.items():
            async with channel(target, identity, authorities=believed) as to:
                for call_name, service, method, request in calls:
                    codes[caller, call_name] = await answer(to, service, method, request)
        async with grpc.aio.insecure_channel(target) as plain:
            for call_name, service, method, request in calls:
                codes["plain", call_name] = await answer(plain, service, method, request)
    # Before any call: the connection itself is refused.
    assert not set(codes.values()) & {grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED}, codes
    for role in PROBED:
        async with channel(cluster.target, authority.identity(role), authorities=believed) as to:
            for call_name, service, method, request, allowed in CALLS:
                code = await answer(to, service, method, request)
                assert (code is grpc.StatusCode.PERMISSION_DENIED) == (role not in allowed), (
                    role,
                    call_name,
                    code,
                )
        async with channel(worker_of(cluster), authority.identity(role), authorities=believed) as to:
            code = await answer(to, BLOCK_WORKER, "RemoveBlock", {"block_id": 1})
            assert (code is grpc.StatusCode.PERMISSION_DENIED) == (role is not Role.AGENT), role
    operator = authority.identity(Role.OPERATOR)
    async with calling(cluster, lambda: operator) as rpc:
        assert "/evil" not in await folders(rpc)


@pytest.mark.threat("agent-others-blocks")
async def test_an_agent_changes_blocks_at_the_worker_of_its_pod_alone(
    cluster: AlluxioCluster, authority: TestAuthority
) -> None:
    """Here all are on one loopback interface, as in a pod, and `elsewhere` leads to a worker from beside it."""
    believed, worker, host = authority.pair.certificate, worker_of(cluster), cluster.worker_hosts[ONE]
    agent = authority.identity(Role.AGENT, believes=believed)
    operator = authority.identity(Role.OPERATOR, believes=believed)
    async with relayed(worker, source=address_of_this_machine()) as elsewhere:
        codes = {}
        for caller, identity, target in (
            ("agent of the pod", agent, worker),
            ("agent", agent, elsewhere),
            ("operator", operator, elsewhere),
        ):
            async with channel(target, identity, authorities=believed, name=host) as to:
                codes[caller] = await answer(to, BLOCK_WORKER, "RemoveBlock", {"block_id": 1})
        created = await refusal(elsewhere, "CreateLocalBlock", agent, name=host)
    assert codes == {
        "agent of the pod": grpc.StatusCode.OK,
        "agent": grpc.StatusCode.PERMISSION_DENIED,
        "operator": grpc.StatusCode.PERMISSION_DENIED,
    }
    assert created is grpc.StatusCode.PERMISSION_DENIED


async def test_blocks_are_read_and_written_by_those_roles_alone_that_need_it(
    cluster: AlluxioCluster, authority: TestAuthority, s3: S3Server, tmp_path: Path
) -> None:
    s3.make_bucket("blocks")
    s3.put_files("blocks", {f"data/{name}": content for name, content in FILES.items()})
    async with agents_of(cluster, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
        version = await agents.version(s3.source("s3://blocks/data"))
        await agents.give(ONE, version)
        await agents.exported(version.manifest.path, FILES, ONE)
        agent = authority.identity(Role.AGENT)
        async with master_of(cluster, lambda: agent) as master:
            file = await ExportedFiles(master).find(f"{version.manifest.path}/00")
        assert file is not None
        believed, worker = authority.pair.certificate, worker_of(cluster)
        for role in Role:
            identity = authority.identity(role)
            reply = await read_block(
                worker, identity, block=file.block, length=file.length, authorities=believed
            )
            if role is Role.FUSE:
                assert reply == FILES["00"], role
            else:
                assert not isinstance(reply, bytes), role
                assert await refusal(worker, "ReadBlock", identity) is grpc.StatusCode.PERMISSION_DENIED, role
            assert await refusal(worker, "WriteBlock", identity) is grpc.StatusCode.PERMISSION_DENIED, role


@pytest.mark.threat("path-in-block-read")
@pytest.mark.parametrize("role", [Role.WORKER, Role.FUSE])
async def test_a_worker_reads_no_file_at_a_path_that_a_caller_names(
    cluster: AlluxioCluster, authority: TestAuthority, tmp_path: Path, role: Role
) -> None:
    (tmp_path / "key").write_bytes(SECRET)
    identity, believed = authority.identity(role), authority.pair.certificate
    root = f"{cluster.folder}/master/root"
    for number, path in enumerate(
        (
            f"{tmp_path}/key",
            f"file://{tmp_path}/key",
            f"{root}/../../../{tmp_path}/key",
            "/etc/passwd",
            "/proc/self/environ",
            "../key",
            f"{cluster.trust_folder(ONE)}/tls.key",
        )
    ):
        content = await read_block(
            worker_of(cluster), identity, block=number << 24, path=path, length=30, authorities=believed
        )
        assert isinstance(content, grpc.StatusCode), path


async def test_authority_and_certificates_change_while_everything_runs(
    cluster: AlluxioCluster, authority: TestAuthority
) -> None:
    """All believe both authorities, then all have certificates of the new one, then the old one is gone: no call fails,
    and at the end a certificate of the old authority counts for nothing."""
    new = TestAuthority("the next authority")
    authorities = authority.pair.certificate + new.pair.certificate
    identities = [authority.identity(Role.OPERATOR, believes=authorities)]
    hosts = {"master": (Role.MASTER, cluster.master_host)} | {
        node: (Role.WORKER, host) for node, host in cluster.worker_hosts.items()
    }
    async with calling(cluster, lambda: identities[0], patience=0.1) as rpc:

        def give(signing: TestAuthority, believes: bytes) -> None:
            for name, (role, host) in hosts.items():
                identity = signing.identity(role, hosts=(host,), believes=believes)
                write_identity(cluster.trust_folder(name), identity)

        async def served(by: TestAuthority, believes: bytes) -> bool:
            """Whether all processes show a certificate of an authority."""
            await folders(rpc)
            identity = by.identity(Role.READER, believes=by.pair.certificate)
            targets = [cluster.target] + [
                f"{host}:{names.WORKER_RPC_PORT}" for host in cluster.worker_hosts.values()
            ]
            codes = []
            for target in targets:
                async with channel(target, identity, authorities=believes) as to:
                    codes.append(await answer(to, BLOCK_WORKER, "RemoveBlock", {"block_id": 1}))
            return grpc.StatusCode.UNAVAILABLE not in codes

        give(authority, authorities)
        await eventually_async(lambda: served(new, authority.pair.certificate), deadline=60)
        give(new, authorities)
        identities[0] = new.identity(Role.OPERATOR, believes=authorities)
        await eventually_async(lambda: served(new, new.pair.certificate), deadline=60)
        give(new, new.pair.certificate)
        old = authority.identity(Role.OPERATOR, believes=authorities)

        async def refused() -> bool:
            await folders(rpc)
            async with channel(cluster.target, old, authorities=authorities) as to:
                code = await answer(to, FILE_SYSTEM, "ListStatus", {"path": "/"})
            return code is grpc.StatusCode.UNAVAILABLE

        await eventually_async(refused, deadline=60)

        async def both_live() -> bool:
            return await live(cluster, new.identity(Role.FUSE)) == [ONE, TWO]

        await eventually_async(both_live, deadline=60)
        assert end_of(identities[0].certificate) > now()
    async with calling(cluster, lambda: authority.identity(Role.OPERATOR), patience=0.5) as stranger:
        with pytest.raises(RpcFailureError) as failure:
            await folders(stranger)
        assert failure.value.code is grpc.StatusCode.UNAVAILABLE
