"""The wire form of kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1), as far as prioritize goes.

Only what a score depends on is decoded: the rest of the Pod, some kilobytes, is skipped. The Go structs have no JSON
names, so the keys are the Go names, capitalised; inside the Pod they are Kubernetes' own.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from tdcs.api import names


class BadRequestError(ValueError):
    """The body is not a prioritize request; the text says where it deviates."""


class BadAnnotationError(ValueError):
    """A pod's datasets annotation is not what it should be; the text says where it deviates."""


class _Annotations(msgspec.Struct):
    datasets: str | None = msgspec.field(name=names.ANNOTATION_DATASETS, default=None)


class _Metadata(msgspec.Struct):
    name: str = ""
    generate_name: str = msgspec.field(name="generateName", default="")
    namespace: str = ""
    uid: str = ""
    annotations: _Annotations | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Arguments(msgspec.Struct):
    pod: _Pod = msgspec.field(name="Pod")
    # A list: to make a set of 5000 names takes three times as long as to decode them, and few hold data.
    node_names: list[str] | None = msgspec.field(name="NodeNames", default=None)


class DatasetReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dataset that a pod reads: `namespace/name`, and the copy it was told to read; None is any copy."""

    dataset: Annotated[str, msgspec.Meta(pattern=r"^[^/]+/[^/]+\Z")]
    copy: str | None = None


class PrioritizeRequest(msgspec.Struct, frozen=True):
    """What kube-scheduler asks: how good is each of `nodes` for the pod?

    `nodes` is None when kube-scheduler sent whole Node objects instead of names (nodeCacheCapable is off).
    `annotation` is the pod's datasets annotation as it was written, None without one.
    """

    pod: str
    uid: str
    annotation: str | None
    nodes: Sequence[str] | None

    @property
    def key(self) -> tuple[str, str]:
        """The pod's namespace and name."""
        namespace, _, name = self.pod.partition("/")
        return namespace, name


class _HostPriority(msgspec.Struct):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


_arguments: Final = msgspec.json.Decoder(_Arguments)
_references: Final = msgspec.json.Decoder(list[DatasetReference])
_encoder: Final = msgspec.json.Encoder()


def decode_request(*, body: bytes | bytearray) -> PrioritizeRequest:
    """The request in `body`; raises BadRequestError."""
    try:
        arguments = _arguments.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(
            f"this is no ExtenderArgs of a prioritize call: {error}; the extender serves kube-scheduler, see urlPrefix "
            "and prioritizeVerb of its configuration"
        ) from error
    metadata = arguments.pod.metadata
    return PrioritizeRequest(
        pod=f"{metadata.namespace}/{metadata.name or metadata.generate_name}",
        uid=metadata.uid,
        annotation=metadata.annotations.datasets if metadata.annotations else None,
        nodes=arguments.node_names,
    )


def decode_annotation(*, text: str) -> list[DatasetReference]:
    """The datasets that an annotation names; raises BadAnnotationError."""
    try:
        return _references.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadAnnotationError(
            f"annotation {names.ANNOTATION_DATASETS} is {text[:200]!r}: {error}; write a JSON list such as "
            '[{"dataset": "namespace/name", "copy": "0"}]'
        ) from error


def encode_scores(*, scores: Mapping[str, int]) -> bytes:
    """The HostPriorityList for `scores`; kube-scheduler takes hosts that are missing as 0."""
    return _encoder.encode([_HostPriority(host=host, score=score) for host, score in scores.items()])
