"""The container engine, by its command line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tdcs_local import mirrors, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import log_file


def image_id(reference: str) -> str:
    """The id (sha256:...) of an image that the engine has; "" if it has none of that name."""
    name, at, digest = reference.partition("@")
    if at:  # the engine lists what was pulled by its digest without the tag
        reference = f"{name.rpartition(':')[0] if ':' in name.rpartition('/')[2] else name}@{digest}"
    listed = shell.capture(["docker", "image", "ls", "--no-trunc", "--quiet", reference])
    return listed.splitlines()[0] if listed else ""


def layers(reference: str) -> list[str]:
    """The digests (sha256:...) of an image's layers, uncompressed, from the lowest."""
    digests: list[str] = json.loads(
        shell.capture(["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", reference])
    )
    return digests


def containers(*, labels: Sequence[str] = (), every: bool = True) -> list[str]:
    """Names of containers that carry all the labels (``name`` or ``name=value``)."""
    command = ["docker", "ps", "--format", "{{.Names}}"]
    if every:
        command.append("--all")
    for label in labels:
        command += ["--filter", f"label={label}"]
    return shell.capture(command).split()


def info() -> Mapping[str, object]:
    """What ``docker info`` tells."""
    answer: dict[str, object] = json.loads(shell.capture(["docker", "info", "--format", "{{json .}}"]))
    return answer


def import_root(tar: Path, *, reference: str, changes: Sequence[str] = ()) -> None:
    """Makes an image of the tar of a file system."""
    options = [word for change in changes for word in ("--change", change)]
    shell.run(
        ["docker", "import", *options, tar, reference],
        what=f"importing {reference} into docker failed",
        log=log_file("docker-import"),
    )


def build(
    context: Path,
    *,
    reference: str,
    tags: Sequence[str] = (),
    arguments: Mapping[str, str] | None = None,
    target: str = "",
    dockerfile: Path | None = None,
) -> None:
    """Builds an image of a context folder, with the machine's network and proxies."""
    command: list[str | Path] = ["docker", "build", "--force-rm", "--network", "host", "--tag", reference]
    for tag in tags:
        command += ["--tag", tag]
    for name, value in {**mirrors.proxies(), **(arguments or {})}.items():
        command += ["--build-arg", f"{name}={value}"]
    if target:
        command += ["--target", target]
    if dockerfile is not None:
        command += ["--file", dockerfile]
    log = build_log(reference)
    shell.run(
        [*command, context],
        what=f"building the image {reference} failed",
        log=log,
        # the classic builder is part of every engine; the newer one wants a plugin and an image to pull
        env={"DOCKER_BUILDKIT": "0"},
        fetches=True,  # packages, that is: a step that was completed is not repeated
        remedy="read the log: the last step shown is the one that failed",
    )


def build_log(reference: str) -> Path:
    """The log of the builds of an image."""
    return log_file(f"image-{reference.partition(':')[0].replace('/', '-')}")


def require() -> None:
    """Raises :class:`LocalError` unless the engine answers."""
    try:
        shell.capture(["docker", "version", "--format", "{{.Server.Version}}"], timeout=20)
    except LocalError as error:
        raise LocalError(
            what="the container engine does not answer",
            why=error.why,
            remedy=shell.explain(error.why) or "start it (`make up` does), or see `docker info`",
        ) from error
