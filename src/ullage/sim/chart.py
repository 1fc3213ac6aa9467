"""Charts as SVG: curves with bands, drawn without a library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import cycle
from math import floor, log10

from ullage.sim.summary import Chart, Series

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#4d4d4d", "#a6761d")
"""Colours that colour-blind readers can distinguish (after Okabe and Ito). Further curves repeat them."""

_WIDTH, _HEIGHT = 900, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 190, 60, 50
_TICKS = 8


def draw(chart: Chart) -> str:
    """Return the chart. The legend lists the curves in the order of their last values."""
    xs = _Axis([x for series in chart.series for x in series.x], _LEFT, _WIDTH - _RIGHT)
    ys = _Axis([y for series in chart.series for y in (*series.low, *series.high)], _HEIGHT - _BOTTOM, _TOP)
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
    font = 'font-family="system-ui,sans-serif" font-size="12" fill="#1c1c1c"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} role="img"><title>{escape(chart.title)}</title>',
        _text(14, 22, chart.title, 'font-size="15" font-weight="600"'),
    ]
    for at in ys.ticks():
        y = ys.on(at)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{at:g}", 'text-anchor="end"'))
    parts += [_text(xs.on(at), _HEIGHT - _BOTTOM + 18, f"{at:g}", 'text-anchor="middle"') for at in xs.ticks()]
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, chart.x_title, 'text-anchor="middle"'))
    parts.append(_text(14, _TOP - 16, chart.y_title, ""))
    coloured = list(zip(chart.series, cycle(COLOURS), strict=False))
    for series, colour in coloured:
        band = [*zip(series.x, series.high, strict=True), *reversed(list(zip(series.x, series.low, strict=True)))]
        parts.append(f'<polygon points="{_points(xs, ys, band)}" fill="{colour}" opacity="0.15"/>')
    for series, colour in coloured:
        line = _points(xs, ys, list(zip(series.x, series.mean, strict=True)))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    for place, (series, colour) in enumerate(sorted(coloured, key=_last_value, reverse=True)):
        y = _TOP + 12 + 20 * place
        x = _WIDTH - _RIGHT + 14
        parts.append(f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(x + 24, y, series.name, ""))
    return f"{''.join(parts)}</svg>"


def _last_value(curve: tuple[Series, str]) -> float:
    series, _ = curve
    return series.mean[-1]


class _Axis:
    """A linear scale from values to the pixels `start` to `end`."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values, default=0.0), max(values, default=1.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        self._low, self._high = low, high
        self._start, self._end = start, end

    def on(self, value: float) -> float:
        return self._start + (value - self._low) / (self._high - self._low) * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Return round values with steps of 1, 2 or 5 times a power of ten."""
        rough = (self._high - self._low) / _TICKS
        power = 10.0 ** floor(log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first, last = floor(self._low / step) + (self._low % step > 0), floor(self._high / step)
        return [round(n * step, 10) for n in range(int(first), int(last) + 1)]


def _points(xs: _Axis, ys: _Axis, values: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{xs.on(x):.1f},{ys.on(y):.1f}" for x, y in values)


def _text(x: float, y: float, text: str, more: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'
