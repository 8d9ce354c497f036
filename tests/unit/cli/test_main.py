"""The command `tdcs`: what is in another distribution."""

import pytest
from click.testing import CliRunner

from tdcs.cli import main as module
from tdcs.cli.main import main


@pytest.mark.parametrize("name", ["metrics", "predict", "resources", "roles", "simulate"])
def test_a_command_of_the_labs_that_are_not_installed_says_how_to_install_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "entry_points", lambda **_: ())
    listed = CliRunner().invoke(main, ["--help"])
    assert (listed.exit_code, name in listed.stdout) == (0, True)
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 1
    assert f"tdcs {name} is in the distribution tdcs-labs, which is not installed" in result.stderr
    assert "pip install ./labs" in result.stderr
