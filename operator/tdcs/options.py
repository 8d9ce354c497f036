"""Options of a process, each declared once: as a field of a frozen dataclass.

    @dataclass(frozen=True, kw_only=True)
    class PluginSettings:
        node: str = node_name()
        kubelet: Path = option("kubelet's folder.", default=Path("/var/lib/kubelet"), env="TDCS_KUBELET_ROOT")

    @click.command()
    @options_of(PluginSettings)
    def command(settings: PluginSettings) -> None: ...

Name, type, default, limits, environment variable and help of the command line come from the field, and so does the
reference in the documentation. A test compares the chart with them. A field of another kind is for tests.

Dataclasses and not pydantic: that takes 5 MiB in each process on each node, and tests set times below the limits of
the command line.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from tdcs.api.quantities import to_bytes

Model = TypeVar("Model")

PORT: Final = click.IntRange(0, 65535)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)


def option(
    help: str = "",
    *,
    default: Any = MISSING,
    type: click.ParamType[Any] | None = None,
    flag: str = "",
    env: str | None = None,
    chart: str = "",
    empty: bool = False,
) -> Any:
    """A field that the command line sets.

    Args:
        help: a sentence.
        default: where there is none, the option must be given.
        type: where the field's own has no limits, or another text.
        flag: where it is not the field's name. A field of several values has the name of one: `--target`.
        env: environment variable that sets it, too.
        chart: the key of the chart's values with the same meaning, such as `csi.waitSeconds`.
        empty: an empty variable is a value; click takes it for one that is not set.
    """
    attributes = {
        "help": f"{help} Value of the chart: {chart}." if chart else help,
        "type": type,
        "envvar": env,
        "chart": chart,
        "empty": empty,
    }
    return field(default=default, metadata={"flag": flag, "attributes": attributes})


def node_name(*, default: Any = MISSING) -> Any:
    return option("Name of this Kubernetes node.", default=default, env="NODE_NAME")


def metrics_port(*, default: int) -> Any:
    text = "Port of /metrics, with --trust by TLS, for Prometheus' certificate alone; 0: none."
    return option(text, default=default, type=PORT)


def certificates() -> Any:
    return option(
        "Folder with tls.crt, tls.key and ca.crt: connections are by TLS then, and every caller is known by its role. "
        "Files that change are read again. Default: plain connections.",
        default=None,
        type=FOLDER,
        env="TDCS_TRUST",
    )


class Parsed(click.ParamType[Any]):
    """A type of values that users write as texts.

    Args:
        parse: gives a value; raises ValueError with what is wrong.
        show: the text of a default.
    """

    def __init__(
        self, name: str, parse: Callable[[str], object], *, show: Callable[[Any], str] = str
    ) -> None:
        self.name = name
        self.show: Final = show
        self._parse: Final = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _quantity(size: int) -> str:
    for power, unit in enumerate(("Gi", "Mi", "Ki")):
        if size % (step := 1 << 10 * (3 - power)) == 0:
            return f"{size // step}{unit}"
    return str(size)


SIZE: Final = Parsed("size", to_bytes, show=_quantity)
"""Bytes, or a Kubernetes quantity such as 64Mi."""


class FieldOption(click.Option):
    """A command's option that is made of a field, and the key of the chart's values with the same meaning."""

    def __init__(self, *args: Any, chart: str, empty: bool, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.chart: Final = chart
        self._empty: Final = empty

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The value of the environment variable; None when it is not set."""
        if self._empty:
            return os.environ.get(str(self.envvar))
        return super().resolve_envvar_value(ctx)


def options_of(model: type[Model]) -> Callable[[Callable[[Model], None]], Callable[..., None]]:
    """Make a function of settings one of a command's options. A ValueError of the settings is a wrong usage."""

    def decorate(function: Callable[[Model], None]) -> Callable[..., None]:
        @wraps(function)
        def called(**values: object) -> None:
            try:
                settings = model(**values)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
            function(settings)

        command: Callable[..., None] = called
        hints = get_type_hints(model)
        for each in reversed(fields(model)):  # type: ignore[arg-type]  # a dataclass
            if "flag" in each.metadata:
                command = _declare(each, hint=hints[each.name])(command)
        return command

    return decorate


def parse(model: type[Model], arguments: Sequence[str]) -> Model:
    """The settings that a command line gives; options of other settings are passed over.

    Raises:
        click.ClickException: one of the model's options has no good value, or is missing.
    """
    found: list[Model] = []
    command = click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
        options_of(model)(found.append)
    )
    command.main(list(arguments), standalone_mode=False)
    return found[0]


def _declare(declared: Field[Any], *, hint: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    name, default, attributes = declared.name, declared.default, dict(declared.metadata["attributes"])
    kind = hint
    if get_origin(kind) is UnionType:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    multiple = get_origin(kind) is tuple
    if multiple:
        kind = get_args(kind)[0]
    flag = declared.metadata["flag"] or "--" + (name.removesuffix("s") if multiple else name).replace(
        "_", "-"
    )
    if default is True or (default is False and attributes["chart"]):
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    attributes["type"] = attributes["type"] or _type(kind)
    if default is not MISSING:
        shown = attributes["type"]
        attributes["default"] = shown.show(default) if isinstance(shown, Parsed) and not multiple else default
    return click.option(
        flag,
        name,
        cls=FieldOption,
        is_flag=kind is bool,
        multiple=multiple,
        required=default is MISSING,
        show_default=default not in (MISSING, None, "", ()) and default is not False,
        show_envvar=True,
        **attributes,
    )


def _type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    return click.Path(path_type=Path) if kind is Path else kind
