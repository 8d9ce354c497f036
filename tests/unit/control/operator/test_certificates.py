"""The Secrets with the certificates of a release: made, renewed, put right, given by the user."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.certificates import DAY, TestAuthority
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster
from tests.unit.control.server import Server
from tests.unit.kube.fake import error

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.conditions import Finding
from tdcs.control.cachecluster import cache_certificates, cache_children, cache_pods, stock_client
from tdcs.control.cachecluster.blueprint import Blueprint
from tdcs.control.release_certificates import LOOK_SECONDS, Certificates
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_resources import CACHE_CLUSTERS, SECRETS, STATEFUL_SETS, Resource
from tdcs.trust.certificates import Subject, is_signed_by, matches_subject
from tdcs.trust.identity import Identity, NoIdentityError
from tdcs.trust.roles import Role
from tdcs.trust.secrets import authority_of, identity_data, identity_of
from tdcs.trust.settings import TrustSettings

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
OWNER = {
    "apiVersion": names.API_VERSION,
    "kind": "CacheCluster",
    "metadata": {"name": "default", "uid": "uid-of-default"},
}
AGENT = Subject(role=Role.AGENT, hosts=("default-worker-a-0.example",))
GIVEN = ("*.example",)
SUBJECTS = {"default-worker-a-agent-trust": AGENT}
OTHER = {"default-worker-b-agent-trust": Subject(role=Role.AGENT, hosts=("default-worker-b-0.example",))}


class World:
    """Certificates over a small API server, with clocks that a test moves."""

    def __init__(self, provider: str = "selfSigned") -> None:
        self.server = Server()
        self.time = START
        self.seconds = 0.0
        self.provider = provider
        self.subjects = dict(SUBJECTS)
        self.restart()

    def restart(self) -> None:
        """The operator starts again."""
        self.certificates = Certificates(
            api=self.server,
            namespace="tdcs-system",
            settings=TrustSettings(provider=self.provider, prefix="tdcs-trust"),  # type: ignore[arg-type]
            now=lambda: self.time,
            clock=lambda: self.seconds,
        )

    async def later(self, time: datetime.timedelta) -> Finding:
        """After some time, one pass over the cache cluster."""
        self.time += time
        self.seconds += max(time.total_seconds(), LOOK_SECONDS)
        return await self.certificates.provide(owner=OWNER, subjects=self.subjects)

    def names(self) -> set[str]:
        return {name for _, name in self.server.store(SECRETS)}

    async def until_announced(self) -> bytes:
        """To the day on which a new authority is in the Secret of the authority; its certificate."""
        while (authority := authority_of(self.data("tdcs-trust-authority"))) and authority.following is None:
            await self.later(20 * DAY)
        assert authority is not None
        assert authority.following is not None
        return authority.following.certificate

    def data(self, name: str) -> Mapping[str, str]:
        return self.server.store(SECRETS)["tdcs-system", name]["data"]  # type: ignore[no-any-return]

    def identity(self, name: str) -> Identity:
        identity = identity_of(self.data(name))
        assert identity is not None
        return identity

    def give(self, name: str, identity: Identity) -> None:
        metadata = {"name": name, "namespace": "tdcs-system"}
        self.server.store(SECRETS)["tdcs-system", name] = {
            "metadata": metadata,
            "data": identity_data(identity),
        }


async def test_a_new_release_gets_an_authority_and_a_secret_for_each_process() -> None:
    world = World()
    condition = await world.later(DAY)
    assert (condition.status, condition.reason) == ("True", "CertificatesValid")
    assert "ends 2026-05-31 and is renewed 2026-05-01; the authority ends 2029-03-01" in condition.message
    agent = world.identity("default-worker-a-agent-trust")
    assert matches_subject(agent.certificate, AGENT)
    for name in ("tdcs-trust-reader", "tdcs-trust-monitor"):
        assert is_signed_by(world.identity(name).certificate, agent.authorities)
    assert is_signed_by(world.certificates.identify().certificate, agent.authorities)
    secret = world.server.store(SECRETS)["tdcs-system", "default-worker-a-agent-trust"]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "uid-of-default"


async def test_the_operators_own_key_is_in_no_secret() -> None:
    world = World()
    await world.later(DAY)
    key = base64.b64encode(world.certificates.identify().key).decode()
    assert all(key not in secret["data"].values() for secret in world.server.store(SECRETS).values())


async def test_a_pass_over_certificates_that_last_writes_nothing() -> None:
    world = World()
    await world.later(DAY)
    world.server.writes.clear()
    world.restart()
    await world.later(DAY)
    await world.later(20 * DAY)
    assert world.server.writes == []


async def test_certificates_are_renewed_a_month_before_their_end_with_the_same_authority() -> None:
    world = World()
    await world.later(DAY)
    before, authority = world.identity("default-worker-a-agent-trust"), world.data("tdcs-trust-authority")
    condition = await world.later(61 * DAY)
    after = world.identity("default-worker-a-agent-trust")
    assert after.certificate != before.certificate
    assert after.authorities == before.authorities
    assert world.data("tdcs-trust-authority") == authority
    assert condition.status == "True"


async def test_a_secret_that_was_deleted_or_spoiled_is_put_right() -> None:
    world = World()
    await world.later(DAY)
    del world.server.store(SECRETS)["tdcs-system", "default-worker-a-agent-trust"]
    world.server.store(SECRETS)["tdcs-system", "tdcs-trust-reader"]["data"]["tls.key"] = "AAAA"
    authority = world.data("tdcs-trust-authority")
    await world.later(DAY)
    assert matches_subject(world.identity("default-worker-a-agent-trust").certificate, AGENT)
    assert b"PRIVATE KEY" in world.identity("tdcs-trust-reader").key
    assert world.data("tdcs-trust-authority") == authority


async def test_a_new_authority_is_announced_in_all_secrets_before_it_signs() -> None:
    world = World()
    await world.later(DAY)
    name = "default-worker-a-agent-trust"
    while (announced := authority_of(world.data("tdcs-trust-authority"))) and announced.following is None:
        await world.later(20 * DAY)
    assert announced is not None
    old, new = announced.signing.certificate, announced.following.certificate  # type: ignore[union-attr]
    assert new in world.identity(name).authorities
    assert is_signed_by(world.identity(name).certificate, old)
    await world.later(datetime.timedelta(minutes=2))
    await world.later(datetime.timedelta(minutes=61))
    assert is_signed_by(world.identity(name).certificate, new)
    assert old in world.identity(name).authorities
    assert is_signed_by(world.certificates.identify().certificate, new)


async def test_the_secret_of_a_node_that_has_left_is_deleted_and_holds_up_no_new_authority() -> None:
    world = World()
    world.subjects = {**SUBJECTS, **OTHER}
    await world.later(DAY)
    assert {*OTHER} < world.names()
    world.subjects = dict(SUBJECTS)
    await world.later(DAY)
    assert not {*OTHER} & world.names()
    assert {*SUBJECTS, "tdcs-trust-authority", "tdcs-trust-reader", "tdcs-trust-monitor"} == world.names()
    new = await world.until_announced()
    await world.later(datetime.timedelta(minutes=2))
    await world.later(datetime.timedelta(minutes=61))
    assert is_signed_by(world.identity("default-worker-a-agent-trust").certificate, new)


async def test_a_secret_that_cannot_be_deleted_holds_up_no_new_authority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.subjects = {**SUBJECTS, **OTHER}
    await world.later(DAY)

    async def forbidden(*_: object, **__: object) -> bool:
        raise error(ForbiddenError)

    monkeypatch.setattr(world.server, "delete", forbidden)
    world.subjects = dict(SUBJECTS)
    new = await world.until_announced()
    await world.later(datetime.timedelta(minutes=2))
    condition = await world.later(datetime.timedelta(minutes=61))
    assert {*OTHER} < world.names()
    assert condition.status == "True"
    assert is_signed_by(world.identity("default-worker-a-agent-trust").certificate, new)


async def test_secrets_of_a_cache_cluster_that_was_not_looked_at_yet_are_waited_for_and_kept() -> None:
    world = World()
    second = {**OWNER, "metadata": {"name": "second", "uid": "uid-of-second"}}
    await world.later(DAY)
    await world.certificates.provide(owner=second, subjects=OTHER)
    await world.until_announced()
    world.restart()
    before = authority_of(world.data("tdcs-trust-authority"))
    for _ in range(3):
        await world.later(datetime.timedelta(hours=2))
    assert {*OTHER} < world.names()
    assert authority_of(world.data("tdcs-trust-authority")) == before
    await world.certificates.provide(owner=second, subjects=OTHER)
    for _ in range(3):
        await world.later(datetime.timedelta(hours=2))
    after = authority_of(world.data("tdcs-trust-authority"))
    assert after is not None
    assert after.following is None


async def test_secrets_that_are_not_the_cache_clusters_own_are_never_deleted() -> None:
    world = World()
    world.subjects = {**SUBJECTS, **OTHER}
    await world.later(DAY)
    store = world.server.store(SECRETS)
    secret = store["tdcs-system", "default-worker-b-agent-trust"]
    strange: dict[str, dict[str, object]] = {
        "of-nothing": {"ownerReferences": []},
        "of-another": {"ownerReferences": [{**secret["metadata"]["ownerReferences"][0], "uid": "another"}]},
        "not-ours": {"labels": {names.LABEL_CERTIFICATE: "agent"}},
        "no-role": {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}},
    }
    for name, metadata in strange.items():
        store["tdcs-system", name] = {**secret, "metadata": {**secret["metadata"], "name": name, **metadata}}
    world.subjects = dict(SUBJECTS)
    await world.later(DAY)
    assert {*strange} < world.names()
    assert not {*OTHER} & world.names()


async def test_a_release_that_was_off_for_100_days_has_valid_certificates_after_one_pass() -> None:
    world = World()
    await world.later(DAY)
    world.restart()
    condition = await world.later(100 * DAY)
    assert condition.status == "True"
    assert all(end > world.time for _, _, end in world.certificates.ends())


async def test_secrets_that_may_not_be_read_are_said_and_no_key_is_made_up() -> None:
    world = World()

    def refuse(verb: str, resource: Resource) -> None:
        if resource is SECRETS:
            raise error(ForbiddenError)

    world.server.refuse = refuse
    condition = await world.later(DAY)
    assert (condition.status, condition.reason) == ("False", "CertificatesNotReady")
    with pytest.raises(NoIdentityError, match="Secrets cannot be read"):
        world.certificates.identify()
    assert world.server.store(SECRETS) == {}


async def test_a_secret_of_somebody_else_is_left_alone() -> None:
    world = World()
    world.give("default-worker-a-agent-trust", TestAuthority().identity(Role.AGENT))
    before = world.data("default-worker-a-agent-trust")
    condition = await world.later(DAY)
    assert "delete or rename it" in condition.message
    assert world.data("default-worker-a-agent-trust") == before


async def test_an_authority_of_somebody_else_is_left_alone_and_signs_nothing() -> None:
    world, foreign = World(), TestAuthority("cert-manager's")
    pair = foreign.pair
    world.give("tdcs-trust-authority", Identity(pair.certificate, pair.key, pair.certificate))
    before = world.data("tdcs-trust-authority")
    condition = await world.later(DAY)
    assert (condition.status, condition.reason) == ("False", "CertificatesNotReady")
    assert "Secret tdcs-trust-authority exists and is not TDCS's" in condition.message
    assert world.server.writes == []
    assert world.data("tdcs-trust-authority") == before
    del world.server.store(SECRETS)["tdcs-system", "tdcs-trust-authority"]
    assert (await world.later(DAY)).status == "True"


async def test_a_clock_that_is_years_behind_makes_nothing_and_is_said() -> None:
    world = World()
    world.time = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    condition = await world.later(DAY)
    assert "clock" in condition.message
    assert world.server.store(SECRETS) == {}


async def test_an_authority_that_has_ended_at_a_single_look_is_not_replaced() -> None:
    world = World()
    await world.later(DAY)
    before = world.server.store(SECRETS)["tdcs-system", "tdcs-trust-authority"]["data"]
    agent = world.identity("default-worker-a-agent-trust")
    condition = await world.later(1500 * DAY)
    assert condition.reason == "CertificatesNotReady"
    assert "has ended by the operator's clock, which says 2030-04-10" in condition.message
    condition = await world.later(-1499 * DAY)
    assert condition.reason == "CertificatesValid"
    assert world.data("tdcs-trust-authority") == before
    assert world.identity("default-worker-a-agent-trust") == agent


async def test_an_authority_that_has_ended_at_two_looks_is_replaced_and_believed_for_an_hour() -> None:
    world = World()
    await world.later(DAY)
    former = world.identity("default-worker-a-agent-trust")
    await world.later(1500 * DAY)
    condition = await world.later(datetime.timedelta(minutes=1))
    assert condition.reason == "CertificatesValid"
    agent = world.identity("default-worker-a-agent-trust")
    assert not is_signed_by(agent.certificate, former.authorities)
    assert is_signed_by(former.certificate, agent.authorities)
    await world.later(datetime.timedelta(hours=1))
    agent = world.identity("default-worker-a-agent-trust")
    assert not is_signed_by(former.certificate, agent.authorities)


async def test_given_secrets_are_checked_and_none_is_written() -> None:
    world, authority = World("existing"), TestAuthority()
    world.time = datetime.datetime.now(datetime.UTC)
    condition = await world.later(DAY)
    assert "Secret tdcs-trust-operator is not there" in condition.message
    until = world.time + 50 * DAY
    for role in (Role.OPERATOR, Role.AGENT, Role.READER):
        world.give(f"tdcs-trust-{role}", authority.identity(role, hosts=GIVEN, until=until))
    condition = await world.later(DAY)
    assert (condition.status, condition.message.split(";")[0]) == (
        "True",
        f"the first of 3 certificates ends {until:%Y-%m-%d}",
    )
    assert world.server.writes == []
    assert world.certificates.identify() == world.identity("tdcs-trust-operator")


async def test_secrets_of_cert_manager_are_used_and_what_is_missing_names_its_certificate() -> None:
    world, authority = World("certManager"), TestAuthority()
    world.time = datetime.datetime.now(datetime.UTC)
    condition = await world.later(DAY)
    assert (condition.status, condition.reason) == ("False", "CertificatesNotReady")
    assert "kubectl describe certificate -n tdcs-system tdcs-trust-operator" in condition.message
    with pytest.raises(NoIdentityError):
        world.certificates.identify()
    until = world.time + 50 * DAY
    for role in (Role.OPERATOR, Role.AGENT, Role.READER):
        world.give(f"tdcs-trust-{role}", authority.identity(role, hosts=GIVEN, until=until))
    condition = await world.later(DAY)
    assert (condition.status, condition.reason) == ("True", "CertificatesValid")
    assert condition.message.endswith("cert-manager renews them")
    renewed = authority.identity(Role.OPERATOR, until=until + 60 * DAY)
    world.give("tdcs-trust-operator", renewed)
    await world.later(DAY)
    assert world.certificates.identify() == renewed
    assert world.server.writes == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("role", "it must be O=tdcs.io, CN=agent"),
        ("ended", "has a certificate that ended"),
        ("key", "do not belong together"),
        ("authority", "no authority in its ca.crt has signed"),
    ],
)
async def test_a_given_secret_with_something_wrong_is_named_with_the_remedy(wrong: str, words: str) -> None:
    world, authority = World("existing"), TestAuthority()
    world.time = datetime.datetime.now(datetime.UTC)
    until = world.time + 50 * DAY
    for role in (Role.OPERATOR, Role.AGENT, Role.READER):
        world.give(f"tdcs-trust-{role}", authority.identity(role, hosts=GIVEN, until=until))
    good = authority.identity(Role.AGENT, until=until)
    secrets: dict[str, Any] = {
        "role": lambda: authority.identity(Role.READER, until=until),
        "ended": lambda: authority.identity(Role.AGENT, until=world.time - DAY),
        "key": lambda: dataclasses.replace(good, key=authority.identity(Role.AGENT).key),
        "authority": lambda: dataclasses.replace(good, authorities=TestAuthority().pair.certificate),
    }
    world.give("tdcs-trust-agent", secrets[wrong]())
    condition = await world.later(DAY)
    assert condition.status == "False"
    assert f"Secret tdcs-trust-agent {words}" in condition.message or words in condition.message


async def test_a_cache_cluster_has_its_certificates_before_its_pods_and_says_so() -> None:
    engine = MemoryEngine(sources={"s3://pictures": {"x": 1000}}, workers={"a": 10**9})
    async with Cluster(engine=engine, nodes={"a": {}}, trust=True) as cluster:
        await cluster.create_cache()
        server = cluster.server

        def trusted() -> bool:
            status = server.store(CACHE_CLUSTERS)["tdcs-system", "default"].get("status") or {}
            return any(
                condition["type"] == names.TRUSTED and condition["status"] == "True"
                for condition in status.get("conditions") or ()
            )

        await cluster.until(trusted)
        order = [write for write in server.writes if "default-worker-a" in write]
        assert [write.split()[1] for write in order[:3]] == ["Secret", "Secret", "StatefulSet"]
        pod = server.store(STATEFUL_SETS)["tdcs-system", "default-worker-a"]["spec"]["template"]["spec"]
        agent = next(container for container in pod["containers"] if container["name"] == "agent")
        assert {"name": "TDCS_TRUST", "value": "/etc/tdcs/trust"} in agent["env"]
        assert agent["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
        worker = next(container for container in pod["containers"] if container["name"] == "worker")
        mounted = {mount["name"] for mount in worker["volumeMounts"]}
        assert "worker-trust" in mounted
        assert "agent-trust" not in mounted, "no process sees another's key"
        (secret,) = (
            volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "agent-trust"
        )
        assert ("tdcs-system", secret) in server.store(SECRETS)


def test_each_container_of_a_cache_mounts_the_certificate_of_its_own_role_alone() -> None:
    plan = Blueprint(
        owner=OWNER,
        spec=CacheClusterSpec(),
        namespace="tdcs-system",
        image="alluxio:1",
        agent_image="tdcs:1",
        trust=TrustSettings(provider="selfSigned", prefix="tdcs-trust"),
    )
    secrets_by_container: dict[str, set[str]] = {}
    secrets: set[str] = set()
    for workload in (
        cache_children.master(plan),
        cache_children.worker(plan, node="a"),
        stock_client.daemon_set(plan),
    ):
        pod = workload["spec"]["template"]["spec"]
        secrets |= {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            mounts = [mount for mount in container["volumeMounts"] if mount["name"].endswith("-trust")]
            assert all(mount["mountPath"] == "/etc/tdcs/trust" and mount["readOnly"] for mount in mounts)
            secrets_by_container[container["name"]] = {mount["name"] for mount in mounts}
    assert {name: mounted for name, mounted in secrets_by_container.items() if mounted} == {
        "master": {"master-trust"},
        "worker": {"worker-trust"},
        "fuse": {"fuse-trust"},
        "agent": {"agent-trust"},
    }
    assert secrets == set(cache_certificates.subjects(plan, nodes=["a"], fuse=True)), (
        "all that is mounted is made"
    )
    properties = cache_pods.config_map(plan)["data"]["alluxio-site.properties"]
    assert "alluxio.network.tls.enabled=true" in properties
