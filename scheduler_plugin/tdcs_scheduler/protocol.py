"""The wire form of kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1), as far as prioritize goes.

Only what a score depends on is decoded: the rest of the Pod, some kilobytes, is skipped. The Go structs have no JSON
names, so the keys are the Go names, capitalised; inside the Pod they are Kubernetes' own.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Annotated, Final

import msgspec

from tdcs.api import names
from tdcs.api.readers import READERS_PATTERN, is_reader

_NULL: Final = msgspec.Raw(b"null")

# Names that are looked for in the text before it is decoded, which costs as much as so many looks.
_LOOKS: Final = 20

MOST_REFERENCES: Final = 64
"""Different datasets, copies or readers that one annotation may name: a TrainingJob has at most 16 datasets. What a
call of `prioritize` costs grows with them, and anybody who may create a pod writes this annotation."""

_NO_ARGUMENTS: Final = "this is no ExtenderArgs of a prioritize call"
_CLIENT: Final = "the extender serves kube-scheduler, see urlPrefix and prioritizeVerb of its configuration"


class BadRequestError(ValueError):
    """The body is not a prioritize request; the text says where it deviates."""


class BadAnnotationError(ValueError):
    """A pod's datasets annotation is not what it should be; the text says where it deviates."""


class _Annotations(msgspec.Struct):
    datasets: str | None = msgspec.field(name=names.ANNOTATION_DATASETS, default=None)
    leave: str | None = msgspec.field(name=names.ANNOTATION_LEAVE_NODES, default=None)
    index: str | None = msgspec.field(name=names.ANNOTATION_COMPLETION_INDEX, default=None)


class _Labels(msgspec.Struct):
    index: str | None = msgspec.field(name=names.ANNOTATION_COMPLETION_INDEX, default=None)
    by_data: str | None = msgspec.field(name=names.LABEL_PLACE_BY_DATA, default=None)


class _Metadata(msgspec.Struct):
    name: str = ""
    generate_name: str = msgspec.field(name="generateName", default="")
    namespace: str = ""
    uid: str = ""
    annotations: _Annotations | None = None
    labels: _Labels | None = None


class _Claim(msgspec.Struct):
    name: str = msgspec.field(name="claimName", default="")


class _Volume(msgspec.Struct):
    claim: _Claim | None = msgspec.field(name="persistentVolumeClaim", default=None)


class _Spec(msgspec.Struct):
    volumes: list[_Volume] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


class _Arguments(msgspec.Struct):
    pod: _Pod = msgspec.field(name="Pod")
    node_names: msgspec.Raw = msgspec.field(name="NodeNames", default=_NULL)


class Candidates(Collection[str]):
    """The names of the nodes that kube-scheduler asks about. They stay JSON until more than a few were looked for.

    To find a name in the text costs less than to make strings of thousands. Raises BadRequestError for JSON that is no
    list of strings, once it is decoded.
    """

    def __init__(self, text: bytes) -> None:
        self._text: Final = text
        self._looks = 0
        self._names: list[str] | None = None
        self._set: Set[str] = frozenset()

    def __contains__(self, node: object) -> bool:
        self._looks += 1
        if self._looks <= _LOOKS:
            # No character that a node's name may have is written otherwise in JSON. Of 5000 names rfind needs 6 us,
            # and find (which is `in`) 16 to 24: it takes another algorithm for long texts.
            return self._text.rfind(f'"{node}"'.encode(errors="replace")) >= 0
        if not self._set:
            self._set = frozenset(self._decoded())
        return node in self._set

    @property
    def is_decoded(self) -> bool:
        """Whether to look for one more name costs next to nothing."""
        return self._looks > _LOOKS

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def _decoded(self) -> list[str]:
        if self._names is None:
            try:
                self._names = _names.decode(self._text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise BadRequestError(f"{_NO_ARGUMENTS}: NodeNames: {error}; {_CLIENT}") from error
        return self._names


class DatasetReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dataset of a pod: `namespace/name`, the copy that was chosen for it (None is any copy), and the completion
    indices of the pods that read it (None is all)."""

    dataset: Annotated[str, msgspec.Meta(pattern=r"^[^/]+/[^/]+\Z")]
    copy: str | None = None
    readers: Annotated[str, msgspec.Meta(pattern=READERS_PATTERN, max_length=64)] | None = None


class LeftNodes(msgspec.Struct, frozen=True):
    """The nodes that a pod leaves to larger ones while it has another candidate, and until when (with a time zone)."""

    nodes: frozenset[str]
    until: Annotated[datetime, msgspec.Meta(tz=True)]


class PrioritizeRequest(msgspec.Struct, frozen=True):
    """What kube-scheduler asks: how good is each of `nodes` for the pod?

    `nodes` is None when kube-scheduler sent whole Node objects instead of names (nodeCacheCapable is off).
    `annotation` is the pod's datasets annotation as it was written, None without one. `claims` are the claims that
    the pod mounts, as `namespace/name`: each is of the Dataset of that name, if there is one. `opted_out`: the pod is
    not to be placed by its data. `index` is the pod's number in its Indexed Job, None when it has none. `leave` is the
    annotation with the nodes that it leaves to larger pods, as it was written.
    """

    pod: str
    uid: str
    annotation: str | None
    nodes: Candidates | None
    index: int | None = None
    claims: tuple[str, ...] = ()
    opted_out: bool = False
    leave: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        namespace, _, name = self.pod.partition("/")
        return namespace, name


class _HostPriority(
    msgspec.Struct, gc=False
):  # hundreds an answer: they hold nothing that could form a cycle
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


_names: Final = msgspec.json.Decoder(list[str])
_arguments: Final = msgspec.json.Decoder(_Arguments)
_references: Final = msgspec.json.Decoder(list[DatasetReference])
_left_nodes: Final = msgspec.json.Decoder(LeftNodes)
_encoder: Final = msgspec.json.Encoder()


def decode_request(*, body: bytes | bytearray) -> PrioritizeRequest:
    """The request in `body`; raises BadRequestError."""
    try:
        arguments = _arguments.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"{_NO_ARGUMENTS}: {error}; {_CLIENT}") from error
    nodes = bytes(arguments.node_names)
    if nodes[:1] not in (b"[", b"n"):
        raise BadRequestError(f"{_NO_ARGUMENTS}: NodeNames is neither a list nor null; {_CLIENT}")
    metadata, spec = arguments.pod.metadata, arguments.pod.spec
    mounted = [
        volume.claim.name for volume in (spec.volumes if spec else None) or () if volume.claim is not None
    ]
    return PrioritizeRequest(
        pod=f"{metadata.namespace}/{metadata.name or metadata.generate_name}",
        uid=metadata.uid,
        annotation=metadata.annotations.datasets if metadata.annotations else None,
        nodes=Candidates(nodes) if nodes.startswith(b"[") else None,
        index=index_of(
            (metadata.annotations.index if metadata.annotations else None)
            or (metadata.labels.index if metadata.labels else None)
        ),
        claims=claims_of(mounted, namespace=metadata.namespace),
        opted_out=metadata.labels is not None and is_opted_out(metadata.labels.by_data),
        leave=metadata.annotations.leave if metadata.annotations else None,
    )


def claims_of(mounted: Iterable[str], *, namespace: str) -> tuple[str, ...]:
    """The claims of these names in a pod's namespace, each once, as `namespace/name`."""
    return tuple(dict.fromkeys(f"{namespace}/{name}" for name in mounted if name))


def is_opted_out(label: str | None) -> bool:
    """Whether a pod with this value of the label `tdcs.io/place-by-data` is to be placed without regard to its data."""
    return label == "false"


def with_claims(
    named: Sequence[DatasetReference], *, claims: Iterable[str], datasets: Container[str]
) -> list[DatasetReference]:
    """The datasets that a pod names, and those of the claims that it mounts; what it says of one counts.

    A claim of no Dataset in `datasets` is some other volume.
    """
    annotated = {reference.dataset for reference in named}
    mounted = (claim for claim in claims if claim not in annotated and claim in datasets)
    return [*named, *(DatasetReference(dataset=claim) for claim in mounted)]


def index_of(text: str | None) -> int | None:
    """The completion index of a pod as its annotation or label has it; None for anything else."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


def read_by(references: Sequence[DatasetReference], *, index: int | None) -> list[DatasetReference]:
    """The datasets of a list that the pod with this completion index reads; each copy of a dataset once, though
    several entries name it for this index."""
    read = (reference for reference in references if is_reader(reference.readers, index))
    return list({(reference.dataset, reference.copy): reference for reference in read}.values())


def decode_annotation(*, text: str) -> list[DatasetReference]:
    """The datasets that an annotation names, each once.

    Raises:
        BadAnnotationError: It is no list of datasets, or has more than `MOST_REFERENCES` different entries.
    """
    try:
        references = list(dict.fromkeys(_references.decode(text)))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadAnnotationError(
            f"annotation {names.ANNOTATION_DATASETS} is {text[:200]!r}: {error}; write a JSON list such as "
            '[{"dataset": "namespace/name", "copy": "0"}]'
        ) from error
    if len(references) > MOST_REFERENCES:
        raise BadAnnotationError(
            f"annotation {names.ANNOTATION_DATASETS} has {len(references)} different entries, and {MOST_REFERENCES} "
            "are the most: name only the datasets that this pod reads"
        )
    return references


def nodes_to_leave(text: str, *, now: datetime) -> frozenset[str]:
    """The nodes that a pod with this annotation leaves to larger ones now; raises BadAnnotationError."""
    try:
        leave = _left_nodes.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadAnnotationError(
            f"annotation {names.ANNOTATION_LEAVE_NODES} is {text[:200]!r}: {error}; write such as "
            '{"nodes": ["node-1"], "until": "2026-01-01T00:00:00Z"}'
        ) from error
    return leave.nodes if now < leave.until else frozenset()


def encode_scores(*, scores: Mapping[str, int]) -> bytes:
    """The HostPriorityList for `scores`; kube-scheduler takes hosts that are missing as 0."""
    return _encoder.encode([*map(_HostPriority, scores.keys(), scores.values())])
