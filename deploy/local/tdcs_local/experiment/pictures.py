"""JPEG files of the size that ImageNet's have on average, each a wall of digits of MNIST."""

import io
import json
import random
import tarfile
from pathlib import Path

from PIL import Image

from tdcs_local import cache
from tdcs_local.progress import Reporter
from tdcs_local.store import mnist, operations

BUCKET = "experiment"
IMAGES = 216
WIDE = 18
"""Digits in a row and rows of a picture: about 110 kB, as measured of the files."""
SEED = 1


def parameters() -> dict[str, object]:
    """What the pictures are made of, as it stands in the manifest of their bucket."""
    return {**mnist.parameters(), "kind": "walls", "images": IMAGES, "wide": WIDE, "seed": SEED}


def fill(*, reporter: Reporter) -> tuple[int, int]:
    """Fill the bucket unless it is filled; how many images it has, and their bytes."""
    held = operations.status()["buckets"].get(BUCKET) or {}
    if held.get("parameters") != parameters():
        with reporter.step(f"fill bucket {BUCKET}") as step:
            operations.fill_archive(archive(reporter=reporter), bucket=BUCKET, parameters=parameters())
            step.result = f"{IMAGES} JPEG files"
    manifest = operations.manifest(BUCKET)
    return int(manifest["totalFiles"]), int(manifest["totalBytes"])


def archive(*, reporter: Reporter) -> Path:
    """A tar archive of the pictures, from the cache or made now."""
    digits = mnist.archive(reporter=reporter)

    def build(scratch: Path) -> None:
        write(digits, scratch / "pictures.tar")

    return cache.product("pictures", cache.digest([json.dumps(parameters(), sort_keys=True)]), build) / (
        "pictures.tar"
    )


def write(digits: Path, target: Path, *, images: int = IMAGES) -> None:
    """Write the archive of pictures from that of single digits."""
    with tarfile.open(digits) as tar:
        tiles = [Image.open(io.BytesIO(file.read())) for member in tar if (file := tar.extractfile(member))]
        for tile in tiles:
            tile.load()
    drawn = random.Random(SEED)  # noqa: S311 - which digits a picture shows
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(images):
            picture = Image.new("L", (WIDE * mnist.SIDE, WIDE * mnist.SIDE))
            for place in range(WIDE * WIDE):
                x, y = place % WIDE * mnist.SIDE, place // WIDE * mnist.SIDE
                picture.paste(drawn.choice(tiles), (x, y))
            encoded = io.BytesIO()
            picture.save(encoded, "JPEG", quality=mnist.QUALITY)
            entry = tarfile.TarInfo(f"{number:05d}.jpg")
            entry.size = encoded.tell()
            encoded.seek(0)
            tar.addfile(entry, encoded)
