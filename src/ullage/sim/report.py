"""The report of a replay: results.jsonl, table.md, index.html and PNG plots."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path

from ullage.sim.cells import Result, write_results
from ullage.sim.chart import COLOURS, draw
from ullage.sim.summary import Chart, SummaryTable

_STYLE = """\
body{font:15px/1.5 system-ui,sans-serif;color:#1c1c1c;background:#fff;max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0 2rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #ddd}
th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}
figure{margin:0 0 2rem}svg{max-width:100%;height:auto}.scroll{overflow-x:auto}"""


def write_report(
    folder: Path, results: Sequence[Result], tables: Sequence[SummaryTable], charts: Sequence[Chart]
) -> bool:
    """Write the report. Return whether PNG plots were written, which needs matplotlib."""
    write_results(results, folder / "results.jsonl")
    (folder / "table.md").write_text("\n".join(map(_markdown, tables)))
    (folder / "index.html").write_text(_page(tables, charts))
    if find_spec("matplotlib") is None:
        return False
    for chart in charts:
        _plot(chart, folder / f"{chart.name}.png")
    return True


def _markdown(table: SummaryTable) -> str:
    lines = (table.titles, tuple("---" for _ in table.titles), *table.rows)
    rows = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
    return f"## {table.title}\n\n{table.description}\n\n{rows}\n"


def _page(tables: Sequence[SummaryTable], charts: Sequence[Chart]) -> str:
    figures = "".join(f"<figure>{draw(chart)}</figure>\n" for chart in charts)
    parts = "".join(map(_html, tables))
    head = f'<meta charset="utf-8"><title>Ullage replay</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>Replay</h1>\n{figures}{parts}</body></html>\n'


def _html(table: SummaryTable) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>\n"

    rows = "".join(line(row, "td") for row in table.rows)
    head = f"<h2>{escape(table.title)}</h2><p>{escape(table.description)}</p>"
    return f'{head}<div class="scroll"><table>{line(table.titles, "th")}{rows}</table></div>\n'


def _plot(chart: Chart, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - slow to import, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415  heavy, and needed only here

    figure = Figure(figsize=(9, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for series, colour in zip(chart.series, cycle(COLOURS), strict=False):
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(series.x, series.mean, color=colour, label=series.name)
    axes.set(title=chart.title, xlabel=chart.x_title, ylabel=chart.y_title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)
