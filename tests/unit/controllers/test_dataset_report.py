"""What a Dataset's status says, and where its source is mounted."""

import pytest
from tests.unit.controllers.builders import dataset_object

from tdcs.api.dataset import Dataset
from tdcs.controllers.dataset import identity, report, volumes
from tdcs.controllers.dataset.plan import LoadPlan
from tdcs.controllers.dataset.report import Holdings, Progress, Trouble
from tdcs.controllers.dataset.survey import Survey
from tdcs.controllers.sizes import human
from tdcs.engine.protocol import Credentials, Source
from tdcs.kube.apply import belongs
from tdcs.policy.placement import CopyPlan, Mode

HELD = Holdings(
    total_bytes=3_000_000, total_files=30, cached_bytes=1_200_000, node_bytes={"a": 700_000, "b": 500_000}
)
PROGRESS = Progress(placed_bytes=1_200_000, wanted_bytes=3_000_000, nodes=2)
URI = "s3://bucket/prefix"


def test_progress_reads_like_a_sentence() -> None:
    (_, loaded, ready) = report.loading(progress=PROGRESS, uri=URI, trouble=None)
    assert ready.message == loaded.message == "1.2 MB of 3.0 MB on 2 nodes"
    assert report.state_of([ready]) == "Loading"


def test_a_load_that_left_blocks_out_says_why() -> None:
    trouble = Trouble(failed_blocks=1, cause="the source said 403")
    ready = report.loading(progress=PROGRESS, uri=URI, trouble=trouble)[-1]
    assert ready.reason == "LoadFailed"
    assert "1 block could not be loaded and will be tried again: the source said 403" in ready.message


@pytest.mark.parametrize(
    ("unplaced", "reason", "state"), [(0, "Loaded", "Ready"), (9, "NotAllFits", "Degraded")]
)
def test_loaded_means_all_that_fits(unplaced: int, reason: str, state: str) -> None:
    copy = CopyPlan(mode=Mode.PARTITION, nodes=(), dataset_bytes=0, fits=True)
    findings = report.loaded(held=HELD, uri=URI, plan=LoadPlan(copy=copy, unplaced_bytes=unplaced))
    assert {finding.status for finding in findings} == {"True"}
    assert (findings[-1].reason, report.state_of(findings)) == (reason, state)


def test_the_counts_of_a_running_load_are_added_to_the_last_listing() -> None:
    survey = Survey(total_bytes=100, total_files=10, cached_bytes=20, node_bytes={"a": 20})
    held = report.holdings(survey=survey, loaded={"a": 5, "b": 30}, newly_cached=30)
    assert held.node_bytes == {"a": 25, "b": 30}
    status = report.status_of(held=held, claim_name="c", mount_path="/p", state="Loading")
    assert (status.cached_bytes, status.physical_bytes, status.cached_ratio) == (50, 55, 0.5)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (144e9, "144 GB"), (99_960_000, "100 MB")],
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
    path = identity.engine_path(source=source())
    assert path == identity.engine_path(source=source())
    others = [source("s3://bucket/other"), source(key="x"), source(endpoint="http://t"), Source(uri=URI)]
    assert len({path, *(identity.engine_path(source=other) for other in others)}) == 5


def test_two_spellings_of_a_source_are_one() -> None:
    def path(uri: str) -> str:
        obj = dataset_object()
        obj["spec"]["source"]["uri"] = uri
        spec = Dataset.model_validate(obj).spec
        return identity.engine_path(source=identity.source_of(spec=spec, credentials=None))

    assert path("s3://bucket/a/") == path("s3://bucket/a") != path("s3://bucket/b")


def test_the_engine_gets_options_as_text() -> None:
    obj = dataset_object()
    obj["spec"]["source"]["options"] = {"pathStyle": True, "region": "r"}
    found = identity.source_of(spec=Dataset.model_validate(obj).spec, credentials=None)
    assert dict(found.options) == {"pathStyle": "true", "region": "r"}


def test_volume_and_claim_find_each_other_and_belong_to_the_dataset() -> None:
    owner = dataset_object()
    volume = volumes.volume(dataset=owner, cluster="default", path="/datasets/1")
    claim = volumes.claim(dataset=owner)
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"] == "tdcs.n.pictures"
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("n", "pictures")
    assert volumes.mounted_path(volume) == "/datasets/1"
    assert belongs(volume, owner)
    assert belongs(claim, owner)
    assert not belongs(volume, dataset_object(namespace="other"))


def test_a_claim_waits_until_the_volume_was_taken_in_but_not_for_ever() -> None:
    fresh = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Pending"}}
    assert volumes.is_unseen(fresh, now="2026-01-01T00:00:01Z")
    assert not volumes.is_unseen(fresh, now="2026-01-01T00:00:09Z")
    assert not volumes.is_unseen({**fresh, "status": {"phase": "Available"}}, now="2026-01-01T00:00:01Z")


@pytest.mark.parametrize(
    ("cached", "shown"), [(0, "0%"), (949_999, "94%"), (999_999, "99%"), (1_000_000, "100%")]
)
def test_people_see_a_percentage_and_a_size(cached: int, shown: str) -> None:
    held = Holdings(total_bytes=1_000_000, total_files=3, cached_bytes=cached)
    status = report.status_of(held=held, claim_name="c", mount_path="/m", state="Loading")
    assert (status.cached, status.size) == (shown, "1.0 MB")


def test_nothing_is_shown_before_anything_is_known() -> None:
    status = report.status_of(held=Holdings(), claim_name="c", mount_path="/m", state="Mounting")
    assert (status.cached, status.size) == (None, None)
