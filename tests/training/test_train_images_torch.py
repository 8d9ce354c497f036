"""The example train_images_torch.py on real files, as one worker and as two."""

import json
import random
import runpy
from pathlib import Path

import pytest
import torch
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
    for output in lines:
        epochs = [line for line in output if "epoch" in line]
        assert len(epochs) == 12
        for line in epochs:
            assert line["bottleneck"] in {"read", "decode", "batch", "train"}
            assert set(line["stall_by_cause"]) == {"read", "decode", "batch"}  # type: ignore[call-overload]
            assert 0 <= float(str(line["stall_share"])) <= 1
            assert line["samples"] == 240 // workers
        assert output[-1]["done"] is True
        assert float(str(output[-1]["last_loss"])) < 0.6 * float(str(output[-1]["first_loss"]))
    # The loss is the mean over the workers, so they all print the same.
    assert len({str(output[-1]["last_loss"]) for output in lines}) == 1


LAYERS = [f"node{number}" for number in range(2, 12)]


def plan_variable(*cuts: int, replicas: list[int]) -> dict[str, str]:
    """TDCS_TRAIN_PLAN with stages that end after so many layers."""
    ends = [0, *cuts, len(LAYERS)]
    stages = [
        {"nodes": LAYERS[begin:end], "replicas": count}
        for begin, end, count in zip(ends, ends[1:], replicas, strict=False)
    ]
    return {"TDCS_TRAIN_PLAN": json.dumps({"stages": stages})}


def test_with_a_plan_the_workers_are_stages_and_the_loss_falls(shapes: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(shapes), "--epochs", "12", "--batch", "12", "--learning-rate", "0.02"]
    arguments += ["--classes", "2", "--steps", "20"]
    with Job(SCRIPT, 3, tmp_path, arguments, environment=plan_variable(6, replicas=[2, 1])) as job:
        codes = job.end(within=90)
        assert codes == [0] * 3, [worker.errors for worker in job.workers]
        lines = [worker.results() for worker in job.workers]
    assert [output[0]["stage"] for output in lines] == [0, 0, 1]
    for output in lines:
        assert output[0]["plan"] == "2-1"
        assert output[-1]["done"] is True
        assert {line["bottleneck"] for line in output if "epoch" in line} <= {"stage 0", "stage 1"}
    assert len({(str(output[-1]["first_loss"]), str(output[-1]["last_loss"])) for output in lines}) == 1
    assert float(str(lines[0][-1]["last_loss"])) < 0.6 * float(str(lines[0][-1]["first_loss"]))


def test_a_worker_behind_the_first_stage_needs_no_data(shapes: Path, tmp_path: Path) -> None:
    arguments = ["--epochs", "1", "--batch", "12", "--classes", "2", "--steps", "4"]
    script = tmp_path / "one_reads.py"
    script.write_text(
        "import os, runpy, sys\n"
        f"folder = {str(shapes)!r} if os.environ['RANK'] == '0' else '/absent'\n"
        f"sys.argv = [{str(SCRIPT)!r}, '--data', folder, *sys.argv[1:]]\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    with Job(script, 2, tmp_path, arguments, environment=plan_variable(7, replicas=[1, 1])) as job:
        assert job.end(within=60) == [0, 0], [worker.errors for worker in job.workers]


def test_a_pipeline_of_which_a_worker_was_killed_goes_on_and_ends_with_the_same_loss(
    shapes: Path, tmp_path: Path
) -> None:
    steps = 12  # not a whole epoch of the loader, on purpose
    arguments = ["--data", str(shapes), "--batch", "12", "--learning-rate", "0.02"]
    arguments += ["--classes", "2", "--steps", str(steps)]
    plan = plan_variable(6, replicas=[2, 1])
    killed = tmp_path / "killed"

    def ended(folder: Path, epochs: int) -> list[list[dict[str, object]]]:
        words = [*arguments, "--epochs", str(epochs), "--checkpoints", str(folder)]
        with Job(SCRIPT, 3, tmp_path, words, environment=plan) as job:
            assert job.end(within=90) == [0] * 3, [worker.errors for worker in job.workers]
            return [worker.results() for worker in job.workers]

    endless = [*arguments, "--epochs", "10000", "--checkpoints", str(killed)]
    with Job(SCRIPT, 3, tmp_path, endless, environment=plan) as job:
        job.workers[2].await_line('"epoch": 3')
        job.workers[2].process.kill()
        assert [worker.end(within=60) for worker in job.workers[:2]] == [2, 2]
        assert "rank 2 (stage 1)" in job.workers[0].errors
    saved_steps = [
        {int(path.stem.rpartition("-")[2]) for path in killed.glob(f"stage-{n}.step-*.pt")} for n in (0, 1)
    ]
    done = max(saved_steps[0] & saved_steps[1]) // steps
    assert done >= 2
    resumed = ended(killed, done + 3)
    calm = ended(tmp_path / "calm", done + 3)
    assert {output[0]["resumed_after"] for output in resumed} == {done}
    assert [output[-1]["last_loss"] for output in resumed] == [output[-1]["last_loss"] for output in calm]


@pytest.mark.parametrize(
    ("replicas", "arguments", "reason"),
    [
        (
            [2, 1],
            ["--classes", "2", "--steps", "4"],
            "TDCS_TRAIN_PLAN is a plan for 3 workers (2-1), the job has 2",
        ),
        ([1, 1], [], "a pipeline needs --classes and --steps"),
    ],
)
def test_a_plan_that_does_not_fit_the_job_ends_it_with_code_2(
    replicas: list[int], arguments: list[str], reason: str, shapes: Path, tmp_path: Path
) -> None:
    words = ["--data", str(shapes), *arguments]
    with Job(SCRIPT, 2, tmp_path, words, environment=plan_variable(6, replicas=replicas)) as job:
        assert job.end(within=60) == [2, 2]
        for worker in job.workers:
            assert reason in worker.errors
            assert "Traceback" not in worker.errors


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--epochs", "0", "'0' is no whole number over 0"),
        ("--batch", "-1", "'-1' is no whole number over 0"),
        ("--threads", "two", "'two' is no whole number over 0"),
        ("--image-size", "9", "9 is below 10: the network needs larger images"),
    ],
)
def test_an_option_that_cannot_be_is_named_in_a_sentence(
    option: str, value: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = runpy.run_path(str(SCRIPT), run_name="options")["argument_parser"]("")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--data", "/data", option, value])
    assert ended.value.code == 2
    assert f"argument {option}: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"WORLD_SIZE": "abc"}, "the variable WORLD_SIZE is 'abc'; it must be a whole number of at least 1"),
        ({"WORLD_SIZE": "0"}, "the variable WORLD_SIZE is '0'; it must be a whole number of at least 1"),
        ({"RANK": "1"}, "the variable RANK is '1'; it must be a whole number from 0 to 0; WORLD_SIZE is 1"),
    ],
    ids=["no number", "no worker", "rank"],
)
def test_a_variable_that_cannot_be_ends_it_with_a_sentence_and_code_2(
    variables: dict[str, str], reason: str, tmp_path: Path
) -> None:
    with Job(SCRIPT, 1, tmp_path, ["--data", str(tmp_path)], environment={"RANK": "0", **variables}) as job:
        assert job.end(within=60) == [2]
        assert reason in job.workers[0].errors
        assert "Traceback" not in job.workers[0].errors


def test_the_smallest_images_that_are_taken_do_pass_the_network() -> None:
    script = runpy.run_path(str(SCRIPT), run_name="options")
    network = script["network"](image_size=script["SMALLEST"], classes=2, hidden=4)
    assert network(torch.zeros(3, 1, script["SMALLEST"], script["SMALLEST"])).shape == (3, 2)


def test_a_file_that_is_no_image_ends_it_with_its_name_and_code_2(shapes: Path, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / "data" / "circle").mkdir(parents=True, exist_ok=True)
        content = (shapes / "circle" / "000.jpg").read_bytes()
        (tmp_path / "data" / "circle" / f"{number}.jpg").write_bytes(content[: 100 if number == 5 else None])
    with Job(SCRIPT, 1, tmp_path, ["--data", str(tmp_path / "data"), "--batch", "2"]) as job:
        assert job.end(within=60) == [2]
        assert "circle/5.jpg is no image that can be decoded" in job.workers[0].errors
        assert "Traceback" not in job.workers[0].errors
