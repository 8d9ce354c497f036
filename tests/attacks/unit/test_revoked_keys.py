"""Keys that a source takes no longer: they open no mount that others have, and end their own use in a bounded time."""

from __future__ import annotations

import asyncio

import pytest
from tests.attacks.unit.victim import (
    ATTACKER,
    RENEWED,
    VICTIM,
    cluster,
    put_dataset,
    reason,
    victims,
    volume_of_the_victim,
)
from tests.support.twins.engine import Operation
from tests.unit.control.cluster import Cluster

from tdcs.api import names
from tdcs.model.cache_engine import SourceError
from tdcs.model.kube_resources import DATASETS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SECRETS

__all__ = ["cluster"]


@pytest.mark.threat("former-keys")
async def test_revoked_keys_that_were_once_the_mounts_do_not_open_it_again(cluster: Cluster) -> None:
    former = dict(cluster.server.store(SECRETS)["n", "keys"])
    cluster.engine.credentials["s3://pictures"] = RENEWED
    path = cluster.status()["mountPath"]
    await cluster.create_keys(key="renewed")
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "Reachable")
    assert cluster.status()["mountPath"] == path
    await put_dataset(cluster, secret=former)  # the same URI and keys as once: the same path
    await reason(cluster, {"KeysDiffer", "SourceRefused"})
    assert cluster.condition("Ready")["status"] == "True"


async def joining(cluster: Cluster, *, restarted: bool) -> None:
    """A new Dataset of the victim's source, with the keys that the victim's mount has."""
    if restarted:
        await cluster.stop()
    await put_dataset(cluster, secret=dict(cluster.server.store(SECRETS)["n", "keys"]))
    if restarted:
        await cluster.start()


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.threat("revoked-keys-new-dataset")
async def test_revoked_keys_open_no_mount_that_still_has_them(cluster: Cluster, restarted: bool) -> None:
    cluster.engine.credentials["s3://pictures"] = RENEWED
    await joining(cluster, restarted=restarted)
    await reason(cluster, {"SourceRefused"})
    if not restarted:  # a new process does not know yet what is mounted
        assert not cluster.server.store(DATASETS)[ATTACKER]["status"].get("mountPath")
    await cluster.until(lambda: cluster.condition("Ready")["status"] == "True")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.failure_mode("source-away-at-shared-mount")
@pytest.mark.threat("revoked-keys-new-dataset")
async def test_a_source_that_is_away_lets_none_in_and_takes_none_out(
    cluster: Cluster, restarted: bool
) -> None:
    before = volume_of_the_victim(cluster)
    files = cluster.engine.sources.pop("s3://pictures")
    await joining(cluster, restarted=restarted)
    await reason(cluster, {"KeysUnchecked"})
    assert before is not None
    assert volume_of_the_victim(cluster) == before
    assert cluster.condition("Ready")["status"] == "True"
    cluster.engine.sources["s3://pictures"] = files
    await cluster.stop()  # it is asked again after half a minute, or at once by a new process
    await cluster.start()
    await cluster.until(lambda: ("", "tdcs.stranger.stolen") in cluster.server.store(PERSISTENT_VOLUMES))


@pytest.mark.parametrize("joins", [True, False], ids=["joins", "restarted-with-other-keys"])
@pytest.mark.threat("slow-key-answers")
async def test_a_dataset_that_waits_for_a_slow_answer_about_its_keys_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.access.key_checks.PATIENCE", 0.2)
    answers = asyncio.Event()

    async def late(operation: Operation) -> None:
        if operation.name == "check_keys":
            await answers.wait()

    if joins:
        cluster.engine.before = late
        await joining(cluster, restarted=False)
        await reason(cluster, {"KeysUnchecked"})
        answers.set()
        await cluster.until(lambda: ("", "tdcs.stranger.stolen") in cluster.server.store(PERSISTENT_VOLUMES))
        return
    cluster.engine.credentials["s3://pictures"] = RENEWED
    await cluster.stop()
    await cluster.create_keys(key="renewed")
    cluster.engine.before = late
    await cluster.start()
    await cluster.until(lambda: cluster.condition("SourceReachable")["reason"] == "KeysUnchecked")
    assert cluster.condition("Ready")["status"] == "True"
    answers.set()
    await cluster.until(lambda: cluster.condition("SourceReachable")["reason"] == "Reachable")
    assert volume_of_the_victim(cluster)


async def test_who_made_a_mount_is_asked_again_when_its_dataset_is_made_again(cluster: Cluster) -> None:
    """It would be let in as the one that has mounted it, while another Dataset keeps the mount."""
    keys = dict(cluster.server.store(SECRETS)["n", "keys"])
    await put_dataset(cluster, secret=keys)
    stolen = ("", names.volume_name(namespace="stranger", dataset="stolen"))
    await cluster.until(lambda: stolen in cluster.server.store(PERSISTENT_VOLUMES))
    cluster.engine.credentials["s3://pictures"] = RENEWED
    dataset = cluster.server.store(DATASETS).pop(VICTIM)  # its finalizer was taken away
    cluster.server.store(PERSISTENT_VOLUME_CLAIMS).pop(VICTIM)
    await cluster.create_dataset()
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceRefused")
    assert cluster.server.store(DATASETS)[VICTIM]["metadata"]["uid"] != dataset["metadata"]["uid"]
    await cluster.until(lambda: volume_of_the_victim(cluster) is None)
    assert stolen in cluster.server.store(PERSISTENT_VOLUMES)


@pytest.mark.threat("revoked-keys-mounted")
async def test_revoked_keys_of_a_mounted_dataset_end_its_use_within_a_bounded_time() -> None:
    async with victims(revoked_seconds=0.5) as cluster:
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.annotate("pictures", refresh="1")
        # The condition has this reason only until the mount is gone, a moment later; the event stays.
        await cluster.until(lambda: cluster.events("KeysRevoked"))
        message = cluster.events("KeysRevoked")[0]["message"]
        assert "put keys into the Secret that the source takes" in message
        await cluster.until(lambda: not cluster.server.store(PERSISTENT_VOLUMES))
        await cluster.until(lambda: not cluster.engine.state.mounts)
        await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceRefused")
        assert not any(cluster.held().values())
        # With keys that the source takes it is as it was.
        await cluster.create_keys(key="renewed")
        await cluster.until_state("Ready")


@pytest.mark.threat("revoked-keys-mounted")
async def test_revoked_keys_end_the_use_of_a_source_that_is_never_listed_for_changes_too() -> None:
    async with victims(revoked_seconds=0.5, keys_check_seconds=0.1) as cluster:
        await cluster.change(DATASETS, "pictures", source={"checkInterval": "0s"})
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "SourceRefused")
        await cluster.until(
            lambda: cluster.condition("Ready").get("reason") in {"KeysRevoked", "SourceRefused"}
        )
        await cluster.until(lambda: not cluster.server.store(PERSISTENT_VOLUMES))
        await cluster.until(lambda: not cluster.engine.state.mounts and not any(cluster.held().values()))


@pytest.mark.threat("former-keys")
async def test_a_dataset_that_keeps_revoked_keys_loses_a_mount_that_another_one_has_given_new_ones() -> None:
    async with victims(revoked_seconds=0.5, keys_check_seconds=0.1) as cluster:
        former = dict(cluster.server.store(SECRETS)["n", "keys"])
        await put_dataset(cluster, secret=former)
        stolen = ("", names.volume_name(namespace="stranger", dataset="stolen"))
        await cluster.until(lambda: stolen in cluster.server.store(PERSISTENT_VOLUMES))
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.create_keys(key="renewed")
        await cluster.until(lambda: stolen not in cluster.server.store(PERSISTENT_VOLUMES))
        await reason(cluster, {"KeysRevoked", "SourceRefused", "KeysDiffer"})
        assert cluster.condition("Ready")["status"] == "True"
        await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "Reachable")
        assert ("", names.volume_name(namespace="n", dataset="pictures")) in cluster.server.store(
            PERSISTENT_VOLUMES
        )


@pytest.mark.parametrize("shared", [True, False], ids=["shared mount", "mount of its own"])
@pytest.mark.threat("withdrawn-while-read")
async def test_pods_that_keep_a_withdrawn_volume_are_named_until_they_are_gone(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.POLL", 0.1)
    monkeypatch.setattr("tdcs.control.dataset.access.dataset_volume.RETRY_SOON", 0.1)
    async with victims(revoked_seconds=0.5, keys_check_seconds=0.1) as cluster:
        server, volume = cluster.server, ("", names.volume_name(namespace="stranger", dataset="stolen"))
        await put_dataset(cluster, secret=dict(server.store(SECRETS)["n", "keys"]))
        await cluster.until(lambda: ATTACKER in server.store(PERSISTENT_VOLUME_CLAIMS))
        if not shared:
            await server.delete(DATASETS, name="pictures", namespace="n")
            await cluster.until(lambda: VICTIM not in server.store(DATASETS))
        server.store(PERSISTENT_VOLUME_CLAIMS)[ATTACKER]["metadata"]["finalizers"] = [
            "kubernetes.io/pvc-protection"
        ]
        for pod, job in (("sleeper", ""), ("train-worker-0", "train")):
            server.store(PODS)["stranger", pod] = {
                "metadata": {
                    "name": pod,
                    "namespace": "stranger",
                    "labels": {names.LABEL_TRAINING_JOB: job} if job else {},
                },
                "spec": {
                    "nodeName": "n1",
                    "volumes": [{"persistentVolumeClaim": {"claimName": "stolen"}}],
                },
            }
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.create_keys(key="renewed")

        def message() -> str:
            conditions = server.store(DATASETS)[ATTACKER]["status"]["conditions"]
            return next(str(condition["message"]) for condition in conditions if condition["type"] == "Ready")

        named = "pod sleeper and TrainingJob train (pod train-worker-0)"
        users = f"the claim stranger/stolen is still used by 2 pods: {named}"
        await cluster.until(lambda: users in message())
        await cluster.until(lambda: bool(cluster.engine.state.mounts) == shared)
        assert "has given no keys" in message()
        assert ("they read on, new versions too, for as long" in message()) == shared
        assert ("what they read through the cache fails" in message()) != shared
        assert "nothing of it is cached" not in message()
        assert volume in server.store(PERSISTENT_VOLUMES)
        await cluster.until(lambda: any(users in event["message"] for event in cluster.events("VolumeInUse")))
        (event,) = cluster.events("VolumeInUse")
        assert (event["type"], event["involvedObject"]["name"], event["count"]) == ("Warning", "stolen", 1)
        server.store(PODS).clear()
        server.store(PERSISTENT_VOLUME_CLAIMS).pop(ATTACKER)  # the last pod has gone
        await cluster.until(lambda: volume not in server.store(PERSISTENT_VOLUMES))
        await reason(cluster, {"KeysRevoked", "SourceRefused", "KeysDiffer"})


@pytest.mark.parametrize("often", [False, True], ids=["deleted", "changed-all-the-time"])
@pytest.mark.failure_mode("secret-deleted")
@pytest.mark.threat("revoked-keys-new-dataset")
async def test_who_has_revoked_keys_gains_nothing_by_deleting_or_changing_their_secret(often: bool) -> None:
    async with victims(revoked_seconds=1.0, keys_check_seconds=0.1) as cluster:
        former = cluster.server.store(SECRETS)["n", "keys"]
        cluster.engine.credentials["s3://pictures"] = RENEWED
        if not often:
            del cluster.server.store(SECRETS)["n", "keys"]
        await cluster.annotate("pictures", refresh="1")
        number = 0

        def gone() -> bool:
            nonlocal number
            number += 1
            if often and number % 10 == 0:
                cluster.server.store(SECRETS)["n", "keys"] = former
            elif often and number % 5 == 0:
                other_keys = {"data": {"accessKeyId": "bWU=", "secretAccessKey": f"{number:04d}"}}
                cluster.server.store(SECRETS)["n", "keys"] = other_keys
            return not cluster.server.store(PERSISTENT_VOLUMES) and not cluster.engine.state.mounts

        await cluster.until(gone)
        assert cluster.condition("Ready")["status"] == "False"


LONG_AGO = "2020-01-01T00:00:00Z"


async def long_refused(cluster: Cluster) -> None:
    """The keys are refused, the operator ends, and that was long ago."""
    cluster.engine.credentials["s3://pictures"] = RENEWED
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("keysRefusedSince"))
    assert cluster.condition("Ready")["status"] == "True"
    await cluster.stop()
    cluster.server.store(DATASETS)[VICTIM]["status"]["keysRefusedSince"] = LONG_AGO


@pytest.mark.parametrize("deleted", [False, True], ids=["refused", "without-a-secret"])
@pytest.mark.failure_mode("operator-restarts-while-keys-refused")
@pytest.mark.threat("revoked-keys-mounted")
async def test_the_time_of_revoked_keys_goes_on_through_restarts_of_the_operator(deleted: bool) -> None:
    async with victims() as cluster:
        await long_refused(cluster)
        if deleted:
            del cluster.server.store(SECRETS)["n", "keys"]
        await cluster.start()
        await cluster.until(lambda: cluster.events("KeysRevoked"))
        await cluster.until(lambda: not cluster.server.store(PERSISTENT_VOLUMES))
        await cluster.until(lambda: not cluster.engine.state.mounts)
        await cluster.create_keys(key="renewed")
        await cluster.until_state("Ready")
        assert "keysRefusedSince" not in cluster.status()


@pytest.mark.threat("revoked-keys-mounted")
async def test_a_mount_that_is_there_is_no_answer_of_a_source_that_has_not_answered_yet() -> None:
    """An operator that starts again once an hour would keep revoked keys forever."""
    async with victims(revoked_seconds=3600.0, keys_check_seconds=600.0) as cluster:
        await long_refused(cluster)
        answers = asyncio.Event()

        async def late(operation: Operation) -> None:
            if operation.name in {"check_keys", "files"}:
                await answers.wait()

        cluster.engine.before = late
        await cluster.start()
        await cluster.until(lambda: cluster.passes > 2)
        passes = cluster.passes
        await cluster.annotate("pictures", note="another pass")
        await cluster.until(lambda: cluster.passes > passes)
        assert cluster.status()["keysRefusedSince"] == LONG_AGO
        assert volume_of_the_victim(cluster)
        answers.set()
        await cluster.until(lambda: cluster.events("KeysRevoked"))
        await cluster.until(lambda: volume_of_the_victim(cluster) is None)


async def test_a_listing_with_keys_that_were_put_right_is_an_answer_too() -> None:
    """Where the cache reaches a store, and the operator does not."""

    async def unreached(operation: Operation) -> None:
        if operation.name == "check_keys":
            raise SourceError(attempted="ask", reason="no connection", remedy="Try again")

    async with victims(revoked_seconds=3600.0) as cluster:
        cluster.engine.before = unreached
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.annotate("pictures", refresh="1")
        await cluster.until(lambda: cluster.status().get("keysRefusedSince"))
        await cluster.create_keys(key="renewed")
        await cluster.annotate("pictures", refresh="2")
        await cluster.until(lambda: cluster.status().get("refreshed") == "2")
        await cluster.until(lambda: "keysRefusedSince" not in cluster.status())


@pytest.mark.failure_mode("keys-corrected-without-operator")
@pytest.mark.threat("revoked-keys-mounted")
async def test_keys_that_were_put_right_while_no_operator_ran_take_nothing() -> None:
    async with victims() as cluster:
        await long_refused(cluster)
        volume = dict(cluster.server.store(PERSISTENT_VOLUMES))
        await cluster.create_keys(key="renewed")
        await cluster.start()
        await cluster.until(lambda: "keysRefusedSince" not in cluster.status())
        assert cluster.condition("Ready")["status"] == "True"
        assert cluster.server.store(PERSISTENT_VOLUMES) == volume


async def test_a_time_that_others_wrote_takes_nothing_while_the_source_takes_the_keys(
    cluster: Cluster,
) -> None:
    await cluster.stop()
    cluster.server.store(DATASETS)[VICTIM]["status"]["keysRefusedSince"] = LONG_AGO
    await cluster.start()
    await cluster.until(lambda: "keysRefusedSince" not in cluster.status())
    assert cluster.condition("Ready")["status"] == "True"


@pytest.mark.failure_mode("operator-restarts-while-keys-refused")
@pytest.mark.threat("revoked-keys-mounted")
async def test_outages_of_the_cache_do_not_begin_the_time_of_revoked_keys_again() -> None:
    async with victims(revoked_seconds=3.0) as cluster, asyncio.timeout(60):
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.annotate("pictures", refresh="1")

        def gone() -> bool:
            return not cluster.server.store(PERSISTENT_VOLUMES)

        def away() -> bool:
            return bool(cluster.condition("Ready")["reason"] == "CacheUnavailable")

        await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "SourceRefused")
        while not gone():
            cluster.engine.available = False
            await cluster.until(lambda: gone() or away())
            cluster.engine.available = True
            await cluster.until(lambda: gone() or not away())


@pytest.mark.threat("revoked-keys-mounted")
async def test_keys_that_are_refused_for_a_moment_and_a_store_that_is_away_take_nothing() -> None:
    async with victims(revoked_seconds=3600.0) as cluster:
        cluster.engine.credentials["s3://pictures"] = RENEWED
        await cluster.annotate("pictures", refresh="1")
        await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "SourceRefused")
        assert cluster.condition("Ready")["status"] == "True"
    async with victims(revoked_seconds=0.0) as cluster:
        del cluster.engine.sources["s3://pictures"]  # no such bucket: no word about keys
        await cluster.annotate("pictures", refresh="1")
        await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "SourceRefused")
        passes = cluster.passes  # a source that is away is looked at again and again: it never gets quiet
        await cluster.until(lambda: cluster.passes > passes + 5)
        assert cluster.condition("Ready")["status"] == "True"
        assert cluster.server.store(PERSISTENT_VOLUMES)


@pytest.mark.parametrize("away", [False, True], ids=["source-there", "source-away"])
@pytest.mark.failure_mode("wrong-keys-then-operator-restart")
@pytest.mark.threat("forged-volume", "former-keys")
async def test_a_volume_outlives_its_keys_and_a_restart_unless_the_source_refuses_the_new_ones(
    cluster: Cluster, away: bool
) -> None:
    before = volume_of_the_victim(cluster)
    cluster.engine.credentials["s3://pictures"] = RENEWED
    await cluster.create_keys(key="renewed")
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.status().get("refreshed") == "1")
    await cluster.stop()
    if away:
        files = cluster.engine.sources.pop("s3://pictures")
    await cluster.start()
    if away:
        await cluster.until(lambda: cluster.condition("SourceReachable")["reason"] == "KeysUnchecked")
        assert cluster.condition("Ready")["status"] == "True"
        cluster.engine.sources["s3://pictures"] = files
        await cluster.stop()  # it is asked again after half a minute, or at once by a new process
        await cluster.start()
    await cluster.annotate("pictures", refresh="2")
    await cluster.until(lambda: cluster.status().get("refreshed") == "2")
    await cluster.until(lambda: cluster.condition("SourceReachable")["reason"] == "Reachable")
    after = volume_of_the_victim(cluster)
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.engine.state.mounts[cluster.status()["mountPath"]].credentials == RENEWED


@pytest.mark.failure_mode("wrong-keys-then-operator-restart")
async def test_wrong_new_keys_take_a_volume_at_once_after_a_restart_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("decide.problem", "control.dataset.access.key_checks"):
        monkeypatch.setattr(f"tdcs.{module}.RETRY_LATER", 0.2)
    await cluster.create_keys(key="mistyped")
    await cluster.annotate("pictures", refresh="1")
    await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "SourceRefused")
    assert cluster.condition("Ready")["status"] == "True"
    assert volume_of_the_victim(cluster)
    await cluster.stop()
    await cluster.start()  # which cannot tell it from a planted one any more
    await cluster.until(lambda: cluster.condition("Ready").get("reason") == "SourceRefused")
    await cluster.until(lambda: volume_of_the_victim(cluster) is None)
    await cluster.create_keys()
    await cluster.until_state("Ready")
