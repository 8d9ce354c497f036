"""The settings that Alluxio runs with."""

from pathlib import Path

import pytest

from tdcs.alluxio.profile import AlluxioRole, ProfileTier, java_options, render_properties, site_properties
from tdcs.api.durations import to_seconds
from tdcs.control.context import Settings

NAMES = Path(__file__).parents[3] / "deploy" / "local" / "alluxio" / "names"
TIER = ProfileTier(medium="SSD", path="/var/lib/tdcs/cache/default", capacity_bytes=10_737_418_240)


def test_a_worker_that_dies_is_told_of_in_fifteen_seconds() -> None:
    told = site_properties(tier=TIER)
    keys = ("alluxio.master.worker.timeout", "alluxio.master.lost.worker.detection.interval")
    assert sum(to_seconds(told[key]) for key in keys) + Settings().poll_seconds < 15


def test_a_cluster_s_own_properties_win() -> None:
    key = "alluxio.user.file.passive.cache.enabled"
    assert site_properties(tier=TIER)[key] == "false"
    assert site_properties(tier=TIER, overrides={key: "true"})[key] == "true"
    assert site_properties(tier=TIER, overrides={"alluxio.new": "1"})["alluxio.new"] == "1"


def test_the_tier_is_where_and_as_large_as_asked() -> None:
    found = site_properties(tier=TIER)
    assert found["alluxio.worker.tieredstore.level0.dirs.path"] == "/var/lib/tdcs/cache/default"
    assert found["alluxio.worker.tieredstore.level0.dirs.quota"] == "10737418240B"
    assert found["alluxio.worker.tieredstore.level0.alias"] == "SSD"


def test_the_file_is_the_same_for_the_same_settings_and_escaped_as_java_reads_it() -> None:
    found = render_properties({"b": "http://x:1/a=b#c", "a": " lead\\and\nline"})
    assert found == "a=\\ lead\\\\and\\nline\nb=http\\://x\\:1/a\\=b\\#c\n"
    assert render_properties(site_properties(tier=TIER)) == render_properties(site_properties(tier=TIER))


@pytest.mark.parametrize("role", AlluxioRole)
def test_every_role_has_bounded_memory_and_threads_for_its_processors(role: AlluxioRole) -> None:
    small = java_options(role=role, heap_bytes=256 << 20, processors=2)
    assert "-Xmx256m" in small
    assert "-XX:ActiveProcessorCount=2" in small
    assert any(option.startswith("-XX:MaxDirectMemorySize=") for option in small)
    assert "-XX:ParallelGCThreads=16" in java_options(role=role, processors=16)
    # the entrypoint splits them at blanks
    assert not any(" " in option for option in small)


def test_with_few_processors_only_those_compile_twice_who_read_all_day() -> None:
    once = "-XX:TieredStopAtLevel=1"
    assert once in java_options(role=AlluxioRole.WORKER, processors=2)
    assert once in java_options(role=AlluxioRole.MASTER, processors=2)
    assert once not in java_options(role=AlluxioRole.FUSE, processors=2)
    large = java_options(role=AlluxioRole.WORKER, processors=16)
    assert once not in large
    assert "-XX:CICompilerCount=4" in large


def test_a_worker_gives_up_no_block_whose_source_may_still_be_read() -> None:
    name = "-Dalluxio.user.network.rpc.keepalive.timeout"
    assert f"{name}=5min" in java_options(role=AlluxioRole.WORKER)
    # A client must hear soon of a master that is gone.
    assert not any(
        name in option
        for role in (AlluxioRole.MASTER, AlluxioRole.FUSE)
        for option in java_options(role=role)
    )


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.threat("alluxio-web-ports")
def test_no_web_port_is_reached_from_elsewhere(trusted: bool) -> None:
    overrides = {"alluxio.worker.web.bind.host": "192.0.2.1"}
    found = site_properties(tier=TIER, overrides=overrides, trusted=trusted)
    for process in ("master", "worker"):
        assert found[f"alluxio.{process}.web.bind.host"] == "127.0.0.1"


def test_with_certificates_every_rpc_shows_one() -> None:
    overrides = {"alluxio.network.tls.enabled": "false"}
    trusted = site_properties(tier=TIER, overrides=overrides, trusted=True)
    assert trusted["alluxio.network.tls.enabled"] == "true", "the other processes rely on it"
    provider = trusted["alluxio.network.tls.ssl.context.provider.classname"]
    assert (NAMES / f"{provider.replace('.', '/')}.java").is_file()
    assert not any("tls" in key for key in site_properties(tier=TIER))
