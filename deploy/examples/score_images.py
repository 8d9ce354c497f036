"""Score a folder of images with a model that was compiled before; prints one line of JSON.

    score_images.py --data /data --model /compiled --name digits

`/data` has images, in sub-folders or not; `/compiled` has artifacts of `tdcs-train compile`. In an Indexed Job each pod
scores its share of the files. The line:

    {"pod": 0, "images": 1250, "images_per_second": 5210.0, "seconds_to_first_result": 0.61, "seconds_to_load": 0.09,
     "compiled_here": false, "target": "x86-64-v3", "backends": ["onednn"], "node_targets": ["x86-64-v4", ...], ...}

`seconds_to_first_result` counts from the start of this script, imports included. `--compile` compiles the model in this
pod if there is no artifact that it can run; `--name` must then be the model itself.
"""

# ruff: noqa: E402  the time of the imports counts

import time

STARTED = time.monotonic()

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tdcs_train import artifacts
from tdcs_train.environment import number_from
from tdcs_train.errors import InputError

ENDINGS = (".jpg", ".jpeg", ".png")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder of images")
    parser.add_argument("--model", type=Path, required=True, help="a folder of artifacts")
    parser.add_argument("--name", required=True, help="the model's name in the artifacts")
    parser.add_argument("--prefer", nargs="*", default=["onednn", "blas"], help="back ends, the best first")
    parser.add_argument("--compile", action="store_true", help="compile the model here if need be")
    return parser.parse_args()


def share(folder: Path, *, pod: int, pods: int) -> list[Path]:
    """The files that this pod scores."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    if not files:
        raise InputError(f"{folder} has no image: is the Dataset mounted there?")
    return files[pod::pods]


def batches(files: list[Path], shape: tuple[int, ...]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Arrays of the model's shape, each with the number of images in it; the last one is filled up with zeros."""
    size, _, height, width = shape
    for first in range(0, len(files), size):
        group = files[first : first + size]
        batch = np.zeros(shape, dtype=np.float32)
        for place, path in enumerate(group):
            with Image.open(path) as image:
                grey = image.convert("L").resize((width, height))
            batch[place, 0] = np.asarray(grey, dtype=np.float32) / 255 - 0.5
        yield len(group), batch


def score(options: argparse.Namespace) -> dict[str, Any]:
    """Score this pod's images; what the line says."""
    pods = number_from(os.environ, "PODS", default=1, least=1)
    pod = number_from(os.environ, "JOB_COMPLETION_INDEX", default=0, below=pods, remedy=f"PODS is {pods}")
    files = share(options.data, pod=pod, pods=pods)
    model = artifacts.load(
        options.model, model=options.name, prefer=options.prefer, compile_missing=options.compile
    )
    manifest = model.manifest
    (spec,) = manifest.inputs
    if spec.shape is None or None in spec.shape or len(spec.shape) != 4:
        raise InputError(f"the model {options.name} takes {spec.shape}, not a batch of images of one size")
    shape = tuple(size for size in spec.shape if size is not None)
    classes: Counter[int] = Counter()
    first, begin = 0.0, time.monotonic()
    for count, batch in batches(files, shape):
        (scores,) = model.run({spec.name: batch}).values()
        first = first or time.monotonic() - STARTED
        classes.update(scores[:count].argmax(axis=1).tolist())
    seconds = time.monotonic() - begin
    return {
        "pod": pod,
        "images": len(files),
        "images_per_second": round(len(files) / seconds, 1),
        "seconds_to_first_result": round(first, 3),
        "seconds_to_load": round(model.seconds_to_load, 3),
        "compiled_here": model.compiled_here,
        "target": manifest.target,
        "backends": sorted({region.backend for region in manifest.regions}),
        "node_targets": [target.name for target in artifacts.this_node().targets],
        "key": manifest.key,
        "classes": {str(number): classes[number] for number in sorted(classes)},
    }


def main() -> None:
    try:
        print(json.dumps(score(arguments())), flush=True)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
