"""Sources that a tenant may not use, or not any more: by their spelling, address, answers, size or keys."""

import pytest

from e2e.attacks.conftest import BUCKET, FOLDER, HOST, METADATA_ADDRESS, SECRETS, VICTIM, World, dataset
from tdcs.api import names
from tdcs_local.kind.kubectl import Object, condition
from tdcs_local.store import datasets, operations

PLAIN = "must be a plain s3://bucket/prefix"
NAME_SECONDS = 150
KEY_SECONDS = 150


def named(world: World, **spec: str) -> Object:
    """A Dataset of the tenant that is refused when it is created."""
    return dataset("refused", namespace=world.tenant.namespace, **spec)


@pytest.mark.parametrize(
    "path",
    [
        r"x\..\..\secrets",
        ".\t./secrets",
        "../secrets",
        "x/../../secrets",
        "%2e%2e/secrets",
        "..%2fsecrets",
        "x/..",
        "./..\n/secrets",
    ],
)
@pytest.mark.threat("node-folders")
def test_a_path_that_an_engine_could_read_as_another_folder_is_refused(world: World, path: str) -> None:
    assert PLAIN in world.tenant.refused_object(named(world, uri=f"file://{FOLDER}/{path}"))


@pytest.mark.parametrize("folder", ["/etc", SECRETS, f"{FOLDER}-2"])
@pytest.mark.threat("node-folders")
def test_a_folder_that_no_rule_names_is_refused(world: World, folder: str) -> None:
    thing = named(world, uri=f"file://{folder}")
    thing["spec"]["cacheClusterRef"] = {"name": "attacks"}
    refusal = world.tenant.refused_object(thing)
    assert f"may not use the folder {folder}" in refusal
    assert "ask the administrator of CacheCluster attacks for a rule" in refusal


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        (f"http://{METADATA_ADDRESS}", "metadata"),
        ("http://[::ffff:a9fe:a9fe]", "an odd form"),
        ("http://tdcs-manifests.tdcs-system.svc:8082", "inside the cluster"),
        ("http://localhost:8080", "inside the cluster"),
        ("http://0x7f.1", "an odd form"),  # some resolvers read it as loopback
        ("http://2130706433", "an odd form"),
    ],
)
@pytest.mark.threat("forbidden-addresses")
def test_a_store_at_the_metadata_address_or_inside_the_cluster_is_refused(
    world: World, endpoint: str, words: str
) -> None:
    thing = named(world, uri=f"s3://{BUCKET}/", port_or_endpoint=endpoint)
    assert words in world.tenant.refused_object(thing)


@pytest.mark.threat("bucket-squatting")
def test_a_bucket_that_a_tenant_squats_is_kept_from_no_other(world: World) -> None:
    datasets.wait_ready(world.kubectl, VICTIM, namespace=world.victim)
    theirs = (world.kubectl.get("datasets.tdcs.io", VICTIM, namespace=world.victim) or {})["status"]
    squatted = world.tenant.dataset("squatter")["status"]
    assert squatted["mountPath"] != theirs["mountPath"]
    assert theirs["totalBytes"] == operations.manifest(BUCKET)["totalBytes"]
    assert world.tenant.namespace not in str(theirs)
    assert world.victim not in str(squatted)


@pytest.mark.threat("redirected-agents")
def test_a_store_that_redirects_to_the_metadata_address_is_not_followed(world: World) -> None:
    message = world.tenant.until("redirected", reasons=("SourceRefused",))
    assert "another host" in message
    assert "spec.source.options.endpoint" in message


@pytest.mark.threat("names-by-the-million")
def test_five_million_names_are_not_mounted_and_the_limit_is_named(world: World) -> None:
    message = world.tenant.until("many", reasons=("LimitExceeded",))
    assert "spec.limits.files" in message
    assert not world.tenant.dataset("many")["status"].get("totalFiles")


@pytest.mark.threat("revoked-keys-mounted")
def test_keys_that_are_revoked_end_the_use_of_a_mounted_source(world: World) -> None:
    message = world.tenant.until("revoked", reasons=("KeysRevoked", "SourceRefused"), seconds=KEY_SECONDS)
    assert "spec.source.secretRef" in message
    gone(world, "revoked")


@pytest.mark.threat("name-changes")
def test_a_name_that_comes_to_stand_for_the_metadata_address_loses_its_mount(world: World) -> None:
    world.resolve(METADATA_ADDRESS)  # again: a container that was started again has a new file of hosts
    message = world.tenant.until("changing", reasons=("EndpointNotAllowed",), seconds=NAME_SECONDS)
    assert f"{HOST} (spec.source.options.endpoint) has a link-local or metadata address" in message
    assert "use another store" in message
    gone(world, "changing")


def gone(world: World, name: str) -> None:
    """Wait until nothing of a Dataset can be read any more."""
    volume = names.volume_name(namespace=world.tenant.namespace, dataset=name)

    def look() -> str | None:
        if world.kubectl.get("persistentvolumes", volume) is not None:
            return f"there is the volume {volume}"
        mounted = condition(world.tenant.dataset(name), "Mounted")
        return f"Mounted is {mounted}" if mounted.get("status") == "True" else None

    world.kubectl.wait(look, what=f"Dataset {name} is still there", seconds=60)
