"""The command `tdcs`: its version, what is in another distribution, and what the processes of pods load."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

import tdcs
from tdcs.cli.main import main


@pytest.mark.parametrize("name", ["metrics", "predict", "resources", "roles", "simulate"])
def test_a_command_of_the_labs_that_are_not_installed_says_how_to_install_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    listed = CliRunner().invoke(main, ["--help"])
    assert (listed.exit_code, name in listed.stdout) == (0, True)
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 1
    assert f"tdcs {name} is in the distribution tdcs-labs, which is not installed" in result.stderr
    assert "pip install ./labs" in result.stderr


def test_the_version_is_that_of_the_distribution() -> None:
    assert version("tdcs") == tdcs.__version__


def test_the_node_plugin_does_not_load_what_reads_installed_distributions() -> None:
    """It takes 0.7 MiB on each node, and with the plugin the memory that its chart asks for."""
    script = "import sys, tdcs.cli.main, tdcs.node.csi.csi_command;print('importlib.metadata' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
