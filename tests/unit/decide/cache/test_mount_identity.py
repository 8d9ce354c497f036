"""Engine path and mark of a source."""

from tests.unit.control.builders import dataset_object

from tdcs.api.dataset import Dataset
from tdcs.decide.cache import mount_identity
from tdcs.model.cache_engine import Credentials, Source

URI = "s3://bucket/prefix"


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
