"""Which of the artifacts at hand a node takes: pure decisions over manifests."""

from collections.abc import Iterable, Sequence

import msgspec

from tdcs_train.artifacts.manifest import Manifest, RuntimeSpec
from tdcs_train.artifacts.node import Node
from tdcs_train.artifacts.targets import TARGETS


def refusal(manifest: Manifest, node: Node) -> str | None:
    """Why this node cannot run this artifact; None if it can."""
    if manifest.runtime is not msgspec.UNSET and manifest.runtime.name == "triton":
        return "it is a cache of Triton's kernels, and no model: restore it with `tdcs-train triton restore`"
    if node.machine != "x86_64":
        return f"it is for {manifest.target}, this node is {node.machine}"
    features_by_target = {target.name: target.features for target in TARGETS}
    if manifest.target not in features_by_target:
        return f"its target {manifest.target} is not known here"
    if missing := sorted((features_by_target[manifest.target] | set(manifest.features)) - node.features):
        return f"it is for {manifest.target}, and this node lacks {', '.join(missing)}"
    if manifest.runtime is not msgspec.UNSET:
        return _other_runtime(manifest.runtime, node)
    if node.tvm is None:
        return f"it needs TVM {manifest.tvm}, which is not installed: pip install apache-tvm=={manifest.tvm}"
    if manifest.tvm != node.tvm:
        return f"it was made with TVM {manifest.tvm}, this node has {node.tvm}"
    for library in manifest.libraries:
        if not node.has_library(library.soname):
            return f"it needs {library.soname}, which is not on this node: install the Debian package {library.package}"
    return None


def _other_runtime(runtime: RuntimeSpec, node: Node) -> str | None:
    runtimes = {"onnxruntime": ("ONNX Runtime", node.onnxruntime), "openvino": ("OpenVINO", node.openvino)}
    if runtime.name not in runtimes:
        return f"it is for {runtime.name}, which is not known here"
    title, version = runtimes[runtime.name]
    if version is None:
        wanted = f"{runtime.name}=={runtime.version}"
        return f"it needs {title} {runtime.version}, which is not installed: pip install {wanted}"
    if version != runtime.version:
        return f"it was made with {title} {runtime.version}, this node has {version}"
    return None


def is_of_model(manifest: Manifest, model: str, digest: str | None = None) -> bool:
    """Whether an artifact is of the model that was asked for, by its name, by its digest or by that of a model file."""
    if digest is not None:
        return manifest.model.digest == digest
    return model in {manifest.model.name, manifest.model.digest, f"sha256:{manifest.model.digest}"}


def by_preference(manifests: Iterable[Manifest], prefer: Sequence[str]) -> list[Manifest]:
    """Manifests in the order in which to try them: first by the best preferred back end that has a region, or runtime,
    TVM before others, then by the target's level, and of equal ones by what tuning gained. Without a preferred back end
    an artifact comes last."""
    levels = {target.name: target.level for target in TARGETS}

    def rank(manifest: Manifest) -> tuple[int, bool, int, float, str]:
        backends = {region.backend for region in manifest.regions}
        if manifest.runtime is not msgspec.UNSET:
            backends.add(manifest.runtime.name)
        place = min((place for place, name in enumerate(prefer) if name in backends), default=len(prefer))
        is_other = manifest.runtime is not msgspec.UNSET
        gain = 1.0 if manifest.tuning is msgspec.UNSET else max(manifest.tuning.gain, 1.0)
        return place, is_other, -levels.get(manifest.target, 0), -gain, manifest.key

    return sorted(manifests, key=rank)
