"""Which model and which dataset a job of a trace trains on. Synthetic: no public trace says so.

The mapping is drawn from a seed and stated here in full, so that it can be argued with.

- Jobs of one tenant with the same number of GPUs, each submitted at most ten minutes after the one before,
  are a *burst* (a sweep): one draw for all of them.
- A burst draws its kind by the mix, a model of the kind evenly, and a dataset of the kind by weight.
- Every tenant has its own copy of each dataset in the store: sharing is within a tenant, never
  across tenants. `sharing` widens it to all tenants or narrows it to versions within a tenant.
- A job's duration in the trace is its time when data never lacks, so it reads duration times demand bytes.

Demands per GPU of image models: V100 with 3 CPUs per GPU, as measured for Synergy (OSDI 2022) times
114,660 bytes per image (MLPerf Storage). Language and speech models "need about 0 to few" MB/s
there; their numbers and the sizes of their datasets are assumptions, marked (A).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tdcs_labs.trace import TraceJob

MB = 1e6
GB = 1e9
TB = 1e12

#: Seconds between submissions of a tenant that still belong to one burst.
BURST_GAP = 600.0


class Kind(StrEnum):
    """What a job learns from."""

    IMAGE = "image"
    LANGUAGE = "language"
    SPEECH = "speech"


class Sharing(StrEnum):
    """Who reads the same bytes."""

    ALL = "all"
    """All tenants read one copy of each dataset."""
    TENANT = "tenant"
    """Every tenant has its own copy."""
    VERSIONS = "versions"
    """Every tenant has three versions of its copy; a burst reads one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model and the bytes per second that one GPU takes of its data."""

    name: str
    kind: Kind
    rate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """A dataset as published: its bytes, the size of its objects in the store, and how often it is chosen."""

    name: str
    kind: Kind
    size_bytes: float
    object_bytes: float
    weight: float


MODELS = (
    Model(name="resnet50", kind=Kind.IMAGE, rate=75 * MB),
    Model(name="resnet18", kind=Kind.IMAGE, rate=92 * MB),
    Model(name="alexnet", kind=Kind.IMAGE, rate=98 * MB),
    Model(name="mobilenet", kind=Kind.IMAGE, rate=83 * MB),
    Model(name="shufflenet", kind=Kind.IMAGE, rate=95 * MB),
    Model(name="bert", kind=Kind.LANGUAGE, rate=1 * MB),  # (A)
    Model(name="gnmt", kind=Kind.LANGUAGE, rate=1 * MB),  # (A)
    Model(name="transformer", kind=Kind.LANGUAGE, rate=2 * MB),  # (A)
    Model(name="lstm", kind=Kind.LANGUAGE, rate=3 * MB),  # (A)
    Model(name="deepspeech", kind=Kind.SPEECH, rate=10 * MB),  # (A)
)

CORPORA = (
    Corpus(name="imagenet-1k", kind=Kind.IMAGE, size_bytes=146.9 * GB, object_bytes=114_660, weight=6),
    Corpus(name="openimages", kind=Kind.IMAGE, size_bytes=0.55 * TB, object_bytes=290_000, weight=3),
    Corpus(name="imagenet-22k", kind=Kind.IMAGE, size_bytes=1.36 * TB, object_bytes=96_000, weight=1),
    Corpus(name="text-small", kind=Kind.LANGUAGE, size_bytes=20 * GB, object_bytes=64 * MB, weight=1),  # (A)
    Corpus(name="text-large", kind=Kind.LANGUAGE, size_bytes=40 * GB, object_bytes=64 * MB, weight=1),  # (A)
    Corpus(name="audio-small", kind=Kind.SPEECH, size_bytes=0.3 * TB, object_bytes=0.5 * MB, weight=1),  # (A)
    Corpus(name="audio-large", kind=Kind.SPEECH, size_bytes=1.0 * TB, object_bytes=0.5 * MB, weight=1),  # (A)
)

#: Shares of image, language and speech bursts.
MIXES = {"image": (60, 30, 10), "balanced": (30, 60, 10), "language": (20, 70, 10)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A dataset in the store."""

    name: str
    size_bytes: float
    object_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkItem:
    """A job of the trace with its model and dataset."""

    job: TraceJob
    model: Model
    dataset: Dataset


def assign_work(
    *, jobs: Sequence[TraceJob], mix: str = "image", seed: int = 1, sharing: Sharing = Sharing.TENANT
) -> list[WorkItem]:
    """Give each job a model and a dataset; the same trace, mix and seed give the same work.

    A burst's draw depends on its tenant and its number within the tenant only, so a prefix of a
    trace gets the same work as the whole.
    """
    shares = MIXES[mix]
    datasets: dict[str, Dataset] = {}
    open_bursts: dict[tuple[str, int], tuple[float, Model, Dataset]] = {}
    numbers: dict[str, int] = {}
    items: list[WorkItem] = []
    for job in jobs:
        key = (job.tenant, job.gpus)
        burst = open_bursts.get(key)
        if burst is None or job.submitted - burst[0] > BURST_GAP:
            number = numbers[job.tenant] = numbers.get(job.tenant, -1) + 1
            draw = random.Random(f"{seed}/{job.tenant}/{number}")  # noqa: S311  (a simulation, no secret)
            kind = draw.choices(list(Kind), weights=shares)[0]
            model = draw.choice([model for model in MODELS if model.kind is kind])
            choices = [corpus_choice for corpus_choice in CORPORA if corpus_choice.kind is kind]
            corpus = draw.choices(choices, weights=[corpus_choice.weight for corpus_choice in choices])[0]
            name = _dataset_name(tenant=job.tenant, corpus=corpus, sharing=sharing, version=draw.randrange(3))
            dataset = datasets.setdefault(
                name, Dataset(name=name, size_bytes=corpus.size_bytes, object_bytes=corpus.object_bytes)
            )
        else:
            _, model, dataset = burst
        open_bursts[key] = (job.submitted, model, dataset)
        items.append(WorkItem(job=job, model=model, dataset=dataset))
    return items


def _dataset_name(*, tenant: str, corpus: Corpus, sharing: Sharing, version: int) -> str:
    match sharing:
        case Sharing.ALL:
            return corpus.name
        case Sharing.TENANT:
            return f"{tenant}/{corpus.name}"
        case Sharing.VERSIONS:
            return f"{tenant}/{corpus.name}-v{version}"
