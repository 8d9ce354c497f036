"""Draws the panels of the Grafana dashboard from what Prometheus answers to their expressions, as one SVG picture.

Grafana itself is not needed: a panel is a title, lines over the time, an axis in the panel's unit, and a legend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from tdcs.model.humanize import human

_UNIT: Final = 58
"""Pixels of one column of Grafana's grid, which has 24."""
_ROW: Final = 32
"""Pixels of one row of the grid."""
_HEADING: Final = 26
_GAP: Final = 8
_LEGEND_LINE: Final = 15
_LEGEND_LINES: Final = 4
_FONT: Final = "font-family='DejaVu Sans, Verdana, sans-serif'"
_COLOURS: Final = ("#2f7ed8", "#d9822b", "#2e9e6b", "#c0392b", "#8e5bc0", "#0d97a5", "#a3861c", "#d6568f")
_LETTER: Final = 6.3
"""Pixels of a letter of the legend."""

_STYLE: Final = (
    "<style>text{fill:#333}.row{font-size:14px;font-weight:bold}.title{font-size:12px;font-weight:bold}"
    ".axis{fill:#666;font-size:10px}.grid{stroke:#e2e2e2}.box{fill:#fff;stroke:#ccc}"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}</style>"
)

Ask = Callable[[str], Sequence[Mapping[str, Any]]]
"""Prometheus' answer to a query over the time: a `metric` with its labels, and `values` as pairs of time and text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel.

    Attributes:
        legend: what it is.
        points: times in seconds, and values; only numbers.
    """

    legend: str
    points: tuple[tuple[float, float], ...]


def lines_of(panel: Mapping[str, Any], ask: Ask, *, variables: Mapping[str, str]) -> list[Line]:
    """The lines of a panel of type `timeseries`.

    Args:
        panel: as the dashboard has it.
        ask: asks Prometheus.
        variables: what Grafana puts for names such as `$namespace`.
    """
    lines = []
    for target in panel["targets"]:
        expression = target["expr"]
        for name, value in variables.items():
            expression = expression.replace(name, value)
        for series in ask(expression):
            values = ((float(time), float(value)) for time, value in series["values"])
            points = tuple((time, value) for time, value in values if math.isfinite(value))
            if points:
                lines.append(Line(_legend(target["legendFormat"], series["metric"]), points))
    return lines


def draw(dashboard: Mapping[str, Any], lines: Mapping[int, Sequence[Line]]) -> str:
    """The dashboard as an SVG picture.

    Args:
        dashboard: as Grafana reads it.
        lines: those of each panel, by the panel's id.
    """
    panels, parts, headings = dashboard["panels"], [], 0
    times = [time for every in lines.values() for line in every for time, _ in line.points]
    span = (min(times), max(times)) if times else (0.0, 1.0)
    bottom = 0
    for panel in panels:
        place = panel["gridPos"]
        # A heading takes one row of the grid, and is lower here.
        top = (place["y"] - headings) * _ROW + headings * _HEADING
        if panel["type"] == "row":
            parts.append(f"<text x='{_GAP}' y='{top + 18}' class='row'>{escape(panel['title'])}</text>")
            headings += 1
            continue
        bottom = max(bottom, top + place["h"] * _ROW)
        parts.append(f"<g transform='translate({place['x'] * _UNIT + _GAP} {top})'>")
        parts += _panel(
            panel,
            lines.get(panel["id"], ()),
            span=span,
            size=(place["w"] * _UNIT - _GAP, place["h"] * _ROW - _GAP),
        )
        parts.append("</g>")
    width = 24 * _UNIT + _GAP
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {bottom}' width='{width}' height='{bottom}' "
        f"{_FONT} font-size='11'>"
    )
    background = f"<rect width='{width}' height='{bottom}' fill='#f4f5f5'/>"
    return "\n".join((head, _STYLE, background, *parts, "</svg>\n"))


def _panel(
    panel: Mapping[str, Any], lines: Sequence[Line], *, span: tuple[float, float], size: tuple[int, int]
) -> list[str]:
    width, height = size
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    left, right, top = 66, width - 14, 30
    bottom = height - 26 - _LEGEND_LINE * _LEGEND_LINES
    values = [value for line in lines for _, value in line.points]
    ticks = ticks_of(max(values, default=0.0), unit=unit)
    most = ticks[-1]

    def y_of(value: float) -> float:
        return round(bottom - (bottom - top) * min(max(value, 0.0), most) / most, 1)

    def x_of(time: float) -> float:
        return round(left + (right - left) * (time - span[0]) / max(span[1] - span[0], 1.0), 1)

    parts = [
        f"<rect class='box' width='{width}' height='{height}' rx='3'/>",
        f"<text class='title' x='10' y='18'>{escape(panel['title'])}</text>",
    ]
    for tick in ticks:
        parts.append(f"<path class='grid' d='M{left} {y_of(tick)}H{right}'/>")
        parts.append(
            f"<text class='axis' x='{left - 6}' y='{y_of(tick) + 3}' text-anchor='end'>{in_unit(tick, unit)}</text>"
        )
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        time = span[0] + part * (span[1] - span[0])
        text = f"{time - span[0]:.0f} s"
        parts.append(
            f"<text class='axis' x='{x_of(time)}' y='{bottom + 14}' text-anchor='{anchor}'>{text}</text>"
        )
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [f"{x_of(time)} {y_of(value)}" for time, value in line.points]
        # A line of one point is drawn as a dash.
        path = f"M{'L'.join(places)}" if len(places) > 1 else f"M{places[0]}h4"
        parts.append(f"<path class='line' stroke='{colour}' d='{path}'/>")
    return [*parts, *_legends(lines, width=width, top=bottom + 30)]


def _legends(lines: Sequence[Line], *, width: int, top: int) -> list[str]:
    """What each line is and its last value's colour, as many as there is room for."""
    parts, x, row, legend_count = [], 12.0, 0, 0
    for number, line in enumerate(lines):
        wide = len(line.legend) * _LETTER + 30
        if x > 12 and x + wide > width - 8:
            x, row = 12.0, row + 1
        if row >= _LEGEND_LINES:
            break
        y, colour = top + row * _LEGEND_LINE, _COLOURS[number % len(_COLOURS)]
        parts.append(f"<path stroke='{colour}' stroke-width='3' d='M{x:.0f} {y - 4}h12'/>")
        parts.append(f"<text x='{x + 17:.0f}' y='{y}'>{escape(line.legend)}</text>")
        x, legend_count = x + wide, legend_count + 1
    if legend_count < len(lines):
        parts.append(
            f"<text class='axis' x='{width - 10}' y='18' text-anchor='end'>and {len(lines) - legend_count} more</text>"
        )
    if not lines:
        parts.append(f"<text class='axis' x='12' y='{top}'>no data</text>")
    return parts


def ticks_of(most: float, *, unit: str) -> list[float]:
    """Round values of an axis from 0 to at least `most`: of bytes, multiples of powers of two."""
    if most <= 0:
        return [0.0, 1.0]
    base = 2.0 if unit in {"bytes", "Bps"} else 10.0
    steps = (1.0,) if base == 2.0 else (1.0, 2.0, 5.0)
    power = math.floor(math.log(most / 4, base))
    step = next(
        step * base**exponent
        for exponent in (power, power + 1, power + 2)
        for step in steps
        if step * base**exponent * 4 >= most
    )
    if unit == "short":
        step = max(step, 1.0)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def in_unit(value: float, unit: str) -> str:
    """A value as Grafana writes it in the dashboard's units."""
    match unit:
        case "bytes":
            return human(int(value))
        case "Bps":
            return f"{human(int(value))}/s"
        case "percentunit":
            return f"{value:.0%}"
        case "s":
            return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"
        case "cps":
            return f"{value:g}/s"
        case _:
            return f"{value:g}"


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)
