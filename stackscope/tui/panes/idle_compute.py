"""Compute that is used and what is left to spend, against the ceiling measured on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.tui.charts import ceiling
from stackscope.tui.compose import Rows, figure, flow, quantity, said, wrapped
from stackscope.tui.lines import Line, Span, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.series import framed_area
from stackscope.tui.timeline import known
from stackscope.tui.wording import awaited, break_even_tokens, has_begun, no_ceiling

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot


_ROOMY = 50
"""Columns from which the scale has its unit."""
_SPARE, _SPENT = 0.5, 0.2
"""Shares of compute: with more idle there is room for drafts, with less there is hardly any."""
_DEAR = 1.4
"""Steps' worth that a round of drafts takes, from which idle compute is no room for them: few rows do not reach it."""


class IdleComputePane(Pane):
    """Idle compute."""

    id: ClassVar = "compute"
    title: ClassVar = "Idle compute"
    help: ClassVar = PaneHelp(
        meaning="How much of the compute that this machine can deliver is used, target and draft model together, and "
        "how much is left. Decoding is mostly bound by memory: compute that stands idle is what speculation, or a "
        "larger batch, can spend at little cost. The shaded area is what is left. Without a measured ceiling only the "
        "achieved rate is known, and no percentage is made up from a data sheet.",
        formula="idle = 1 − (FLOPs by the ledger ÷ wall time) ÷ measured FLOP/s. In forwards: Σ FLOPs of the target ÷ "
        "Σ forward phase.",
        moves="Drafts and slots raise the rows of a forward and with them what is used; when little is left, each "
        "further row costs its full time and speculation begins to lose. That can come earlier: the ceiling is of many "
        "rows, and kernels do not reach it with few. Where a round of drafts is predicted to take much longer than a "
        "plain step, the headline says so, whatever stands idle.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        if not has_begun(snapshot):
            return Drawn(wrapped(awaited(snapshot, "what it computes shows here"), size.width))
        seen = known(snapshot.history, "flops_per_s", size.width)
        if snapshot.now.flops_per_s is None and not seen:
            return Drawn(wrapped(_missing(snapshot), size.width))
        top = snapshot.compute_ceiling
        rows = Rows()
        is_measured = top is not None
        spelled = units.flop_rate if size.width >= _ROOMY else units.scaled  # the line below has the unit too
        scale = top if top is not None else ceiling(seen)
        rows.fill(
            0, 1, max(size.height - 1, 1),
            lambda n: framed_area(context, "flops_per_s", n, top=scale, spelled=spelled, has_spare=is_measured),
        )  # fmt: skip
        rows.add(1, _figures(snapshot, size.width))
        return Drawn(rows.laid_out(size.height), _notes(snapshot))


def idle_share(snapshot: Snapshot) -> float | None:
    """Share of the measured compute that was not used in the last seconds. `None`: one of the two is not known."""
    used, top = snapshot.now.flops_per_s, snapshot.compute_ceiling
    return None if used is None or not top else max(1.0 - used / top, 0.0)


def _missing(snapshot: Snapshot) -> str:
    if snapshot.minute.steps > 0 or (snapshot.header is not None and snapshot.header.model is None):
        return "The model's geometry is not known, so neither are its FLOPs."
    return "There was no step in the last minute."


def _notes(snapshot: Snapshot) -> tuple[Line, ...]:
    idle = idle_share(snapshot)
    if idle is not None:
        share = quantity(units.percent(idle), "headline")
        told = [(*share, Span(f" idle{hint}", "label")) for hint in (*_hints(snapshot, idle), "")]
        return (*told, share)
    rate = snapshot.now.flops_per_s
    return () if rate is None else (quantity(units.flop_rate(rate), "headline"),)


def _hints(snapshot: Snapshot, idle: float) -> tuple[str, ...]:
    """What the idle share is good for, longest first. Only where drafts are cheap by what was measured is it room."""
    if idle < _SPENT:
        return (": little left to spend",)
    dear = break_even_tokens(snapshot)
    if dear is None:
        return ()
    if dear.value >= _DEAR:
        times = f"{units.number(dear.value)}×"
        return (f", yet drafts make a step {times} as long", f", yet drafts cost {times}")
    return (": room to speculate",) if idle >= _SPARE else ()


def _figures(snapshot: Snapshot, room: int) -> Line:
    """Rates in words below the chart."""
    now, top = snapshot.now, snapshot.compute_ceiling
    used = figure("used", units.flop_rate(now.flops_per_s), style="value")
    forwards = figure("in forwards", units.flop_rate(now.forward_flops_per_s))
    if top is None:
        unmeasured = said(f"ceiling {no_ceiling(snapshot, room - width(used) - len('  ceiling '))}", "unknown")
        return flow((used, unmeasured, forwards), room, 2) if room >= 40 else flow((unmeasured, used), room, 2)
    return flow((used, figure("of", f"{units.flop_rate(top)} measured"), forwards), room)
