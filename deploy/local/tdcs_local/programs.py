"""The programs of the local cluster and the test tiers, built from pinned Go modules, Maven artifacts and npm packages.

``ensure("etcd")`` is a folder with ``etcd`` and ``etcdctl`` in it: from the cache, or built now. A program's
key is made of its inputs in the repository (``deploy/local/go/NAME``, the pom) and the flags below; the
compiler's version is not part of it, so a machine that has the program needs no compiler.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tdcs_local import alluxio_jars, cache, host, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import LOCAL, log_file
from tdcs_local.progress import Reporter, Step

KUBERNETES_VARIABLE = "TDCS_KUBERNETES"
"""Names the release of Kubernetes that is built and run, "1.33", where it is not the default one."""
OLDEST_GO = (1, 26)
"""The compiler that all of ``deploy/local/go/*/go.mod`` are content with (etcd asks for the newest)."""
OLDEST_GO_TEXT = ".".join(map(str, OLDEST_GO))
FETCHING_GO = (1, 21)
"""From it on, Go fetches the toolchain that a go.mod asks for by itself, unless GOTOOLCHAIN forbids it."""


def go_folder(name: str) -> Path:
    """The folder of a pinned Go module."""
    return LOCAL / "go" / name


def kubernetes_gomod(*, env: Mapping[str, str] = os.environ) -> Path:
    """The go.mod with the release of Kubernetes that the environment asks for, from the folder of its Go module.

    Raises :class:`LocalError` for a release that is not pinned in ``deploy/local/go/kubernetes``.
    """
    folder = go_folder("kubernetes")
    release = env.get(KUBERNETES_VARIABLE, "")
    gomod = folder / "go.mod"
    default = ".".join(_kubernetes_version(gomod).removeprefix("v").split(".")[:2])
    if release in {"", default}:
        return gomod
    pinned = {path.stem: path for path in sorted((folder / "versions").glob("*.mod"))}
    if release not in pinned:
        raise LocalError(
            what=f"Kubernetes {release} cannot be built",
            why=f"the environment variable {KUBERNETES_VARIABLE} names it, and no go.mod here pins it",
            remedy=f"name one of {', '.join(sorted([default, *pinned]))}, or unset {KUBERNETES_VARIABLE}",
        )
    return pinned[release]


def _kubernetes_version(gomod: Path) -> str:
    return _match(r"^\s*k8s\.io/kubernetes (v\S+)$", gomod.read_text())


def _match(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else ""


_KUBERNETES_GOMOD = kubernetes_gomod()
KUBERNETES_VERSION = _kubernetes_version(_KUBERNETES_GOMOD)


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """A pinned Go module below ``deploy/local/go`` and what to build of it.

    ``packages`` maps an import path to the name of the program; ``links`` are further names of a program;
    ``gomod`` is the file that pins the modules, when it is not the folder's ``go.mod``.
    """

    name: str
    packages: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    gomod: Path | None = None
    tags: str = ""
    ldflags: str = "-s -w"

    @property
    def folder(self) -> Path:
        return go_folder(self.name)

    @property
    def pins(self) -> Path:
        return self.gomod or self.folder / "go.mod"

    def key(self) -> str:
        gomod = self.pins
        files = [*self.folder.rglob("*.go"), *(f for f in (gomod, gomod.with_suffix(".sum")) if f.exists())]
        recipe = [
            repr(sorted(self.packages.items())),
            repr(sorted(self.links.items())),
            self.tags,
            self.ldflags,
        ]
        return cache.digest([cache.files_digest(self.folder, files), *recipe])

    def build(self, scratch: Path, log: Path, step: Step) -> None:
        require_go(self.name)
        command = ["go", "build", "-v", "-trimpath", f"-modfile={self.pins}"]
        if self.tags:
            command += ["-tags", self.tags]
        command += ["-ldflags", self.ldflags, "-o", f"{scratch}/", *self.packages]
        step.detail = lambda: f"{_lines(log)} packages compiled"
        shell.run(
            command,
            what=f"building {self.name} with go failed",
            log=log,
            cwd=self.folder,
            env={"GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"},
            fetches=True,
            remedy="if a module could not be fetched, check GOPROXY (`go env GOPROXY`) and run again: "
            "what is compiled already stays in Go's build cache",
        )
        for package, program in self.packages.items():
            built = scratch / go_program_name(package, module=_module(self.pins))
            if built.name != program:
                built.rename(scratch / program)
        for link, program in self.links.items():
            os.link(scratch / program, scratch / link)


@dataclass(frozen=True, kw_only=True)
class MavenJars:
    """The runtime dependencies of a pom below ``deploy/local``, as ``lib/*.jar``, and a list of their coordinates."""

    name: str

    @property
    def pom(self) -> Path:
        return LOCAL / self.name / "pom.xml"

    def key(self) -> str:
        return cache.digest(
            [cache.files_digest(self.pom.parent, [self.pom]), "slim", alluxio_jars.COORDINATES]
        )

    def build(self, scratch: Path, log: Path, step: Step) -> None:
        lib = scratch / "lib"
        step.detail = lambda: f"{len(list(lib.glob('*.jar')))} jars"
        shell.run(
            [
                # -U: a failed try is not remembered
                *("mvn", "-B", "-U", "-ntp", "-f", self.pom),
                *("dependency:copy-dependencies", f"-DoutputDirectory={lib}", "-DincludeScope=runtime"),
                *("dependency:list", f"-DoutputFile={lib / alluxio_jars.COORDINATES}"),
            ],
            what=f"fetching {self.name} with Maven failed",
            log=log,
            fetches=True,
            remedy="check that Maven reaches its repository (~/.m2/settings.xml, MAVEN_OPTS) and that "
            "`mvn -version` shows a JDK, then run again: what is fetched already stays in ~/.m2",
        )
        if not any(lib.glob("*.jar")):
            raise LocalError(
                what=f"{self.name}: Maven fetched no jar at all", log=log, remedy=f"check {self.pom}"
            )
        step.detail = "dropping the native libraries of other systems"
        alluxio_jars.finish(lib=lib)


@dataclass(frozen=True, kw_only=True)
class NpmProgram:
    """The packages that a lock below ``deploy/local/npm`` pins, with their programs as ``node_modules/.bin/NAME``."""

    name: str

    @property
    def folder(self) -> Path:
        return LOCAL / "npm" / self.name

    def key(self) -> str:
        return cache.digest([cache.files_digest(self.folder, list(self.folder.glob("package*.json")))])

    def build(self, scratch: Path, log: Path, step: Step) -> None:
        for file in self.folder.glob("package*.json"):
            shutil.copy(file, scratch)
        step.detail = "fetching packages"
        shell.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            what=f"fetching {self.name} with npm failed",
            log=log,
            cwd=scratch,
            fetches=True,
            remedy="check that npm reaches its registry (`npm config get registry`, `npm ping`), then run again",
        )


@dataclass(frozen=True, kw_only=True)
class JavaJar:
    """A jar of our own, ``names/NAME.jar``, compiled against the jars of another program."""

    name: str
    sources: Path
    against: str

    def key(self) -> str:
        files = [file for file in self.sources.rglob("*") if file.is_file()]
        return cache.digest([cache.files_digest(self.sources, files), PROGRAMS[self.against].key()])

    def build(self, scratch: Path, log: Path, step: Step) -> None:
        lib = ensure(self.against) / "lib"
        step.detail = "compiling"
        classes = scratch / "classes"
        shutil.copytree(self.sources, classes, ignore=shutil.ignore_patterns("*.java"))
        jar = scratch / "names" / f"{self.name}.jar"
        jar.parent.mkdir()
        compiler: list[str | Path] = [
            *("javac", "--release", "11", "-encoding", "UTF-8", "-cp", f"{lib}/*", "-d", classes),
            *sorted(self.sources.rglob("*.java")),
        ]
        packer: list[str | Path] = ["jar", "--create", "--file", jar, "-C", classes, "."]
        for command in (compiler, packer):
            remedy = f"see the log; {self.sources} must fit the jars in {lib}"
            shell.run(command, what=f"compiling {self.name} failed", log=log, remedy=remedy)
        shutil.rmtree(classes)


Program = GoProgram | MavenJars | NpmProgram | JavaJar


def _version_flags() -> str:
    """kubeadm compares versions, so the binaries carry theirs; the rest is fixed so that builds repeat."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {p}.{k}={v}" for p in packages for k, v in values.items())])


def _helm_flags() -> str:
    """helm takes the Kubernetes version that it assumes without a cluster from its build."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {"internal/version.version": "v3.20.2", "internal/version.gitTreeState": "clean"}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return " ".join(["-s -w", *(f"-X helm.sh/helm/v3/{name}={value}" for name, value in values.items())])


_CNI = "github.com/containernetworking/plugins/plugins"
_PROGRAMS: tuple[Program, ...] = (
    GoProgram(
        name="kubernetes",
        packages={
            "./control-plane": "control-plane",
            "k8s.io/kubernetes/cmd/kube-proxy": "kube-proxy",
            "k8s.io/kubernetes/cmd/kubelet": "kubelet",
            "k8s.io/kubernetes/cmd/kubeadm": "kubeadm",
            "k8s.io/kubernetes/cmd/kubectl": "kubectl",
        },
        links=dict.fromkeys(("kube-apiserver", "kube-controller-manager", "kube-scheduler"), "control-plane"),
        tags="selinux,notest,grpcnotrace",
        gomod=_KUBERNETES_GOMOD,
        ldflags=_version_flags(),
    ),
    GoProgram(
        name="etcd",
        packages={"go.etcd.io/etcd/server/v3": "etcd", "go.etcd.io/etcd/etcdctl/v3": "etcdctl"},
    ),
    GoProgram(name="kwok", packages={"sigs.k8s.io/kwok/cmd/kwok": "kwok", "./stages": "kwok-stages"}),
    GoProgram(name="kind", packages={"sigs.k8s.io/kind": "kind"}),
    GoProgram(
        name="helm",
        packages={"helm.sh/helm/v3/cmd/helm": "helm"},
        ldflags=_helm_flags(),
    ),
    GoProgram(name="coredns", packages={".": "coredns"}),
    GoProgram(name="kueue", packages={"sigs.k8s.io/kueue/cmd/kueue": "kueue"}),
    GoProgram(name="jobset", packages={"sigs.k8s.io/jobset": "jobset"}),
    GoProgram(
        name="trainer",
        packages={"github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager": "trainer"},
    ),
    GoProgram(
        name="prometheus-adapter",
        packages={"sigs.k8s.io/prometheus-adapter/cmd/adapter": "prometheus-adapter"},
    ),
    GoProgram(
        name="cni",
        packages={
            f"{_CNI}/main/ptp": "ptp",
            f"{_CNI}/main/loopback": "loopback",
            f"{_CNI}/ipam/host-local": "host-local",
            f"{_CNI}/meta/portmap": "portmap",
        },
    ),
    GoProgram(name="network-policies", packages={".": "network-policies"}),
    GoProgram(
        name="local-path-provisioner",
        packages={"github.com/rancher/local-path-provisioner": "local-path-provisioner"},
    ),
    GoProgram(name="pause", packages={".": "pause"}),
    GoProgram(
        name="versitygw",
        packages={
            "github.com/versity/versitygw/cmd/versitygw": "versitygw",
            "./store-gateway": "store-gateway",
        },
    ),
    GoProgram(
        name="fake-gcs-server",
        packages={"github.com/fsouza/fake-gcs-server": "fake-gcs-server"},
    ),
    NpmProgram(name="azurite"),
    NpmProgram(name="svg-term"),
    MavenJars(name="alluxio"),
    MavenJars(name="alluxio-job"),
    JavaJar(name="alluxio-names", sources=LOCAL / "alluxio" / "names", against="alluxio"),
)
PROGRAMS: Mapping[str, Program] = {program.name: program for program in _PROGRAMS}


def ensure(name: str, *, reporter: Reporter | None = None) -> Path:
    """The folder with the files of program ``name``, built now if the cache has none of these inputs.

    Safe to call from several processes at once. Raises :class:`LocalError` (unknown name, missing or old
    compiler, failed build, full disk).
    """
    if name not in PROGRAMS:
        names = ", ".join(sorted(PROGRAMS))
        raise LocalError(what=f"there is no program {name!r}", remedy=f"one of {names}")
    program = PROGRAMS[name]
    reporter = reporter or Reporter()

    def build(scratch: Path) -> None:
        log = log_file(f"product-{name}")
        log.unlink(missing_ok=True)
        if isinstance(program, MavenJars):
            host.require_programs("mvn", "java", reporter=reporter)
        if isinstance(program, NpmProgram):
            host.require_programs("npm", "node", reporter=reporter)
        if isinstance(program, JavaJar):
            host.require_programs("javac", reporter=reporter)
        with reporter.step(f"build {name}") as step:
            program.build(scratch, log, step)

    return cache.product(
        name,
        program.key(),
        build,
        on_wait=lambda: reporter.say(f"another process is building {name}: waiting"),
    )


def cached(name: str) -> Path | None:
    """The folder of program ``name`` where it has been built; None where :func:`ensure` would build it."""
    folder = cache.product_folder(name, PROGRAMS[name].key())
    return folder if folder.is_dir() else None


def require_go(name: str) -> None:
    """Raises :class:`LocalError` unless Go is installed and can build the program of that name."""
    remedy = f"install Go {OLDEST_GO_TEXT} or newer (https://go.dev/doc/install) and put it on PATH, then run again"
    if shutil.which("go") is None:
        raise LocalError(what=f"Go is not installed; {name} is built with it", remedy=remedy)
    settings = ["go", "env", "GOVERSION", "GOTOOLCHAIN"]
    words = shell.capture(settings, what=f"`{' '.join(settings)}` failed", remedy=remedy).split()
    if not go_suffices(version=words[0], toolchain=words[1] if words[1:] else ""):
        raise LocalError(what=f"{words[0]} is too old to build {name}", remedy=remedy)


def go_suffices(*, version: str, toolchain: str) -> bool:
    """Whether a Go of that version, with that GOTOOLCHAIN, can build everything here."""
    numbers = version_tuple(version)
    return numbers >= OLDEST_GO or (numbers >= FETCHING_GO and toolchain not in {"local", "path"})


def version_tuple(text: str) -> tuple[int, ...]:
    """``go1.26.8`` -> (1, 26, 8); what is no number ends it (``go1.27rc1`` -> (1, 27))."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def go_program_name(package: str, *, module: str) -> str:
    """The file that ``go build`` makes of a main package: its last path element that is no major version."""
    path = module if package == "." else package
    elements = [e for e in path.split("/") if not re.fullmatch(r"v\d+", e)]
    return elements[-1]


def _module(gomod: Path) -> str:
    return _match(r"^module (\S+)$", gomod.read_text())


def _lines(log: Path) -> int:
    try:
        return log.read_bytes().count(b"\n")
    except OSError:
        return 0
