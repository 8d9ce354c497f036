"""The distribution `tdcs-train` as a whole."""

import subprocess
import sys
from importlib.metadata import entry_points, version

from click.testing import CliRunner

import tdcs_train
from tdcs_train.cli.main import COMMANDS, main
from tdcs_train.errors import InputError


def test_the_package_is_installed_with_its_command() -> None:
    assert version("tdcs-train") == tdcs_train.__version__
    (script,) = entry_points(group="console_scripts", name="tdcs-train")
    assert script.load() is main


def test_every_command_can_be_loaded_and_has_help() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert name in result.output


def test_the_help_loads_neither_torch_nor_numpy() -> None:
    script = (
        "import sys; from tdcs_train.cli.main import main; main(['--help'], standalone_mode=False);"
        "sys.exit(bool({'torch', 'numpy', 'tensorflow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


def test_bad_input_ends_with_one_sentence_and_exit_code_2() -> None:
    @main.command("fail-for-test")
    def fail() -> None:
        raise InputError("graph.txt, line 3: no forward_compute_time")

    try:
        result = CliRunner().invoke(main, ["fail-for-test"])
    finally:
        del main.commands["fail-for-test"]
    assert result.exit_code == 2
    assert result.output == "Error: graph.txt, line 3: no forward_compute_time\n"
