"""From a Dataset's source to Alluxio's mount properties, and from Alluxio's complaints to sentences."""

import base64
from dataclasses import replace

import pytest

from tdcs.alluxio.mount_properties import (
    NO_KEYS_MARK,
    explain,
    mount_properties,
    mounted_digest,
    plain_reason,
    refuses_keys,
)
from tdcs.model.cache_engine import NO_KEYS, Credentials, Source, SourceError

PAIR = Credentials(access_key_id="id", secret_access_key="secret")


def properties(**options: str) -> dict[str, str]:
    """Mount properties of an S3 source with these options, without the mark."""
    found = mount_properties(Source(uri="s3://bucket/data", options=options, credentials=PAIR))
    assert mounted_digest(found)
    return {key: value for key, value in found.items() if key.startswith("alluxio.underfs.")}


def test_a_server_of_ones_own_is_reached_by_path() -> None:
    assert properties(endpoint="http://store:9000/") == {
        "alluxio.underfs.s3.endpoint": "http://store:9000",
        "alluxio.underfs.s3.endpoint.region": "us-east-1",
        "alluxio.underfs.s3.disable.dns.buckets": "true",
        "alluxio.underfs.s3.inherit.acl": "false",
    }


def test_without_an_endpoint_it_is_aws_by_host_name() -> None:
    assert properties(region="eu-central-1") == {
        "alluxio.underfs.s3.endpoint.region": "eu-central-1",
        "alluxio.underfs.s3.disable.dns.buckets": "false",
        "alluxio.underfs.s3.inherit.acl": "false",
    }


def test_a_bucket_whose_name_no_certificate_fits_is_reached_by_path() -> None:
    source = Source(uri="s3://my.data.set/x", credentials=PAIR)
    assert mount_properties(source)["alluxio.underfs.s3.disable.dns.buckets"] == "true"


def test_what_alluxio_knows_nothing_of_stands_behind_the_secret() -> None:
    def keys(credentials: Credentials, bundle: str = "", **options: str) -> tuple[str, list[str]]:
        source = Source(uri="s3://b/d", options=options, credentials=credentials, ca_bundle=bundle)
        found = mount_properties(source)
        return found["s3a.accessKeyId"], found["s3a.secretKey"].split("\n")

    temporary = replace(PAIR, session_token="token")
    assert keys(PAIR) == ("id", ["secret"])
    assert keys(temporary) == ("id", ["secret", "token"])
    assert keys(PAIR, requesterPays="true") == ("id", ["secret", "", "requester-pays"])
    assert keys(PAIR, "PEM") == ("id", ["secret", "", "", base64.b64encode(b"PEM").decode()])
    account, lines = keys(NO_KEYS)
    assert account == lines[0] == NO_KEYS_MARK, "never the credentials of the node"


def test_a_file_of_up_to_a_gibibyte_is_one_block_unless_told_otherwise() -> None:
    key = "alluxio.user.block.size.bytes.default"
    source = Source(uri="file:///data")
    assert mount_properties(source)[key] == "1073741824B"
    small = mount_properties(source, block_size=1 << 20)
    assert small[key] == "1048576B"
    assert mounted_digest(small) != mounted_digest(mount_properties(source))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source(uri="s3://b", options={"endpiont": "http://x"}), "endpiont is not an option"),
        (Source(uri="s3://b", options={"endpoint": "store:9000"}), "is no URL"),
        (Source(uri="s3://b", options={"pathStyle": "yes"}), "pathStyle is 'yes'"),
        (Source(uri="file:///data", options={"region": "x"}), "region is not an option"),
        (Source(uri="bucket/data"), "it is none of s3://BUCKET"),
        (Source(uri="s3:///data"), "it is none of s3://BUCKET"),
        (Source(uri="https://host/data"), "cannot mount https://"),
        (Source(uri="hdfs://name/data"), "it is none of s3://BUCKET"),
    ],
)
def test_a_source_that_cannot_be_right_is_refused_in_words(source: Source, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        mount_properties(source)


def test_the_mark_of_a_mount_changes_with_credentials_and_options_only() -> None:
    def mark(uri: str = "s3://b/d", endpoint: str = "http://x", half: str = "one") -> str:
        pair = Credentials(access_key_id="id", secret_access_key=half)
        return mounted_digest(
            mount_properties(Source(uri=uri, options={"endpoint": endpoint}, credentials=pair))
        )

    assert mark() == mark() == mark(uri="s3://b/d/") == mark(endpoint="http://x/")
    assert len({mark(), mark(half="two"), mark(endpoint="http://y"), mark(uri="s3://b/e")}) == 4
    assert mounted_digest({"alluxio.underfs.s3.endpoint": "http://x"}) == ""


ECHO = """mount command: alluxio fs mount /datasets/c s3://wrong/x option MountContext{ProtoOptions=readOnly: true
properties {
  key: "s3a.secretKey"
  value: "TOPSECRET"
}
shared: false
}
Acquired mount ID for the new mount point: 1818851161756831336
alluxio.underfs.s3a.AlluxioS3Exception: 403 Forbidden:Forbidden"""


def test_the_repeated_request_is_cut_off() -> None:
    assert plain_reason(ECHO) == "403 Forbidden:Forbidden"
    assert plain_reason("") == "no reason given"


NO_CREDENTIALS = (
    "ClientException:Unable to load AWS credentials from any provider in the chain: [Environment: …, "
    "com.amazonaws.auth.profile.ProfileCredentialsProvider@{address}: profile file cannot be null, "
    "EC2ContainerCredentialsProviderWrapper@56f1b314: Forbidden (Status Code: 403; Request ID: {address}; Proxy: null)]"
)


def test_the_same_failure_reads_the_same_each_time() -> None:
    first, second = (explain(NO_CREDENTIALS.format(address=address)) for address in ("16363695", "26262a06"))
    assert first == second
    assert "ProfileCredentialsProvider: profile file" in first[0]


def test_a_long_complaint_is_cut_but_understood_whole() -> None:
    reason, remedy = explain("word " * 500 + "NoSuchBucket")
    assert reason.startswith("there is no such bucket")
    assert len(reason) < 500
    assert "spec.source.uri" in remedy


def test_without_an_endpoint_it_is_said_that_amazon_was_asked() -> None:
    text = (
        "ClientException:Unable to execute HTTP request: pictures.s3.amazonaws.com: Name or service not known"
    )
    _, remedy = explain(text)
    assert remedy.startswith(
        "Without spec.source.options.endpoint Amazon is asked (pictures.s3.amazonaws.com): set it for another store"
    )
    assert "Amazon" not in explain(text.replace("pictures.s3.amazonaws.com", "store.example"))[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ECHO, "the source refused the credentials"),
        ("SignatureDoesNotMatch:The request signature …", "the source refused the credentials"),
        (
            "Unable to execute HTTP request: PKIX path building failed: unable to find valid certification path",
            "the endpoint shows no certificate of its name that the cache trusts",
        ),
        (
            "Certificate for <10.0.0.1> doesn't match any of the subject alternative names: [store.example]",
            "the endpoint shows no certificate of its name that the cache trusts",
        ),
        (
            "The time differs (Service: S3; Status Code: 403; Error Code: RequestTimeTooSkewed)",
            "the clock of the cache's node and the source's differ by too much",
        ),
        (
            "XAdminUserNotFound:No user exists with the provided access key ID.",
            "the source refused the credentials",
        ),
        ("AuthorizationHeaderMalformed: the region is wrong", "the bucket is in another region"),
        ("NoSuchBucket:The specified bucket does not exist.", "there is no such bucket"),
        ("Ufs path s3://data/zz does not exist", "there is no such folder"),
        ("404 Not Found:Not Found (Status Code: 404)", "there is no such bucket or folder, or what answers"),
        (
            "ClientException:Unable to execute HTTP request: Connect to 127.0.0.1:1 failed: Connection refused",
            "the endpoint does not answer",
        ),
        (
            "the store at 10.0.0.9:80 redirects to another host, 169.254.169.254, which is not followed",
            "the store sends its readers to another host",
        ),
        (NO_CREDENTIALS, "the source asks for credentials, and none were given"),
        ("something new", "something new"),
    ],
)
def test_complaints_get_a_reason_and_a_remedy(text: str, reason: str) -> None:
    found, remedy = explain(text)
    assert found.startswith(reason)
    assert "TOPSECRET" not in found
    assert remedy


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (ECHO, True),
        ("Access Denied (Service: Amazon S3; Status Code: 403; Error Code: AccessDenied; Proxy: null)", True),
        ("InvalidAccessKeyId:The key does not exist", True),
        ("Connect to 10.1.2.3:14031 [/10.1.2.3] failed: Connection refused", False),
        ("s3://logs-2403/: Read timed out", False),
        ("/datasets/ab4031cd12345678: Connect to x timed out", False),
        ("The clock differs (Status Code: 403; Error Code: RequestTimeTooSkewed)", False),
        ("/datasets/403/Forbidden-fruit does not exist", False),
    ],
)
@pytest.mark.failure_mode("node-clock-off")
def test_only_a_stores_own_refusal_counts_against_the_keys(text: str, refused: bool) -> None:
    assert refuses_keys(text) is refused
