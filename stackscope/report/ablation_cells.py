"""The figures of every cell of an ablation, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.report.layout import columns, hang

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stackscope.experiments.effects import Ablation, Cell, Figure

LEAST_BEYOND: Final = 20
"""Values of which one lies beyond the p95: with fewer, it is no more than the largest."""


def _per(scale: float) -> Callable[[float], str]:
    return lambda value: units.number(value / scale)


def _percent(value: float) -> str:
    return units.number(value * 100, places=1)


ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("tok/s", "tokens_per_s", units.number),
    ("TTFT p50, ms", "ttft_p50_ns", _per(1e6)),
    ("TTFT p95, ms", "ttft_p95_ns", _per(1e6)),
    ("step gap p50, ms", "step_gap_p50_ns", _per(1e6)),
    ("step gap p95, ms", "step_gap_p95_ns", _per(1e6)),
    ("TPOT p50, ms", "tpot_p50_ns", _per(1e6)),
    ("TPOT p95, ms", "tpot_p95_ns", _per(1e6)),
    ("E2E p50, ms", "e2e_p50_ns", _per(1e6)),
    ("E2E p95, ms", "e2e_p95_ns", _per(1e6)),
    ("requests, n", "e2e_n", lambda value: units.count(round(value))),
    ("step gaps, n", "step_gap_n", lambda value: units.count(round(value))),
    ("A", "tokens_per_forward", units.number),
    ("acceptance, %", "acceptance", _percent),
    ("useful hits, %", "useful_hit_rate", _percent),
    ("occupancy, %", "occupancy", _percent),
    ("idle compute, %", "idle_compute", _percent),
    ("bandwidth, GB/s", "bytes_per_s", _per(1e9)),
    ("host share, %", "host_share", _percent),
    ("memory, MB", "memory_bytes", _per(1e6)),
    ("GPU memory, MB", "gpu_memory_bytes", _per(1e6)),
    ("energy, J/token", "joules_per_token", units.number),
    ("goodput, req/s", "goodput", units.number),
    ("same tokens, %", "greedy_agreement", _percent),
    ("KL, nats", "mean_kl", lambda value: units.number(value, places=4)),
)
"""Label, figure, and how it is shown."""

ALWAYS: Final = frozenset({"tokens_per_forward", "acceptance", "useful_hit_rate", "idle_compute", "joules_per_token"})
"""Shown even where no cell has them: that they are not known is worth knowing."""

WHY_UNKNOWN: Final = {
    "idle_compute": "Idle compute is told of models whose ceilings were measured beforehand: stackscope calibrate.",
    "joules_per_token": "Energy is told where the processor's package or the GPU says what power it takes.",
}
"""Said where a cell lacks one of these."""

COLUMN: Final = 9
LABEL: Final = 18


def figure_table(result: Ablation, width: int) -> list[list[Text]]:
    """Tables of as many cells as fit beside each other, by the numbers that the first table gave them."""
    at_once = max(1, (width - LABEL) // COLUMN)
    tables = [_table(result.cells[first : first + at_once]) for first in range(0, len(result.cells), at_once)]
    tables[-1].append(hang(Text(), [note_of(result)], width, style="dim"))
    return tables


def note_of(result: Ablation) -> str:
    """What the figures of a cell are."""
    told = "Medians over blocks of each run's value; tokens per second geometric means; n over all runs."
    if any(mark_of(cell, name) for cell in result.cells for _, name, _ in ROWS):
        told += " * Of so few values in a run, the p95 is no more than the largest."
    return " ".join([told, *(why for name, why in WHY_UNKNOWN.items() if not _is_known(result, name))])


def _is_known(result: Ablation, name: str) -> bool:
    return all(name in cell.figures for cell in result.cells)


def _table(cells: Sequence[Cell]) -> list[Text]:
    rows = []
    for label, name, show in ROWS:
        if name in ALWAYS or any(name in cell.figures for cell in cells):
            rows.append([label, *(shown_figure(cell, name, show) for cell in cells)])
    made = columns(["cell", *(str(cell.cell) for cell in cells)], rows, first_width=LABEL - 2)
    return [Text(line.rstrip(), style="bold" if index == 0 else "") for index, line in enumerate(made)]


def shown_figure(cell: Cell, name: str, show: Callable[[float], str]) -> str:
    """A figure of a cell as text."""
    figure = cell.figures.get(name)
    return units.UNKNOWN if figure is None else f"{show(figure.value)}{mark_of(cell, name)}"


def mark_of(cell: Cell, name: str) -> str:
    """What a p95 carries that too few values stand behind."""
    if not name.endswith("_p95_ns") or name not in cell.figures:
        return ""
    return "*" if _per_run(cell.figures, name.removesuffix("_p95_ns")) < LEAST_BEYOND else ""


def _per_run(figures: Mapping[str, Figure], latency: str) -> float:
    """Values of a latency in one run on average."""
    n = figures.get(f"{latency}_n")
    return 0.0 if n is None else n.value / n.n
