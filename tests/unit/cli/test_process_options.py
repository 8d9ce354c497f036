"""Options of processes: what the fields of settings make of a command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
import pytest
from click.testing import CliRunner, Result

from tdcs.options import PORT, Parsed, node_name, option, options_of


def _even(text: str) -> int:
    if int(text) % 2:
        raise ValueError(f"{text} is odd")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    node: str = node_name()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSettings(CommonSettings):
    mode: Literal["fast", "slow"] = option("How.", default="fast")
    root: Path | None = option("Where.", default=None, env="EXAMPLE_ROOT")
    port: int = option("Port.", default=0, type=PORT)
    targets: tuple[str, ...] = option("What is tried.", default=())
    views: bool = option("Views.", default=True, chart="csi.views")
    verbose: bool = option("More lines.", default=False)
    pairs: int = option("Pairs.", default=4, type=Parsed("number", _even, show=lambda count: f"{count:02}"))
    name: str = option("Empty: none.", default="given", env="EXAMPLE_NAME", empty=True)
    pause_seconds: float = 2.0
    """No option."""

    def __post_init__(self) -> None:
        if self.root is not None and not self.targets:
            raise ValueError("--root takes a --target")


def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[Result, list[ExampleSettings]]:
    settings_used: list[ExampleSettings] = []

    @click.command()
    @options_of(ExampleSettings)
    def command(settings: ExampleSettings) -> None:
        settings_used.append(settings)

    clean = {"NODE_NAME": None, "EXAMPLE_ROOT": None, "EXAMPLE_NAME": None}
    return CliRunner(env={**clean, **(env or {})}).invoke(command, arguments), settings_used


def test_settings_come_from_flags_variables_and_defaults() -> None:
    result, (settings,) = run(
        "--node=n", "--no-views", "--target=a:1", "--target=b:2", "--pairs=6", "--verbose"
    )
    assert result.exit_code == 0
    assert settings == ExampleSettings(
        node="n", views=False, targets=("a:1", "b:2"), pairs=6, verbose=True, pause_seconds=2.0
    )
    _, (settings,) = run("--target=a:1", env={"NODE_NAME": "m", "EXAMPLE_ROOT": "/r", "EXAMPLE_NAME": ""})
    assert settings == ExampleSettings(node="m", root=Path("/r"), targets=("a:1",), name="")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--node'"),
        (["--node=n", "--port=70000"], "'--port': 70000 is not in the range 0<=x<=65535"),
        (["--node=n", "--mode=other"], "'--mode': 'other' is not one of 'fast', 'slow'"),
        (["--node=n", "--pairs=3"], "'--pairs': 3 is odd"),
        (["--node=n", "--root=/r"], "--root takes a --target"),
        (["--node=n", "--pause-seconds=1"], "No such option"),
    ],
)
def test_a_wrong_usage_is_refused_by_the_options_name(arguments: list[str], message: str) -> None:
    result, settings_used = run(*arguments)
    assert (result.exit_code, settings_used) == (2, [])
    assert message in result.output


def test_the_help_has_defaults_limits_variables_and_the_charts_value() -> None:
    result, _ = run("--help")
    text = " ".join(result.output.split())
    for line in (
        "--node TEXT Name of this Kubernetes node. [env var: NODE_NAME; required]",
        "--mode [fast|slow] How. [default: fast]",
        "--port INTEGER RANGE Port. [default: 0; 0<=x<=65535]",
        "--views / --no-views Views. Value of the chart: csi.views. [default: views]",
        "--verbose More lines. --pairs NUMBER Pairs. [default: 04]",
    ):
        assert line in text
