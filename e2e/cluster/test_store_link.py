"""The slow object store: its link holds the rate it is set to, both ways, and its counters tell the truth."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from e2e.support.pods import finished, pod
from tdcs_local.kind.kubectl import Kubectl, Object
from tdcs_local.progress import Reporter
from tdcs_local.store import operations

BUCKET = "e2e-link"
SIZE = 64 << 20
TRIES = 5
RATES = {"50mbit": 50e6, "200mbit": 200e6}
DEEP = pytest.mark.deep("the quicker link: e2e/cluster/test_store_link.py")
EACH_RATE = pytest.mark.parametrize("rate", [pytest.param("50mbit", marks=DEEP), "200mbit"])


@pytest.fixture(scope="module")
def large(kubectl: Kubectl, reporter: Reporter) -> Object:
    """The one file of a bucket of the store, as its manifest describes it."""
    operations.up(reporter=reporter)
    operations.fill(
        "large", bucket=BUCKET, seeded=operations.Made(files=1, size=str(SIZE)), reporter=reporter
    )
    file: Object = operations.manifest(BUCKET)["files"][0]
    return file


@pytest.fixture
def link(large: Object, reporter: Reporter) -> Iterator[None]:
    """Leaves the link's rates as they were found."""
    before = operations.status()["link"]["wanted"]
    yield
    limits = {side: "unlimited" if rate is None else f"{rate}bit" for side, rate in before.items()}
    operations.set_link(egress=limits["egress"], ingress=limits["ingress"], reporter=reporter)


@pytest.fixture(scope="module")
def s3(large: Object, kubectl: Kubectl) -> Any:
    """An S3 client that only signs: the cluster's names are not known here."""
    secret = kubectl.get("secret", "store", namespace=operations.NAMESPACE)
    assert secret is not None
    keys = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    return boto3.client(
        "s3",
        endpoint_url=operations.ENDPOINT,
        aws_access_key_id=keys["accessKeyId"],
        aws_secret_access_key=keys["secretAccessKey"],
        region_name="us-east-1",
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )


def url(s3: Any, verb: str, key: str) -> str:
    signed: str = s3.generate_presigned_url(verb, Params={"Bucket": BUCKET, "Key": key}, ExpiresIn=900)
    return signed


def on_another_node(kubectl: Kubectl) -> dict[str, Any]:
    """Affinity to the nodes that the store does not run on: the bytes must cross a real link."""
    (store_pod,) = kubectl.list(
        "pods", namespace=operations.NAMESPACE, selector="app.kubernetes.io/name=tdcs-store"
    )
    elsewhere = {
        "key": "kubernetes.io/hostname",
        "operator": "NotIn",
        "values": [store_pod["spec"]["nodeName"]],
    }
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def words_of(kubectl: Kubectl, name: str, *, script: str, image: str, namespace: str) -> list[str]:
    """Run a script in a pod on another node; the words that it prints."""
    affinity = on_another_node(kubectl)
    kubectl.apply(pod(name, image=image, script=script, namespace=namespace, affinity=affinity))
    return finished(kubectl, name, namespace).split()


def holds(rate: str, transfer: Callable[[int], tuple[int, float]]) -> None:
    """One of some transfers (of bytes in seconds) has the rate within 10 %, and none is faster.

    A shaper cannot make a machine faster that has no CPU left, so a transfer that was too slow is repeated.
    """
    rates = []
    for attempt in range(TRIES):
        sent, seconds = transfer(attempt)
        rates.append(sent * 8 / seconds)
        assert rates[-1] <= 1.1 * RATES[rate]
        if rates[-1] >= 0.9 * RATES[rate]:
            break
    print(f"set to {rate}, measured on the wire: {', '.join(f'{bits / 1e6:.1f}' for bits in rates)} Mbit/s")
    assert rates[-1] == pytest.approx(RATES[rate], rel=0.1)


@EACH_RATE
def test_a_download_has_the_rate_of_the_link_and_is_counted_to_the_byte(
    rate: str,
    kubectl: Kubectl,
    large: Object,
    link: None,
    s3: Any,
    namespace: str,
    toolbox: str,
    reporter: Reporter,
) -> None:
    operations.set_link(egress=rate, ingress="unlimited", reporter=reporter)
    get = f"curl -sSf -o /tmp/file -w '%{{time_total}} ' '{url(s3, 'get_object', large['path'])}'"

    def download(attempt: int) -> tuple[int, float]:
        payload, wire = operations.payload_bytes_sent(bucket=BUCKET), operations.wire_bytes_sent()
        script = f"{get}; sha256sum /tmp/file"
        seconds, digest, _ = words_of(
            kubectl, f"get-{attempt}", script=script, image=toolbox, namespace=namespace
        )
        assert digest == large["sha256"]
        assert operations.payload_bytes_sent(bucket=BUCKET) - payload == SIZE
        sent = operations.wire_bytes_sent() - wire
        assert SIZE < sent < 1.08 * SIZE
        return sent, float(seconds)

    holds(rate, download)


@EACH_RATE
def test_an_upload_has_the_rate_of_the_link(
    rate: str,
    kubectl: Kubectl,
    large: Object,
    link: None,
    s3: Any,
    namespace: str,
    toolbox: str,
    reporter: Reporter,
) -> None:
    operations.set_link(egress="unlimited", ingress=rate, reporter=reporter)
    put = f"curl -sSf -T /tmp/file -w '%{{time_total}}' '{url(s3, 'put_object', 'upload')}'"

    def upload(attempt: int) -> tuple[int, float]:
        before = operations.status()["link"]["wireBytes"]["ingress"]
        script = f"head -c {SIZE} /dev/urandom > /tmp/file; {put}"
        (seconds,) = words_of(kubectl, f"put-{attempt}", script=script, image=toolbox, namespace=namespace)
        received = operations.status()["link"]["wireBytes"]["ingress"] - before
        assert SIZE < received < 1.08 * SIZE
        return received, float(seconds)

    holds(rate, upload)


def test_a_client_that_hangs_up_is_not_counted_for_what_it_did_not_get(
    kubectl: Kubectl, large: Object, link: None, s3: Any, namespace: str, toolbox: str, reporter: Reporter
) -> None:
    operations.set_link(egress="50mbit", reporter=reporter)
    before = operations.payload_bytes_sent(bucket=BUCKET)
    get = f"curl -sSf '{url(s3, 'get_object', large['path'])}' 2>/dev/null | head -c 1000000 | wc -c"
    assert words_of(kubectl, "client", script=get, image=toolbox, namespace=namespace) == ["1000000"]
    # what was already on its way when the client closed: its own receive buffer and the store's send buffer
    assert 1_000_000 <= operations.payload_bytes_sent(bucket=BUCKET) - before < SIZE / 4


def test_rates_and_counters_outlive_the_stores_pod(
    kubectl: Kubectl, large: Object, link: None, s3: Any, namespace: str, toolbox: str, reporter: Reporter
) -> None:
    operations.set_link(egress="123mbit", ingress="45mbit", reporter=reporter)
    get = f"curl -sSf -r 0-999 '{url(s3, 'get_object', large['path'])}' | wc -c"
    assert words_of(kubectl, "client", script=get, image=toolbox, namespace=namespace) == ["1000"]
    before = operations.status()
    (old,) = kubectl.list(
        "pods", namespace=operations.NAMESPACE, selector="app.kubernetes.io/name=tdcs-store"
    )
    kubectl.delete("pod", old["metadata"]["name"], namespace=operations.NAMESPACE)
    operations.up(reporter=reporter)
    after = operations.status()
    assert after["link"]["link"] != before["link"]["link"]
    assert after["link"]["applied"] == {"egress": 123_000_000, "ingress": 45_000_000}
    assert after["link"]["wireBytes"]["egress"] >= before["link"]["wireBytes"]["egress"]
    assert after["buckets"][BUCKET]["sentBytes"] == before["buckets"][BUCKET]["sentBytes"] > 0
    assert operations.manifest(BUCKET)["files"] == [large]


def test_a_wrong_rate_is_refused_with_a_sentence_and_changes_nothing(
    large: Object, link: None, reporter: Reporter
) -> None:
    before = operations.status()["link"]["wanted"]
    with pytest.raises(Exception, match="'50mb' is not a rate"):
        operations.set_link(egress="50mb", reporter=reporter)
    assert operations.status()["link"]["wanted"] == before
