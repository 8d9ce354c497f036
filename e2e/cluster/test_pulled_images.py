"""Stock images are pulled where a registry has them, and made here where none has: with the real engine, and a registry
on this machine."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.programs.image_registry import image_registry

from tdcs_local import docker, mirrors, programs, shell
from tdcs_local.containers import base_image, debian, image_archive, node_image, pulled
from tdcs_local.containers.image_archive import Entry, Image
from tdcs_local.containers.node_image import NodeImages
from tdcs_local.kind.kubectl import Kubectl
from tdcs_local.packaging.image_layout import write_image_layout
from tdcs_local.paths import log_file
from tdcs_local.progress import Reporter

NODE, BASE = "kindest/node", "debian"


class Registry:
    """A registry with an image that has kubectl where nodes have it, and one that stands for Debian's."""

    def __init__(self, folder: Path) -> None:
        self.said = io.StringIO()
        self.reporter = Reporter(stream=self.said)
        kubectl = programs.ensure("kubernetes") / "kubectl"
        entries = {
            NODE: Entry(path="usr/bin/kubectl", source=kubectl),
            BASE: Entry(path="etc/debian", content=b"12"),
        }
        self.layouts = {name: folder / name for name in entries}
        self.served: dict[str, Path] = {}
        """What is served in a test: a name that is taken out is in no registry any more."""
        self.digests = {
            name: self._layout(name, entry, scratch=folder / "scratch") for name, entry in entries.items()
        }

    def _layout(self, name: str, entry: Entry, *, scratch: Path) -> str:
        scratch.mkdir(exist_ok=True)
        layer = image_archive.write_layer(scratch / "layer.tar", [entry])
        image = Image(reference=f"{name}:stock", layers=[layer], entrypoint=["/none"])
        archive = scratch / "image.tar"
        image_archive.write_archive(archive, [image], architecture=mirrors.architecture())
        return write_image_layout(archive=archive, tag="stock", folder=self.layouts[name])

    def printed(self) -> str:
        return " ".join(self.said.getvalue().split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, kubectl: Kubectl) -> Registry:
    del kubectl  # the engine runs while there is a cluster
    return Registry(tmp_path_factory.mktemp("registry"))


@pytest.fixture
def registry(made: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Stock images are those of the registry, on a machine on which nothing was pulled or built."""
    monkeypatch.setenv("TDCS_CACHE", str(tmp_path / "cache"))
    for variable in (node_image.VARIABLE, base_image.VARIABLE, pulled.VARIABLE, programs.KUBERNETES_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(mirrors, "own_pip_config", lambda: "")
    monkeypatch.setattr(mirrors, "own_certificates", list)
    monkeypatch.setattr(mirrors, "apt_options", tuple)
    monkeypatch.setattr(node_image, "key", lambda: "never-made")
    other = replace(base_image.BASE, name="never-made")
    monkeypatch.setattr(base_image, "BASE", other)
    made.said = io.StringIO()
    made.reporter = Reporter(stream=made.said)
    layouts = dict(made.layouts)
    with image_registry(layouts) as address:
        references = {
            node_image: f"{address}/{NODE}:stock@{made.digests[NODE]}",
            base_image: f"{address}/{BASE}:stock",
        }
        for module, reference in references.items():
            monkeypatch.setattr(module, "STOCK", reference)
        made.served = layouts
        yield made
        for reference in references.values():
            shell.succeeds(["docker", "image", "rm", reference])


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be built, in place of builds that take long."""
    built: list[str] = []

    def build(images: NodeImages, *, reporter: Reporter) -> NodeImages:
        del reporter
        built.append("kubernetes")
        return images

    def root(root: debian.Root, *, reporter: Reporter) -> Path:
        del reporter
        built.append(root.name)
        return Path("root.tar")

    monkeypatch.setattr(node_image, "_build", build)
    monkeypatch.setattr(debian, "ensure", root)
    monkeypatch.setattr(docker, "import_root", lambda *_, **__: None)
    return built


def test_a_registrys_node_image_spares_the_build_of_kubernetes(registry: Registry, tmp_path: Path) -> None:
    assert node_image.references().worker.startswith("tdcs/node:")
    images = node_image.ensure(reporter=registry.reporter)
    assert images.control_plane == images.worker == node_image.STOCK
    assert node_image.references() == images, "every command names the same image"
    assert docker.image_id(node_image.STOCK)
    version = shell.capture([node_image.kubectl(reporter=registry.reporter), "version", "--client"])
    assert programs.KUBERNETES_VERSION in version
    assert not (tmp_path / "cache" / "products" / "kubernetes").exists()
    said = registry.printed()
    node_image.ensure(reporter=registry.reporter)
    assert registry.printed() == said, "what is there is not pulled again"


def test_a_registrys_base_image_is_what_images_are_built_on(registry: Registry, tmp_path: Path) -> None:
    assert base_image.ensure(reporter=registry.reporter) == base_image.reference() == base_image.STOCK
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY Dockerfile /here\n")
    reference = f"tdcs/pulled-base:{tmp_path.name.lower()}"
    docker.build(context, reference=reference, arguments={"BASE_IMAGE": base_image.reference()})
    try:
        assert docker.layers(reference)[:-1] == docker.layers(base_image.STOCK)
    finally:
        shell.run(["docker", "image", "rm", reference], what="removing it failed", log=tmp_path / "log")


def test_where_no_registry_has_them_images_are_made_and_one_line_says_why(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, made_here: list[str]
) -> None:
    for module in (node_image, base_image):
        monkeypatch.setattr(module, "STOCK", module.STOCK.replace("stock", "other").partition("@")[0])
    node_image.ensure(reporter=registry.reporter)
    base_image.ensure(reporter=registry.reporter)
    assert made_here == ["kubernetes", "never-made"]
    assert "Kubernetes is built from source" in registry.printed()
    assert "the base of all images is made from Debian's packages" in registry.printed()
    assert node_image.stock() is None


def test_nothing_is_pulled_by_who_forbids_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, made_here: list[str]
) -> None:
    monkeypatch.setenv(pulled.VARIABLE, "0")
    node_image.ensure(reporter=registry.reporter)
    base_image.ensure(reporter=registry.reporter)
    assert made_here == ["kubernetes", "never-made"]
    assert "pull" not in registry.printed()


def test_a_pulled_image_that_no_registry_gives_again_is_made(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, made_here: list[str]
) -> None:
    node_image.ensure(reporter=registry.reporter)
    shell.run(
        ["docker", "image", "rm", node_image.STOCK], what="removing it failed", log=log_file("docker-pull")
    )
    registry.served.pop(NODE)
    node_image.ensure(reporter=registry.reporter)
    assert made_here == ["kubernetes"]
    assert node_image.references().worker.startswith("tdcs/node:")
