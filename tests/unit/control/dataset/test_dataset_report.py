"""What a Dataset's status says, and where its source is mounted."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.builders import dataset_object
from tests.unit.decide.builders import totals_of

from tdcs.api.conditions import Finding, finding
from tdcs.api.dataset import Dataset, DatasetStatus
from tdcs.control.dataset.access import volume_objects
from tdcs.decide import dataset_conditions, dataset_status
from tdcs.decide.cache import mount_identity
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.copy_nodes import Mode
from tdcs.decide.place.holdings import Failures, Holdings, WantProgress
from tdcs.decide.place.slot_nodes import PlacedCopy, WantPlacement
from tdcs.kube.apply import belongs
from tdcs.model import slots
from tdcs.model.agent_state import FileFailure
from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.humanize import human
from tdcs.model.printable_text import printable
from tdcs.node.csi.volume import parse_volume

HELD = Holdings(
    total_bytes=3_000_000, total_files=30, cached_bytes=1_200_000, node_bytes={"a": 700_000, "b": 500_000}
)
PROGRESS = WantProgress(
    placed_bytes=1_200_000, wanted_bytes=3_000_000, copies=({"a": 700_000, "b": 500_000},)
)
URI = "s3://bucket/prefix"


def placement_of(*nodes: str, unplaced: int = 0, eligible: int = 9, **want: object) -> WantPlacement:
    return WantPlacement(
        want=Want(key="x", **want),  # type: ignore[arg-type]
        totals=totals_of([10]),
        chosen=slots.prefix(slots.SLOTS),
        copies=(PlacedCopy(id="0", mode=Mode.PARTITION, nodes=dict.fromkeys(nodes, slots.bitmap([0]))),),
        eligible=eligible,
        subset_bytes=10,
        asked_bytes=10,
        wanted_bytes=10,
        unplaced_bytes=unplaced,
    )


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("EndpointLookup", "Pending"),
        ("EndpointUnknown", "Failed"),
        ("KeysUnchecked", "Pending"),
        ("SourceRefused", "Failed"),
    ],
)
def test_what_waits_for_an_answer_has_not_failed(reason: str, state: str) -> None:
    assert dataset_conditions.state_of(dataset_conditions.blocked(reason=reason, message="why")) == state


def test_progress_reads_like_a_sentence() -> None:
    ready = dataset_conditions.loading(progress=PROGRESS, uri=URI, placement=placement_of("a", "b"))[-1]
    assert ready.message == "1.1 MiB of 2.9 MiB on 2 nodes"
    assert dataset_conditions.state_of([ready]) == "Loading"


def test_a_load_that_the_source_gives_nothing_says_why() -> None:
    cause = "the source does not answer"
    ready = dataset_conditions.loading(progress=PROGRESS, uri=URI, placement=placement_of("a"), cause=cause)[
        -1
    ]
    assert ready.reason == "LoadFailed"
    assert "it is tried again: the source does not answer" in ready.message


def test_what_had_left_the_cache_stays_ready_while_it_is_loaded_again() -> None:
    findings = dataset_conditions.loading(
        progress=PROGRESS, uri=URI, placement=placement_of("a"), was_ready=True
    )
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Ready"].status) == ("False", "True")
    assert "its share of the cache" in by_type["Ready"].message
    assert dataset_conditions.state_of(findings) == "Loading"


def test_a_share_of_less_than_a_file_is_not_loaded() -> None:
    placement = replace(placement_of("a"), subset_bytes=0, wanted_bytes=0)
    findings = dataset_conditions.loaded(
        held=HELD, uri=URI, placement=placement, progress=WantProgress(copies=({"a": 0},))
    )
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Loaded"].reason) == ("False", "AmountTooSmall")


@pytest.mark.parametrize(
    ("placement", "reason", "state"),
    [
        (placement_of("a"), "Loaded", "Ready"),
        (placement_of("a", unplaced=9), "NotAllFits", "Degraded"),
        (placement_of("a", node_count=2, eligible=1), "TooFewNodes", "Degraded"),
        (placement_of("a", copies=2, eligible=1), "TooFewNodes", "Degraded"),
        (placement_of("a", nodes=("a", "gone")), "TooFewNodes", "Degraded"),
    ],
)
def test_loaded_means_all_that_was_asked_for(placement: WantPlacement, reason: str, state: str) -> None:
    findings = dataset_conditions.loaded(held=HELD, uri=URI, placement=placement, progress=PROGRESS)
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Ready"].status) == ("True", "True")
    assert by_type["Placed"].status == ("True" if state == "Ready" else "False")
    assert (findings[-1].reason, dataset_conditions.state_of(findings)) == (reason, state)


def test_a_selector_is_spoken_of_where_one_is_set() -> None:
    for selector in ({}, {"zone": "1"}):
        few = dataset_conditions.placed(placement_of("a", node_count=2, eligible=1, node_selector=selector))
        none = dataset_conditions.unplaced(uri=URI, selector=selector)[-1]
        assert few.reason == "TooFewNodes"
        assert none.message.startswith("no node has a live" if not selector else "no node with the labels of")
        for text in (few.message, none.message):
            assert ("elector" in text) is bool(selector)


def columns(*findings: Finding) -> tuple[str, str | None]:
    """The columns STATE and REASON."""
    state = dataset_conditions.state_of(list(findings))
    return state, dataset_conditions.reason_of(findings, state=state)


def test_people_see_next_to_the_state_why_it_is_not_simply_ready() -> None:
    loaded = dataset_conditions.loaded(held=HELD, uri=URI, placement=placement_of("a"), progress=PROGRESS)
    short = dataset_conditions.loaded(
        held=HELD, uri=URI, placement=placement_of("a", copies=2, eligible=1), progress=PROGRESS
    )
    loading = {"progress": PROGRESS, "uri": URI, "placement": placement_of("a")}
    refused = dataset_conditions.reachable(("SourceRefused", "why"))
    granted, no_room = (
        finding("Granted", is_true, reason) for is_true, reason in ((True, "Granted"), (False, "Full"))
    )
    assert columns(*loaded, dataset_conditions.reachable(), granted) == ("Ready", None)
    assert columns(*loaded, dataset_conditions.reachable(), no_room) == ("Ready", "Full")
    assert columns(*loaded, refused, no_room) == ("Degraded", "SourceRefused")
    assert columns(*short, dataset_conditions.reachable(), granted) == ("Degraded", "TooFewNodes")
    assert columns(*dataset_conditions.loading(**loading), refused) == ("Loading", None)  # type: ignore[arg-type]
    assert columns(*dataset_conditions.loading(**loading, cause="none")) == ("Failed", "LoadFailed")  # type: ignore[arg-type]
    assert columns(*dataset_conditions.mounting(URI)) == ("Mounting", None)
    assert columns(*dataset_conditions.blocked(reason="SecretNotFound", message="why")) == (
        "Failed",
        "SecretNotFound",
    )
    assert columns(*dataset_conditions.blocked(reason="CacheUnavailable", message="why")) == (
        "Pending",
        "CacheUnavailable",
    )


def test_a_source_that_is_out_of_reach_degrades_what_serves() -> None:
    loaded = dataset_conditions.loaded(held=HELD, uri=URI, placement=placement_of("a"), progress=PROGRESS)
    assert dataset_conditions.state_of([*loaded, dataset_conditions.reachable(("Gone", "why"))]) == "Degraded"


def test_files_that_cannot_be_had_leave_the_rest_ready() -> None:
    lacks = WantProgress(placed_bytes=8, wanted_bytes=8, failed_bytes=2, copies=({"a": 8},))
    failed = Failures(count=3, files=(FileFailure(path="bad", code="Unreadable", reason="it said 403"),))
    findings = dataset_conditions.loaded(
        held=HELD, uri=URI, placement=placement_of("a"), progress=lacks, failures=failed
    )
    by_type = {finding.type: finding for finding in findings}
    assert (by_type["Loaded"].status, by_type["Ready"].status) == ("False", "True")
    assert "2 bytes of 3 files cannot be had (bad: it said 403 and 1 more)" in by_type["Ready"].message
    assert dataset_conditions.state_of(findings) == "Degraded"
    status = dataset_status.with_data(DatasetStatus(), held=HELD, failures=failed)
    assert (status.failed_file_count, [file.path for file in status.failed_files]) == (3, ["bad"])
    endless = Failures(count=1, files=(FileFailure(path="bad", code="Unreadable", reason="r" * 32_000),))
    (file,) = dataset_status.with_data(DatasetStatus(), held=HELD, failures=endless).failed_files
    assert len(file.reason) == 1024


def test_names_that_are_no_text_can_be_shown() -> None:
    assert printable("caf\udce9/a\x07b\u2028c") == "caf\\xe9/a\\x07b\\u2028c"


def test_the_status_counts_bytes_once_and_by_copy() -> None:
    held = Holdings(
        total_bytes=100, total_files=10, cached_bytes=50, node_bytes={"a": 25, "b": 30, "other": 9}
    )
    progress = WantProgress(placed_bytes=55, wanted_bytes=200, source_rate=1000, copies=({"a": 20, "b": 25},))
    status = dataset_status.with_data(
        DatasetStatus(), held=held, placement=placement_of("b", "a"), progress=progress
    )
    assert (status.cached_bytes, status.physical_bytes, status.cached_ratio) == (50, 64, 0.5)
    assert (status.wanted_bytes, status.loaded_bytes, status.loaded_ratio) == (200, 55, 0.275)
    assert (status.loaded, status.rate) == ("27%", "1000 bytes/s")
    assert [(node.name, node.bytes) for node in status.copies[0].nodes] == [("a", 20), ("b", 25)]


def test_an_autoscaler_reads_how_many_of_the_copies_asked_for_have_data() -> None:
    held = Holdings(total_bytes=100, total_files=1, cached_bytes=50, node_bytes={"a": 50, "other": 9})

    def count(held: Holdings, **fields: Any) -> int:
        return dataset_status.with_data(DatasetStatus(), held=held, **fields).copy_count

    for bytes_by_node, copies in (({"a": 50}, 1), ({"a": 0}, 0)):
        progress = WantProgress(wanted_bytes=100, copies=(bytes_by_node,))
        assert count(held, placement=placement_of("a"), progress=progress) == copies
    # Nothing is preloaded: what reads brought is one copy, on however many nodes.
    assert count(held) == 1
    assert count(Holdings(total_bytes=100, total_files=1)) == 0


def test_only_all_of_it_is_a_ratio_of_one() -> None:
    assert dataset_status.ratio(999_999_999, 1_000_000_000) < 1
    assert dataset_status.ratio(10, 10) == dataset_status.ratio(0, 0) == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (144e9, "134 GiB"),
        (24 * 2**30, "24 GiB"),
        (2**20 - 1, "1 MiB"),
        (99.96 * 2**20, "100 MiB"),
    ],
)
def test_sizes_are_short(size: float, text: str) -> None:
    assert human(int(size)) == text


def source(uri: str = URI, *, key: str = "k", endpoint: str = "http://s") -> Source:
    return Source(
        uri=uri,
        options={"endpoint": endpoint},
        credentials=Credentials(access_key_id="me", secret_access_key=key),
    )


def test_equal_sources_share_a_path_and_others_do_not() -> None:
    path = mount_identity.engine_path(source=source())
    assert path == mount_identity.engine_path(source=source())
    sources = [source("s3://bucket/other"), source(key="x"), source(endpoint="http://t"), Source(uri=URI)]
    assert len({path, *(mount_identity.engine_path(source=different) for different in sources)}) == 5


def test_two_spellings_of_a_source_are_one() -> None:
    def path(uri: str) -> str:
        obj = dataset_object()
        obj["spec"]["source"]["uri"] = uri
        spec = Dataset.model_validate(obj).spec
        return mount_identity.engine_path(source=mount_identity.source_of(spec=spec, credentials=None))

    assert path("s3://bucket/a/") == path("s3://bucket/a") != path("s3://bucket/b")


def test_the_engine_gets_options_as_text() -> None:
    obj = dataset_object()
    obj["spec"]["source"]["options"] = {"pathStyle": True, "region": "r"}
    mounted = mount_identity.source_of(spec=Dataset.model_validate(obj).spec, credentials=None)
    assert dict(mounted.options) == {"pathStyle": "true", "region": "r"}


def test_volume_and_claim_find_each_other_and_belong_to_the_dataset() -> None:
    owner = dataset_object()
    attributes = volume_objects.attributes(cluster="default", path="/datasets/1")
    volume = volume_objects.volume(dataset=owner, storage="1Gi", attributes=attributes)
    claim = volume_objects.claim(dataset=owner, storage="1Gi")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "tdcs.n.pictures"
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("n", "pictures")
    assert volume_objects.mounted_path(volume) == "/datasets/1"
    assert belongs(volume, owner)
    assert belongs(claim, owner)
    assert not belongs(volume, dataset_object(namespace="other"))


def test_a_volume_names_the_tiers_that_are_not_at_the_default_place() -> None:
    attributes = volume_objects.attributes(
        cluster="c", path="/datasets/1", tiers=["/mnt/nvme", "/mnt/memory"]
    )
    assert attributes == {"cluster": "c", "path": "/datasets/1", "tiers": "/mnt/nvme,/mnt/memory"}
    assert parse_volume(attributes=attributes).tiers == ("/mnt/nvme", "/mnt/memory")
    for default in ([], ["/var/lib/tdcs/cache/c"]):
        attributes = volume_objects.attributes(cluster="c", path="/datasets/1", tiers=default)
        assert attributes == {"cluster": "c", "path": "/datasets/1"}


LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)


@given(first=st.tuples(LABEL, LABEL), second=st.tuples(LABEL, LABEL))
def test_two_datasets_never_claim_one_volume(first: tuple[str, str], second: tuple[str, str]) -> None:
    names = {
        volume_objects.volume(
            dataset=dataset_object(name, namespace=namespace), storage="1Mi", attributes={}
        )["metadata"]["name"]
        for namespace, name in (first, second)
    }
    assert len(names) == len({first, second})


def test_a_claim_waits_until_the_volume_was_taken_in_but_not_forever() -> None:
    fresh = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Pending"}}
    assert volume_objects.is_unseen(fresh, now="2026-01-01T00:00:01Z")
    assert not volume_objects.is_unseen(fresh, now="2026-01-01T00:00:09Z")
    # By a clock that is behind the API server's.
    assert not volume_objects.is_unseen(fresh, now="2025-01-01T00:00:00Z")
    assert not volume_objects.is_unseen(
        {**fresh, "status": {"phase": "Available"}}, now="2026-01-01T00:00:01Z"
    )


@pytest.mark.parametrize(
    ("claimed", "bound", "nudged"),
    [
        ("Pending", "Bound", True),
        ("Pending", "Available", False),
        ("Bound", "Bound", False),
        ("", "Bound", False),
    ],
)
def test_a_claim_that_was_left_behind_its_volume_is_changed_once(
    claimed: str, bound: str, nudged: bool
) -> None:
    volume = {"metadata": {}, "status": {"phase": bound}}
    live = {"metadata": {}, "status": {"phase": claimed}} if claimed else None
    assert volume_objects.needs_nudge(claimed=live, bound=volume) is nudged
    claim = volume_objects.claim(dataset=dataset_object(), storage="1Gi", nudged=nudged)
    assert ("annotations" in claim["metadata"]) is nudged
    if nudged:
        after = {**claim, "status": {"phase": "Bound"}}
        assert volume_objects.needs_nudge(claimed=after, bound=volume)


@pytest.mark.parametrize(
    ("cached", "percentage"), [(0, "0%"), (949_999, "94%"), (999_999, "99%"), (1_000_000, "100%")]
)
def test_people_see_a_percentage_and_a_size(cached: int, percentage: str) -> None:
    held = Holdings(total_bytes=1_000_000, total_files=3, cached_bytes=cached)
    status = dataset_status.with_data(DatasetStatus(), held=held)
    assert (status.cached, status.size) == (percentage, "977 KiB")


def test_nothing_is_shown_before_anything_is_known() -> None:
    status = dataset_status.with_data(DatasetStatus(), held=Holdings())
    assert (status.cached, status.size) == (None, None)
