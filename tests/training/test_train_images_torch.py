"""The example train_images_torch.py on real files, as one worker and as two."""

import random
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from tests.training.processes import CHECKOUT, Job

SCRIPT = CHECKOUT / "deploy" / "examples" / "train_images_torch.py"


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 JPEG files of circles and squares at random places, in two classes."""
    folder, chooser = tmp_path_factory.mktemp("shapes"), random.Random(0)
    for number in range(240):
        name = ("circle", "square")[number % 2]
        (folder / name).mkdir(exist_ok=True)
        image = Image.new("L", (28, 28), 0)
        left, top, side = chooser.randrange(2, 10), chooser.randrange(2, 10), chooser.randrange(9, 16)
        draw = ImageDraw.Draw(image)
        (draw.ellipse if number % 2 == 0 else draw.rectangle)(
            (left, top, left + side, top + side), outline=255
        )
        image.save(folder / name / f"{number:03}.jpg", quality=95)
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_the_loss_falls_and_every_epoch_names_its_bottleneck(
    shapes: Path, tmp_path: Path, workers: int
) -> None:
    arguments = [
        "--data",
        str(shapes),
        "--epochs",
        "12",
        "--batch",
        str(24 // workers),
        "--learning-rate",
        "0.02",
    ]
    with Job(SCRIPT, workers, tmp_path, arguments) as job:
        codes = job.end(within=90)
        assert codes == [0] * workers, [worker.errors for worker in job.workers]
        lines = [worker.results() for worker in job.workers]
    for own in lines:
        epochs = [line for line in own if "epoch" in line]
        assert len(epochs) == 12
        for line in epochs:
            assert line["bottleneck"] in {"read", "decode", "batch", "train"}
            assert set(line["stall_by_cause"]) == {"read", "decode", "batch"}  # type: ignore[call-overload]
            assert 0 <= float(str(line["stall_share"])) <= 1
            assert line["samples"] == 240 // workers
        assert own[-1]["done"] is True
        assert float(str(own[-1]["last_loss"])) < 0.6 * float(str(own[-1]["first_loss"]))
    # The loss is the mean over the workers, so they all print the same.
    assert len({str(own[-1]["last_loss"]) for own in lines}) == 1


def test_a_file_that_is_no_image_ends_it_with_its_name_and_code_2(shapes: Path, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / "data" / "circle").mkdir(parents=True, exist_ok=True)
        content = (shapes / "circle" / "000.jpg").read_bytes()
        (tmp_path / "data" / "circle" / f"{number}.jpg").write_bytes(content[: 100 if number == 5 else None])
    with Job(SCRIPT, 1, tmp_path, ["--data", str(tmp_path / "data"), "--batch", "2"]) as job:
        assert job.end(within=60) == [2]
        assert "circle/5.jpg is no image that can be decoded" in job.workers[0].errors
        assert "Traceback" not in job.workers[0].errors
