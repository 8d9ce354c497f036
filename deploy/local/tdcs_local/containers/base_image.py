"""The image that the project's Dockerfiles start from: Debian bookworm, slim.

By default it is made from Debian's packages, with this machine's mirrors, certificates and pip settings inside, so
that ``apt-get install`` and ``pip install`` in a Dockerfile work wherever they work on the machine. It stays on the
machine. ``TDCS_BASE_IMAGE=debian:bookworm-slim`` names an image to pull instead.
"""

import os

from tdcs_local import docker, shell
from tdcs_local.containers import debian
from tdcs_local.paths import log_file
from tdcs_local.progress import Reporter

VARIABLE = "TDCS_BASE_IMAGE"
BASE = debian.Root(
    name="base", release="bookworm", packages=("ca-certificates", "netbase", "tzdata"), networked=True
)


def reference() -> str:
    """The base image's name, whether it exists or not."""
    return os.environ.get(VARIABLE) or f"tdcs/debian:bookworm-slim-{BASE.key()}"


def ensure(*, reporter: Reporter) -> str:
    """The name of the base image, which exists afterwards."""
    name = reference()
    if docker.image_id(name):
        return name
    if os.environ.get(VARIABLE):
        with reporter.step(f"pull {name}"):
            shell.run(
                ["docker", "pull", name],
                what=f"pulling {name} failed",
                log=log_file("docker-pull"),
                remedy=f"unset {VARIABLE} to have the base made from Debian's packages",
            )
        return name
    tar = debian.ensure(BASE, reporter=reporter)
    with reporter.step(f"import {name}"):
        docker.import_root(tar, reference=name, changes=['CMD ["bash"]'])
    return name
