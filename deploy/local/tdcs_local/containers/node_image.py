"""The image that a node of the local cluster runs: a Debian root, Kubernetes' programs, and the images a node needs.

Two of them: workers do without the images of the control plane. Where a registry has kind's own node image, that is
pulled and no Kubernetes is built: one image for every role, with its own pod network and storage. A machine that has
built Kubernetes goes on with its own. ``TDCS_NODE_IMAGE=kindest/node:...`` names a stock image.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tdcs_local import cache, docker, mirrors, programs, shell
from tdcs_local.containers import debian, image_archive, pulled
from tdcs_local.containers.image_archive import Entry, Image, Layer
from tdcs_local.containers.root_tar import RootTar
from tdcs_local.errors import LocalError
from tdcs_local.paths import LOCAL, log_file
from tdcs_local.progress import Reporter

VARIABLE = "TDCS_NODE_IMAGE"
STOCK = "kindest/node:v1.34.0@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"
"""The node image of the release of kind that is built here, as that names it."""
FOLDER = LOCAL / "node"
ROOT = debian.Root(
    name="node",
    # systemd 258 and later cannot run under version 1 of control groups; trixie has 257
    release="trixie",
    packages=(
        *("systemd", "dbus", "procps", "kmod", "util-linux", "mount", "bash", "ca-certificates"),
        *("containerd", "runc", "busybox-static", "libseccomp2", "jq", "curl", "fuse3", "e2fsprogs"),
        *("iptables", "nftables", "iproute2", "conntrack", "ethtool", "iputils-ping"),
    ),
    networked=False,
)
PARTS = ("kubernetes", "etcd", "coredns", "cni", "network-policies", "pause", "local-path-provisioner")
BUSYBOX = "tdcs.local/busybox:node"
PROVISIONER = "tdcs.local/local-path-provisioner:node"
_KUBECTL_IN_IMAGE = "/usr/bin/kubectl"
_SHELL_TOOLS = (
    *(
        "sh",
        "cat",
        "chmod",
        "chroot",
        "cp",
        "echo",
        "env",
        "ls",
        "mkdir",
        "mv",
        "rm",
        "sleep",
        "touch",
        "true",
    ),
    *(
        "wget",
        "nslookup",
        "ping",
        "tail",
        "head",
        "grep",
        "sed",
        "awk",
        "df",
        "du",
        "ps",
        "kill",
        "sync",
        "stat",
    ),
)


@dataclass(frozen=True, kw_only=True)
class NodeImages:
    """The image of each role."""

    control_plane: str
    worker: str


def stock() -> NodeImages | None:
    """The stock image, for every role: that which the user named, or which a registry gave."""
    name = os.environ.get(VARIABLE) or (STOCK if _stock_suffices() and pulled.chosen(STOCK) else "")
    return NodeImages(control_plane=name, worker=name) if name else None


def key() -> str:
    """Changes with anything that ends in the image."""
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    sources = [Path(__file__), Path(image_archive.__file__)]
    return cache.digest(
        [
            cache.files_digest(FOLDER, files),
            *(programs.PROGRAMS[name].key() for name in PARTS),
            ROOT.key(),
            *(source.read_bytes() for source in sources),
        ]
    )


def references() -> NodeImages:
    """The names of the images, whether they exist or not."""
    return stock() or _made()


def ensure(*, reporter: Reporter) -> NodeImages:
    """The node images, which exist afterwards."""
    if name := os.environ.get(VARIABLE):
        remedy = f"unset {VARIABLE} to have the nodes built here where no registry has one"
        pulled.require(name, reporter=reporter, remedy=remedy)
        return references()
    images = _made()
    if stock() is None:
        if docker.image_id(images.control_plane) and docker.image_id(images.worker):
            return images
        if programs.cached("kubernetes") is not None or not _stock_suffices():
            return _build(images, reporter=reporter)
    instead = "Kubernetes is built from source, which takes a quarter of an hour"
    if pulled.ensure(STOCK, instead=instead, reporter=reporter):
        return references()
    return _build(images, reporter=reporter)


def kubectl(*, reporter: Reporter | None = None) -> Path:
    """A kubectl for the cluster: the one that was built, or else that of the stock image."""
    built, images = programs.cached("kubernetes"), stock()
    if built is not None or images is None:
        return (built or programs.ensure("kubernetes", reporter=reporter)) / "kubectl"
    image = images.control_plane

    def copy(scratch: Path) -> None:
        what = f"kubectl could not be copied from the image {image}"
        container = shell.capture(["docker", "create", image], what=what)
        try:
            shell.run(
                ["docker", "cp", f"{container}:{_KUBECTL_IN_IMAGE}", scratch / "kubectl"],
                what=what,
                log=log_file("kubectl"),
            )
        finally:
            shell.succeeds(["docker", "rm", container])

    return cache.product("kubectl", cache.digest([image, docker.image_id(image)]), copy) / "kubectl"


def _stock_suffices() -> bool:
    """Whether no release of Kubernetes was asked for by its number."""
    return not os.environ.get(programs.KUBERNETES_VARIABLE)


def _made() -> NodeImages:
    """The names of the images that are made here."""
    name = f"tdcs/node:{programs.KUBERNETES_VERSION}-{key()}"
    return NodeImages(control_plane=name, worker=f"{name}-worker")


def _build(images: NodeImages, *, reporter: Reporter) -> NodeImages:
    parts = {name: programs.ensure(name, reporter=reporter) for name in PARTS}
    root = debian.ensure(ROOT, reporter=reporter)
    with cache.locked(
        "node-image", on_wait=lambda: reporter.say("another process makes the node image: waiting")
    ):
        if docker.image_id(images.control_plane) and docker.image_id(images.worker):
            return images
        base = f"tdcs/node-base:{ROOT.release}-{ROOT.key()}"
        if not docker.image_id(base):
            with reporter.step(f"import {base}"):
                docker.import_root(root, reference=base)
        with (
            reporter.step("make the node image") as step,
            tempfile.TemporaryDirectory(prefix="tdcs-node-") as name,
        ):
            context = Path(name)
            step.detail = "packing the images of the nodes"
            _fill_context(context, parts, base=base, root=root)
            for target, reference in (("worker", images.worker), ("control-plane", images.control_plane)):
                step.detail = f"building {reference}"
                docker.build(context, reference=reference, target=target, arguments={"NODE_BASE": base})
    return images


def _fill_context(context: Path, parts: Mapping[str, Path], *, base: str, root: Path) -> None:
    shutil.copy2(FOLDER / "Dockerfile", context)
    shutil.copytree(FOLDER / "files", context / "files")
    for folder in ("kubernetes", "cni", "network", "images"):
        (context / folder).mkdir()
    for program in ("kubeadm", "kubelet", "kubectl"):
        cache.link_or_copy(parts["kubernetes"] / program, context / "kubernetes" / program)
    for plugin in sorted(parts["cni"].iterdir()):
        cache.link_or_copy(plugin, context / "cni" / plugin.name)
    enforcer = "network-policies"
    cache.link_or_copy(parts[enforcer] / enforcer, context / "network" / enforcer)
    (context / "version").write_text(programs.KUBERNETES_VERSION)
    with tempfile.TemporaryDirectory(prefix="tdcs-layers-") as scratch:
        images = _Images(parts=parts, base=base, root=root, scratch=Path(scratch))
        arch = mirrors.architecture()
        image_archive.write_archive(context / "images/node.tar", images.of_node(), architecture=arch)
        control_plane = images.of_control_plane()
        image_archive.write_archive(context / "images/control-plane.tar", control_plane, architecture=arch)


class _Images:
    """The images that kubeadm and our own manifests name, made of built programs."""

    def __init__(self, *, parts: Mapping[str, Path], base: str, root: Path, scratch: Path) -> None:
        self._parts = parts
        self._base = base
        self._root = root
        self._scratch = scratch
        listed = shell.capture(
            [
                *(parts["kubernetes"] / "kubeadm", "config", "images", "list"),
                *("--kubernetes-version", programs.KUBERNETES_VERSION),
            ],
            what="kubeadm could not say which images it uses",
        )
        self._references = listed.split()

    def of_node(self) -> list[Image]:
        """What every node runs."""
        return [
            Image(
                reference=self._reference("kube-proxy"), layers=[self._kube_proxy_tools(), self._kube_proxy()]
            ),
            self._single("coredns", self._parts["coredns"] / "coredns", path="coredns"),
            Image(
                reference=_sandbox_reference(),
                layers=[self._layer("pause", [Entry(path="pause", source=self._parts["pause"] / "pause")])],
                entrypoint=["/pause"],
            ),
            Image(reference=BUSYBOX, layers=[self._busybox()], command=["sh"]),
        ]

    def of_control_plane(self) -> list[Image]:
        """What only the control plane runs. Its three programs are one file under three names."""
        binaries = self._parts["kubernetes"]
        names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        entries = [Entry(path="usr/local/bin/control-plane", source=binaries / "control-plane")]
        entries += [Entry(path=f"usr/local/bin/{name}", link="control-plane") for name in names]
        entries.append(Entry(path="tmp/.keep", mode=0o644))
        shared = self._layer("control-plane", entries)
        etcd = [Entry(path=f"usr/local/bin/{n}", source=self._parts["etcd"] / n) for n in ("etcd", "etcdctl")]
        provisioner = self._parts["local-path-provisioner"] / "local-path-provisioner"
        return [
            *(Image(reference=self._reference(n), layers=[shared], entrypoint=[n]) for n in names),
            Image(reference=self._reference("etcd"), layers=[self._layer("etcd", etcd)]),
            Image(
                reference=PROVISIONER,
                layers=[
                    self._layer("lpp", [Entry(path="usr/bin/local-path-provisioner", source=provisioner)])
                ],
                entrypoint=["local-path-provisioner"],
            ),
        ]

    def _reference(self, name: str) -> str:
        for reference in self._references:
            if reference.rpartition(":")[0].endswith(f"/{name}"):
                return reference
        raise LocalError(what=f"kubeadm names no image {name}", why=f"it names {', '.join(self._references)}")

    def _layer(self, name: str, entries: Sequence[Entry]) -> Layer:
        return image_archive.write_layer(self._scratch / f"{name}.tar", entries)

    def _single(self, name: str, program: Path, *, path: str) -> Image:
        layer = self._layer(name, [Entry(path=path, source=program), Entry(path="tmp/.keep", mode=0o644)])
        return Image(reference=self._reference(name), layers=[layer], entrypoint=[f"/{path}"])

    def _busybox(self) -> Layer:
        with RootTar(self._root) as root:
            program = root.read("usr/bin/busybox")
        entries = [
            Entry(path="bin/busybox", content=program),
            *(Entry(path=f"bin/{tool}", link="busybox") for tool in _SHELL_TOOLS),
            Entry(path="tmp/.keep", mode=0o644),
            Entry(path="etc/passwd", content=b"root:x:0:0:root:/:/bin/sh\n", mode=0o644),
        ]
        return self._layer("busybox", entries)

    def _kube_proxy(self) -> Layer:
        program = self._parts["kubernetes"] / "kube-proxy"
        return self._layer("kube-proxy", [Entry(path="usr/local/bin/kube-proxy", source=program)])

    def _kube_proxy_tools(self) -> Layer:
        """iptables with all of its extensions, and every library that any of them needs."""
        tools = ("usr/sbin/xtables-nft-multi", "usr/sbin/nft", "usr/sbin/conntrack", "usr/bin/kmod")
        with RootTar(self._root) as root:
            extensions = root.below("usr/lib", pattern=r"/xtables/[^/]+\.so$")
            files = [*tools, "usr/bin/busybox", *extensions]
            needed = _libraries(self._base, [*tools, *extensions])
            entries = [Entry(path=f, link=f"usr/{f}") for f in ("bin", "sbin", "lib", "lib64")]
            entries += root.entries([*files, *needed])
        links = [f"ip{v}tables{suffix}" for v in ("", "6") for suffix in ("", "-save", "-restore")]
        entries += [Entry(path=f"usr/sbin/{name}", link="xtables-nft-multi") for name in links]
        entries += [
            Entry(path="usr/bin/sh", link="busybox"),
            Entry(path="usr/sbin/modprobe", link="../bin/kmod"),
        ]
        entries += [Entry(path=f"{folder}/.keep", mode=0o644) for folder in ("tmp", "run", "var/lib", "etc")]
        return self._layer("kube-proxy-tools", entries)


def _libraries(base: str, files: Sequence[str]) -> list[str]:
    """Paths, in the root that image ``base`` was made of, of the shared libraries that files need, and the loader."""
    script = 'for f in "$@"; do ldd "$f" 2>/dev/null; done | grep -o "/[^ )]*" | sort -u'
    listed = shell.capture(
        [
            "docker",
            "run",
            "--rm",
            "--network",
            "none",
            base,
            "sh",
            "-c",
            script,
            "sh",
            *(f"/{f}" for f in files),
        ],
        what=f"listing the libraries of kube-proxy's tools in {base} failed",
    )
    paths = {re.sub(r"^(lib|lib64|bin|sbin)/", r"usr/\1/", path.removeprefix("/")) for path in listed.split()}
    if not paths:
        raise LocalError(
            what=f"no program of {base} needs a library, which can't be", remedy="remove that image"
        )
    return sorted(paths)


def _sandbox_reference() -> str:
    """The image of the process that holds a pod's namespaces, as containerd is configured to use it."""
    config = (FOLDER / "files/etc/containerd/config.toml").read_text()
    match = re.search(r'sandbox_image = "([^"]+)"', config)
    if match is None:
        raise LocalError(what="containerd's configuration names no sandbox_image", remedy=f"see {FOLDER}")
    return match[1]
