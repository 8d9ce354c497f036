"""The manifest of an artifact: what it is, what it needs, and the digests of its files and of itself.

The digests find damage, not malice: an artifact is code, and who may write it may run in the pods that load it.
"""

import hashlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tdcs_train.errors import InputError

FORMAT = 1
FILE = "manifest.json"

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Count = Annotated[int, Meta(ge=0)]


class ArtifactError(InputError):
    """An artifact that cannot be used; the message says why."""


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An input or output of the model; dimensions that are known only at run time are null."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


class BoundSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An input whose values are indices: from -size to size - 1."""

    input: str
    size: int


class GuardSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operator that chooses by indices which may be computed; null for sizes that are known only at run time."""

    operator: str
    sizes: tuple[int | None, ...]


class RegionSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A region: its symbol, the back end it was given to, the kinds of its nodes, and its weights in order."""

    symbol: str
    backend: str
    nodes: tuple[str, ...]
    weights: tuple[str, ...] = ()
    binds_weights: bool = False


class LibrarySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A shared library that must be on the node, and the Debian package that has it."""

    soname: str
    package: str


class FileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of the artifact beside the manifest."""

    name: FileName
    bytes: Count
    sha256: Digest


class BackendSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A back end that was asked for, and its version."""

    name: str
    version: str


class RefusalSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A match that a back end's check refused, and why."""

    backend: str
    row: str
    reason: str


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The model: a name for people, what the command was given, and the digest of graph and weights."""

    name: str
    source: str
    digest: Digest


class RuntimeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A package beside TVM that runs an artifact, and the version that made it."""

    name: str
    version: str


class TuningSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What tuning gave.

    Attributes:
        minutes: that were given to it.
        trials: that this compilation made; it began with those of earlier ones.
        parts: of the model that have a tuned schedule.
        untuned_milliseconds: of a run of the model without; measured in turns with the tuned one.
        gain: how many times as fast the tuned code is; the library has the untuned code where that is less than 1.
        records: the best record of each part; `--records` takes the file.
    """

    minutes: float
    trials: Count
    earlier_trials: Count
    parts: Count
    untuned_milliseconds: float
    tuned_milliseconds: float
    gain: float
    records: FileSpec


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an artifact is.

    Attributes:
        key: what it was made from; two artifacts of one key are interchangeable.
        tools: the versions of the C++ compiler, of the libraries of back ends and of this package's compiler.
        features: the CPU features that its code uses, as /proc/cpuinfo names them.
        guards: if any, the library's function has one output more, with a number for each: not 0 says that one of its
            indices was outside of its table.
        regions: what was given to back ends; `host` lists the operators that TVM's own code computes.
        seconds: how long each step of compiling took.
        runtime: what runs it; left out where that is TVM, whose version `tvm` has.
        tuning: what tuning gave; left out where TVM's code was not tuned.
        library: the code, or the model as its runtime reads it.
        parameters: the weights; the same file as `library` where the runtime has both in one.
        digest: the digest of all other fields.
    """

    format: int
    key: str
    model: ModelSpec
    target: str
    features: tuple[str, ...]
    tvm: str
    tools: dict[str, str]
    backends: tuple[BackendSpec, ...]
    options: dict[str, Any]
    libraries: tuple[LibrarySpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    bounds: tuple[BoundSpec, ...] = ()
    guards: tuple[GuardSpec, ...] = ()
    weights: tuple[str, ...]
    regions: tuple[RegionSpec, ...]
    host: tuple[str, ...]
    refusals: tuple[RefusalSpec, ...]
    library: FileSpec
    parameters: FileSpec
    seconds: dict[str, float]
    digest: str = ""
    runtime: RuntimeSpec | msgspec.UnsetType = msgspec.UNSET
    tuning: TuningSpec | msgspec.UnsetType = msgspec.UNSET


def command_line(
    *, model: str, target: str, backends: tuple[str, ...], output: str, name: str | None = None
) -> str:
    """The command that compiles a model for a target; `name` is the one to give it, if it is not the file's."""
    backend_options = "".join(f" --backend {backend}" for backend in backends)
    name_option = f" --name {name}" if name else ""
    return f"tdcs-train compile {model}{name_option} --target {target}{backend_options} -o {output}"


def encode(manifest: Manifest) -> bytes:
    """The bytes of the manifest's file: sorted JSON with the digest of all other fields."""
    return _canonical(sealed(manifest))


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with the digest of its other fields."""
    return msgspec.structs.replace(manifest, digest=_digest(manifest))


def decode(content: bytes) -> Manifest:
    """The manifest from its file's bytes.

    Raises:
        ArtifactError: it is no manifest, was damaged, or has a format that this version does not know.
    """
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"{FILE} is not a manifest of format {FORMAT}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{FILE} is no JSON: {error}") from error
    if manifest.digest != _digest(manifest) or content != _canonical(manifest):
        raise ArtifactError(
            f"{FILE} was damaged or edited: its content does not have the digest that it names"
        )
    if manifest.format != FORMAT:
        raise ArtifactError(
            f"{FILE} has the format {manifest.format}; this version reads {FORMAT}: compile the model again"
        )
    return manifest


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(_canonical(msgspec.structs.replace(manifest, digest=""))).hexdigest()


def _canonical(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n"
