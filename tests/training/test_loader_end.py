"""The end of a program in the middle of a loader's epoch, with the Python of the image (3.13)."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

ABANDONED = """
import sys
from pathlib import Path
from tdcs_train.loader import Loader, find_images

def train():
    samples, _ = find_images(Path(sys.argv[1]))
    loader = Loader(samples, batch=4, shape=(8, 8, 1), decoders=2)
    batches = loader.epoch(1)
    for _ in range(3):
        next(batches)
    held = [batches]
    held.append(held)  # a cycle, as of a pipeline's functions: it lives until the interpreter ends
    loader.close()

train()
print("done", flush=True)
"""


def test_a_program_that_ends_in_the_middle_of_an_epoch_does_end(tmp_path: Path) -> None:
    """Python freezes daemon threads when it ends: to wait for one then would be for ever."""
    for number in range(12):
        place = tmp_path / f"class{number % 3}"
        place.mkdir(exist_ok=True)
        Image.new("L", (16, 16), 8 * number).save(place / f"{number:02}.png")
    words = [sys.executable, "-c", ABANDONED, str(tmp_path)]
    process = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert process.stdout == "done\n"
