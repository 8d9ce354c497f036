"""Agents bring what they are assigned: from a folder, and from each other."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from tests.support.dataplane.agents import fill, folder_version, running_agent, url_of
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Part
from tdcs.node.agent.agent_metrics import registry_of

FILES = {
    "a/one.bin": os.urandom(100_000),
    "a/two.bin": os.urandom(1),
    "b c/三.bin": os.urandom(5_000),
    "large.bin": os.urandom(9_000_001),
    "empty.bin": b"",
}


async def test_an_agent_reads_its_slots_from_a_folder_and_another_one_from_it(tmp_path: Path) -> None:
    source = fill(tmp_path / "source", FILES)
    version = folder_version(source, store=tmp_path / "manifests")
    async with (
        running_agent(tmp_path / "one") as first,
        running_agent(tmp_path / "two", node="node-2") as second,
    ):
        first.give(version.assignment(), manifests=version)
        await first.holds(version)
        second.give(
            version.assignment(
                origin=NO_SLOTS, source=None, peers=[first.peer()], manifest_urls=(url_of(first, version),)
            )
        )
        await second.holds(version)
        await eventually_async(lambda: second.mount().peer_bytes == version.bytes, deadline=5)

        assert first.content(version) == second.content(version) == FILES
        assert first.mount().source_bytes == version.bytes
        assert second.mount().source_bytes == 0
        assert second.mount().complete == ALL_SLOTS
        (part,) = second.mount().parts
        assert (part.held_files, part.wanted_files) == (len(FILES), len(FILES))
        assert first.blocks.sent_bytes == version.bytes


@pytest.mark.parametrize("cross_zone", [True, False])
async def test_an_agent_counts_what_comes_from_other_zones(tmp_path: Path, cross_zone: bool) -> None:
    version = folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")
    async with (
        running_agent(tmp_path / "one") as first,
        running_agent(tmp_path / "two", node="node-2") as second,
    ):
        first.give(version.assignment(), manifests=version)
        await first.holds(version)
        peer = msgspec.structs.replace(first.peer(), cross_zone=cross_zone)
        urls = (url_of(first, version),)
        second.give(version.assignment(origin=NO_SLOTS, source=None, peers=[peer], manifest_urls=urls))
        await second.holds(version)

        counted = version.bytes if cross_zone else 0
        await eventually_async(lambda: second.mount().peer_bytes == version.bytes, deadline=5)
        assert second.mount().cross_zone_bytes == counted
        metrics = registry_of(second.agent)
        assert metrics.get_sample_value("tdcs_agent_cross_zone_bytes_total") == counted


async def test_an_agent_gets_the_manifest_from_another_one_that_is_about_to_get_it(
    tmp_path: Path,
) -> None:
    version = folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")
    async with (
        running_agent(tmp_path / "one") as first,
        running_agent(tmp_path / "two", node="node-2") as second,
    ):
        second.give(version.assignment(manifest_urls=(f"{url_of(first, version)}?wait=8",)))
        assert not second.agent.manifests.has(version.manifest.digest)
        first.give(version.assignment(), manifests=version)
        await second.holds(version)
        assert second.content(version) == FILES


async def test_a_peer_gets_all_of_a_new_version_also_what_was_held_before_it(tmp_path: Path) -> None:
    source = fill(tmp_path / "source", FILES)
    first = folder_version(source, store=tmp_path / "manifests")
    async with (
        running_agent(tmp_path / "one") as older,
        running_agent(tmp_path / "two", node="node-2") as newer_agent,
    ):
        older.give(first.assignment(), manifests=first)
        await older.holds(first)
        (source / "new.bin").write_bytes(b"of the new version")
        newer = folder_version(source, store=tmp_path / "manifests")
        older.give(newer.assignment(version=2), manifests=newer)
        await older.holds(newer)
        newer_agent.give(
            newer.assignment(origin=NO_SLOTS, source=None, peers=[older.peer()]), manifests=newer
        )
        await newer_agent.holds(newer, deadline=10)
        assert newer_agent.content(newer) == FILES | {"new.bin": b"of the new version"}


async def test_two_agents_share_what_each_reads_from_the_source_once(tmp_path: Path) -> None:
    files = {f"{number:04}": os.urandom(2_000) for number in range(600)}
    source = fill(tmp_path / "source", files)
    version = folder_version(source, store=tmp_path / "manifests")
    even, odd = b"\xaa" * 512, b"\x55" * 512
    async with (
        running_agent(tmp_path / "one") as first,
        running_agent(tmp_path / "two", node="node-2") as second,
    ):
        first.give(version.assignment(origin=even, peers=[second.peer()]), manifests=version)
        second.give(version.assignment(origin=odd, peers=[first.peer()]), manifests=version)
        await first.holds(version)
        await second.holds(version)

        assert first.content(version) == second.content(version) == files
        await eventually_async(
            lambda: first.mount().source_bytes + second.mount().source_bytes == version.bytes, deadline=5
        )


async def test_only_the_files_and_slots_of_the_parts_are_brought(tmp_path: Path) -> None:
    files = {f"{folder}/{number}": os.urandom(100) for folder in ("train", "test") for number in range(200)}
    version = folder_version(fill(tmp_path / "source", files), store=tmp_path / "manifests")
    half = b"\xff" * 256 + bytes(256)
    async with running_agent(tmp_path / "one") as agent:
        part = Part(name="Preload a/b", slots=half, paths=("train",))
        agent.give(version.assignment(parts=(part,)), manifests=version)

        totals = version.manifest.totals(("train",))
        expected = int(totals.sizes[:2048].sum())
        await eventually_async(lambda: agent.mount().held_bytes == expected, deadline=10)
        assert all(name.startswith("train/") for name in agent.content(version))
        assert len(agent.content(version)) == int(totals.counts[:2048].sum())
