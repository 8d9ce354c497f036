"""The project's container images: built when their inputs change, loaded into the nodes that lack them.

An image's tag is a hash of everything its Dockerfile may see, so a name and its tag mean one content forever:
what has the tag needs neither a build nor a load. ``:dev`` follows the newest one.
"""

import concurrent.futures
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tdcs_local import cache, docker, host, programs, shell
from tdcs_local.containers import base_image, image_archive, torch_root
from tdcs_local.errors import LocalError
from tdcs_local.kind import cluster
from tdcs_local.paths import CHECKOUT, log_file
from tdcs_local.progress import Reporter, Step

FOLDER = CHECKOUT / "deploy" / "images"
IGNORED_FOLDERS = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
IGNORED_SUFFIXES = frozenset({".pyc", ".pyo", ".swp"})
KEPT_TAGS = 3
DEV = "dev"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """An image: ``deploy/images/NAME`` is its context, plus what is named here.

    ``files`` maps places in the context to files or folders of the checkout, ``programs`` to files or folders
    of a program, given as ``program/path``. ``everywhere`` is false for an image that only workers run.
    """

    name: str
    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    everywhere: bool = True
    torch: bool = False
    """Whether it starts from the root with PyTorch, not from the base image of all others."""

    @property
    def folder(self) -> Path:
        return FOLDER / self.name


_SPECS = (
    Spec(
        name="tdcs",
        files={
            "operator": "operator",
            "scheduler_plugin": "scheduler_plugin",
            "pyproject.toml": "pyproject.toml",
            "requirements.txt": "locks/runtime.txt",
            "README.md": "README.md",
            "LICENSE": "LICENSE",
        },
    ),
    Spec(name="alluxio", programs={"alluxio/lib": "alluxio/lib", "alluxio/names": "alluxio-names/names"}),
    Spec(name="store", programs={"versitygw/store-gateway": "versitygw/store-gateway"}),
    Spec(
        name="train-tensorflow",
        files={
            "requirements.txt": "locks/train-tensorflow.txt",
            **{name: f"deploy/examples/{name}" for name in ("train_images.py", "train_parameter_server.py")},
            # of tdcs-train what these scripts import: the image, of a gigabyte, is made again for no other change
            **{
                name: f"training/{name}"
                for name in (
                    "tdcs_train/__init__.py",
                    "tdcs_train/environment.py",
                    "tdcs_train/errors.py",
                    "tdcs_train/ps/__init__.py",
                    "tdcs_train/ps/read_order.py",
                    "tdcs_train/ps/tensorflow_reads.py",
                )
            },
        },
        everywhere=False,
    ),
    Spec(
        name="train-pytorch",
        files={
            "tdcs_train": "training/tdcs_train",
            **{
                name: f"deploy/examples/{name}"
                for name in ("train_images_torch.py", "train_parameter_server_torch.py")
            },
        },
        everywhere=False,
        torch=True,
    ),
    Spec(
        name="train-tvm",
        files={
            "tdcs_train": "training/tdcs_train",
            "requirements.txt": "locks/compile.txt",
            **{name: f"deploy/examples/{name}" for name in ("digits_model.py", "score_images.py")},
        },
        everywhere=False,
    ),
    Spec(name="toolbox", everywhere=False),
    Spec(name="s3-mount", everywhere=False),
)
SPECS: Mapping[str, Spec] = {spec.name: spec for spec in _SPECS}


def ensure(names: Sequence[str], *, reporter: Reporter) -> dict[str, str]:
    """Builds and loads images; returns the tag of each: image ``tdcs/NAME:TAG`` is on every node that needs it.

    Raises :class:`LocalError` for an unknown name, a cluster that is not up, a failed build or load.
    """
    with host.engine_in_use():
        return _ensure([spec_of(name) for name in names], reporter)


def _ensure(specs: Sequence[Spec], reporter: Reporter) -> dict[str, str]:
    cluster_name = cluster.name()
    cluster.require_own(cluster_name)
    tags = {spec.name: tag(spec) for spec in specs}
    nodes = cluster.node_names(cluster_name)
    loaded = _loaded(nodes)
    for spec in specs:
        reference = f"tdcs/{spec.name}:{tags[spec.name]}"
        targets = nodes if spec.everywhere else nodes[1:]
        without_image = [node for node in targets if reference not in loaded[node]]
        if not without_image:
            _follow(reference, targets, loaded)
            reporter.say(f"image {reference} is on the nodes already")
            continue
        waiting = functools.partial(reporter.say, f"another process makes the image {spec.name}: waiting")
        with cache.locked(f"image-{spec.name}", on_wait=waiting):
            build(spec, reference=reference, reporter=reporter)
            present = _loaded(without_image)
            without_image = [node for node in without_image if reference not in present[node]]
            if without_image:
                new = not any(
                    name.startswith(f"tdcs/{spec.name}:") for node in without_image for name in present[node]
                )
                with reporter.step(f"load {reference}") as step:
                    _load(reference, without_image, step, keep=new)
    return tags


def build(spec: Spec, *, reference: str, reporter: Reporter) -> None:
    """Builds an image under its content's name unless the engine has it. The caller holds the image's lock."""
    if docker.image_id(reference):
        return
    ensure_base = torch_root.ensure_image if spec.torch else base_image.ensure
    base = ensure_base(reporter=reporter)
    with tempfile.TemporaryDirectory(prefix="tdcs-image-") as scratch:
        context = Path(scratch)
        write_context(spec, folder=context, reporter=reporter)
        with reporter.step(f"build {reference}") as step:
            _build(context, reference=reference, name=spec.name, base=base, step=step)
    _forget_old(spec.name, keep=reference)


def write_context(spec: Spec, *, folder: Path, reporter: Reporter) -> None:
    """Puts copies of all that the image's Dockerfile needs into a folder, and the Dockerfile itself."""
    for program in _programs(spec):
        programs.ensure(program, reporter=reporter)
    for place, source in _inputs(spec):
        _place(source, folder / place)


def _build(context: Path, *, reference: str, name: str, base: str, step: Step) -> None:
    log = docker.build_log(reference)
    log.unlink(missing_ok=True)
    step.detail = lambda: _last_step(shell.tail(log, lines=40))
    docker.build(
        context,
        reference=reference,
        tags=[f"tdcs/{name}:{DEV}"],
        arguments={"BASE_IMAGE": base},
    )


def tag(spec: Spec) -> str:
    """The hash of all that the image is made of."""
    parts: list[str | bytes] = [torch_root.reference() if spec.torch else base_image.reference()]
    for name in _programs(spec):
        parts += [name, programs.PROGRAMS[name].key()]
    for place, source in sorted(_inputs(spec, with_programs=False)):
        files = list(context_files(source))
        root = source if source.is_dir() else source.parent
        parts += [place, cache.files_digest(root, files)]
    parts.append(repr(sorted(spec.programs.items())))
    return cache.digest(parts)[:12]


def context_files(source: Path) -> Iterable[Path]:
    """The files of a context's part that count: no caches, nothing an editor left."""
    if source.is_file():
        yield source
        return
    for folder, folders, files in os.walk(source):
        folders[:] = [f for f in folders if f not in IGNORED_FOLDERS and not f.endswith(".egg-info")]
        for name in files:
            if Path(name).suffix not in IGNORED_SUFFIXES:
                yield Path(folder) / name


def spec_of(name: str) -> Spec:
    """The image of that name, if the checkout has all of its sources."""
    if name not in SPECS:
        raise LocalError(what=f"there is no image {name!r}", remedy=f"one of {', '.join(SPECS)}")
    spec = SPECS[name]
    missing = [str(source) for _, source in _inputs(spec, with_programs=False) if not source.exists()]
    if missing or not (spec.folder / "Dockerfile").exists():
        absent = ", ".join(missing) or str(spec.folder / "Dockerfile")
        raise LocalError(what=f"the image {name} cannot be built", why=f"the checkout lacks {absent}")
    return spec


def _programs(spec: Spec) -> list[str]:
    return sorted({path.partition("/")[0] for path in spec.programs.values()})


def _inputs(spec: Spec, *, with_programs: bool = True) -> list[tuple[str, Path]]:
    """Where each part of a context goes, and where it comes from."""
    inputs = [(".", spec.folder), *((place, CHECKOUT / path) for place, path in spec.files.items())]
    if with_programs:
        for place, path in spec.programs.items():
            program, _, path_in_program = path.partition("/")
            inputs.append((place, programs.ensure(program) / path_in_program))
    return inputs


def _place(source: Path, target: Path) -> None:
    """Copies a file or a folder into a context. No links: a context may be edited, the checkout must not change."""
    root = source if source.is_dir() else source.parent
    for file in context_files(source):
        goal = target / file.relative_to(root) if source.is_dir() else target
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, goal)


def _loaded(nodes: Sequence[str]) -> dict[str, dict[str, str]]:
    """The project's images on each node: the digest of each ``tdcs/NAME:TAG``."""
    images_by_node: dict[str, dict[str, str]] = {}
    for node in nodes:
        listed = shell.capture([*_ctr(node, "images"), "ls"], what=f"listing the images on {node} failed")
        images_by_node[node] = dict(
            re.findall(r"^docker\.io/(tdcs/\S+)\s+\S+\s+(sha256:\S+)", listed, re.MULTILINE)
        )
    return images_by_node


def _ctr(node: str, command: str) -> list[str]:
    return ["docker", "exec", node, "ctr", "--namespace=k8s.io", command]


def _follow(reference: str, nodes: Sequence[str], loaded: Mapping[str, Mapping[str, str]]) -> None:
    """Makes ``:dev`` mean this content on nodes that have it, as after a change was taken back."""
    newest = f"{reference.partition(':')[0]}:{DEV}"
    for node in nodes:
        if loaded[node].get(newest) != loaded[node][reference]:
            names = [f"docker.io/{name}" for name in (reference, newest)]
            shell.capture(
                [*_ctr(node, "images"), "tag", "--force", *names], what=f"naming {newest} on {node} failed"
            )


def _load(reference: str, nodes: Sequence[str], step: Step, *, keep: bool) -> None:
    """Gives an image to nodes: laid once into the folder they all see, without layers they all have.

    ``keep``: for the next new cluster, for these nodes have no other version of it.
    """
    name, _, content = reference.partition(":")
    stem = name.replace("/", "-")
    log = log_file(f"load-{stem}")
    log.unlink(missing_ok=True)
    failure = f"loading {reference} into the nodes failed"
    cluster.TRANSFER.mkdir(parents=True, exist_ok=True)
    for leftover in cluster.TRANSFER.glob(f"{stem}-*.tar"):
        leftover.unlink()  # of a run that was killed
    laid = cluster.TRANSFER / f"{stem}-{content}.tar"
    done: list[str] = []

    def load(node: str) -> None:
        inside = f"{cluster.NODE_TRANSFER}/{laid.name}"
        shell.run([*_ctr(node, "images"), "import", inside], what=f"{failure} (on {node})", log=log)
        tag = [*_ctr(node, "images"), "tag", "--force", f"docker.io/{reference}", f"docker.io/{name}:{DEV}"]
        shell.run(tag, what=f"{failure} (on {node})", log=log)
        done.append(node)

    try:
        _lay(reference, nodes, laid, keep=keep, step=step, log=log)
        step.detail = lambda: f"{len(done)} of {len(nodes)} nodes"
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(load, nodes))
        step.result = f"{laid.stat().st_size / 1e6:.0f} MB to {len(nodes)} nodes"
    except OSError as error:
        raise LocalError(what=failure, why=str(error), remedy=f"see that {laid.parent} has room") from error
    finally:
        laid.unlink(missing_ok=True)


def _lay(reference: str, nodes: Sequence[str], laid: Path, *, keep: bool, step: Step, log: Path) -> None:
    """Writes the image as an archive without the layers that all of the nodes have.

    To have a gigabyte from docker takes as long as to give it to a node, so that what a new cluster needs is kept.
    """
    present = _blobs(nodes).intersection(docker.layers(reference))

    def write(folder: Path) -> None:
        step.detail = "reading it from docker"
        saved = folder / f"{laid.stem}-saved.tar"
        try:
            shell.run(
                ["docker", "save", "--output", saved, reference],
                what=f"reading {reference} from docker failed",
                log=log,
            )
            name = f"docker.io/{reference}"
            image_archive.write_delta(saved, folder / laid.name, name=name, present=present)
        finally:
            saved.unlink(missing_ok=True)

    if not keep:
        write(laid.parent)
        return
    key = cache.digest([reference, docker.image_id(reference), *sorted(present)])
    stem = reference.partition(":")[0].replace("/", "-")
    cache.link_or_copy(cache.product(f"archive-{stem}", key, write, keep=1) / laid.name, laid)


def _blobs(nodes: Sequence[str]) -> frozenset[str]:
    """The blobs that all of the nodes have."""
    sets = [
        set(
            shell.capture(
                [*_ctr(node, "content"), "ls", "--quiet"], what=f"listing the blobs on {node} failed"
            ).split()
        )
        for node in nodes
    ]
    return frozenset(set.intersection(*sets)) if sets else frozenset()


def _forget_old(name: str, *, keep: str) -> None:
    """Drops the oldest builds of an image from the engine; nodes keep what they have."""
    listed = shell.capture(["docker", "image", "ls", "--format", "{{.Tag}}", f"tdcs/{name}"]).split()
    tags = [tag for tag in listed if tag not in {DEV, "<none>", keep.partition(":")[2]}]  # newest first
    for old in tags[KEPT_TAGS - 1 :]:
        shell.succeeds(["docker", "image", "rm", f"tdcs/{name}:{old}"])


def _last_step(text: str) -> str:
    steps = re.findall(r"^Step \d+/\d+ : .{0,60}", text, re.MULTILINE)
    return steps[-1] if steps else ""
