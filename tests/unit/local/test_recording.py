"""The lines of the recorded terminal: each is typed as it is run, and is a command that a user has."""

import subprocess
from pathlib import Path

from tdcs_local.paths import CHECKOUT
from tdcs_local.recording import LINES, Line, script


def test_a_line_is_typed_as_it_is_run(tmp_path: Path) -> None:
    program = script([Line(words="echo 'two  words' > said", pause=0), Line(words="cat said", pause=0)])
    typed = subprocess.run(
        ["bash", "-c", program.replace("sleep 0.03", ":")], cwd=tmp_path, capture_output=True, text=True
    )
    assert typed.returncode == 0, typed.stderr
    assert (
        typed.stdout.replace("\033[1;32m$\033[0m", "$")
        == "$ echo 'two  words' > said\n\n$ cat said\ntwo  words\n\n"
    )


def test_a_recording_ends_at_the_first_command_that_fails(tmp_path: Path) -> None:
    program = script([Line(words="false", pause=0), Line(words="echo later", pause=0)])
    ended = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "later" not in ended.stdout


def test_a_person_reads_the_recording_in_about_a_minute() -> None:
    typing = sum(len(line.words) for line in LINES) * 0.03
    assert 30 < typing + sum(line.pause for line in LINES) < 75


def test_the_documentation_shows_the_recording() -> None:
    assert (CHECKOUT / "docs" / "images" / "first-job.svg").is_file()
    assert "images/first-job.svg" in (CHECKOUT / "docs" / "index.md").read_text()
