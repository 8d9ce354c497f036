"""The image that the project's Dockerfiles start from: Debian bookworm, slim.

Where this machine reaches packages in no way of its own, Debian's image is pulled if a registry has it. Otherwise it is
made from Debian's packages, with the machine's mirrors, certificates and pip settings inside, so that ``apt-get
install`` and ``pip install`` in a Dockerfile work wherever they work on the machine; it stays on the machine.
``TDCS_BASE_IMAGE`` names an image to pull instead.
"""

import os

from tdcs_local import docker, mirrors
from tdcs_local.containers import debian, pulled
from tdcs_local.progress import Reporter

VARIABLE = "TDCS_BASE_IMAGE"
STOCK = "debian:bookworm-slim"
BASE = debian.Root(
    name="base", release="bookworm", packages=("ca-certificates", "netbase", "tzdata"), networked=True
)


def reference() -> str:
    """The base image's name, whether it exists or not."""
    return os.environ.get(VARIABLE) or (STOCK if _pulled_suffices() and pulled.chosen(STOCK) else _made())


def ensure(*, reporter: Reporter) -> str:
    """The name of the base image, which exists afterwards."""
    if name := os.environ.get(VARIABLE):
        remedy = f"unset {VARIABLE} to have the base made from Debian's packages"
        pulled.require(name, reporter=reporter, remedy=remedy)
        return name
    name = _made()
    if docker.image_id(name) and not pulled.chosen(STOCK):
        return name
    instead = "the base of all images is made from Debian's packages"
    if _pulled_suffices() and pulled.ensure(STOCK, instead=instead, reporter=reporter):
        return STOCK
    if docker.image_id(name):
        return name
    tar = debian.ensure(BASE, reporter=reporter)
    with reporter.step(f"import {name}"):
        docker.import_root(tar, reference=name, changes=['CMD ["bash"]'])
    return name


def _made() -> str:
    return f"tdcs/debian:bookworm-slim-{BASE.key()}"


def _pulled_suffices() -> bool:
    """Whether a Dockerfile reaches packages without settings of this machine."""
    return not (mirrors.own_certificates() or mirrors.own_pip_config() or mirrors.apt_options())
