"""What speculation wins: tokens per forward, and which drafts are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.tui.charts import bar
from stackscope.tui.compose import Rows, figure, flow, quantity, sentence, wrapped
from stackscope.tui.lines import Line, Span, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.series import add_chart
from stackscope.tui.wording import awaited, break_even_tokens, has_begun

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot, Window


class AcceptancePane(Pane):
    """Acceptance of drafts."""

    id: ClassVar = "acceptance"
    title: ClassVar = "Acceptance"
    help: ClassVar = PaneHelp(
        meaning="A is the headline: tokens that a sequence wins per target forward it takes part in while decoding; 1 "
        "without speculation, at any batch size. The rate says how good the drafts are, coverage how often there was "
        "one: high acceptance of few drafts wins little. The bars show how often the token at each place of a draft "
        "entered the output. Wasted rows were computed and committed nothing. The bonus token, the target's own after "
        "the drafts, never counts as accepted.",
        formula="A = tokens emitted by decoding and verifying sequences ÷ (sequence, forward) pairs of that kind. rate"
        " = Σ min(accepted, emitted) ÷ Σ drafted. coverage = pairs with a draft ÷ such pairs. bar j = verifications "
        "that committed ≥ j drafted tokens ÷ verifications. wasted rows = Σ (drafted + 1 − emitted) ÷ verifications. "
        "The break-even A is the time of a step with drafts ÷ that of one without: below it, speculation loses.",
        moves="A draft length near where the bars become short; a drafter that knows the text (n-gram look-up for text"
        " that repeats itself, a draft model of the same family); lower temperature. More slots make verification "
        "dearer.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        if not has_begun(snapshot):
            return Drawn(wrapped(awaited(snapshot, "acceptance shows here"), size.width))
        window = snapshot.now if snapshot.now.tokens_per_forward is not None else snapshot.minute
        rows = Rows()
        if is_off(snapshot):
            return self._off(context, window)
        if window.tokens_per_forward is None:
            return Drawn(wrapped("This source does not tell how many tokens its forwards yield.", size.width))
        rows.add(0, _rates(window, size.width))
        positions = window.by_position
        n_bars = max(min(len(positions), size.height - 4 if size.height > 5 else size.height - 2), 0)
        n_bars = n_bars if n_bars >= min(len(positions), 3) else 0
        n_alone = n_bars if n_bars == len(positions) else max(n_bars - 1, 0)
        rows.add(1, *_bars(context, positions[:n_alone]))
        rows.add(1, _compact(positions, n_alone, size.width))
        rows.add(2, _wasted(window, size.width))
        # Once it is known, it says more than the last of the wasted rows: whether drafts pay at all.
        rows.add(4 if break_even_tokens(snapshot) is None else 1, _break_even(snapshot, size.width))
        add_chart(rows, 3, context, "tokens_per_forward", "A")
        return Drawn(rows.laid_out(size.height), _notes(window))

    def _off(self, context: Context, window: Window) -> Drawn:
        """One token a forward, and what was there before."""
        rows = Rows()
        rows.add(0, *wrapped("Speculation is off.", context.size.width, ""))
        rows.add(
            1, *wrapped("Each forward yields one token per sequence: A is 1 at any batch size.", context.size.width)
        )
        add_chart(rows, 2, context, "tokens_per_forward", "A")
        rows.add(
            3 if break_even_tokens(context.snapshot) is None else 1, _break_even(context.snapshot, context.size.width)
        )
        return Drawn(rows.laid_out(context.size.height), _notes(window))


def is_off(snapshot: Snapshot) -> bool:
    """Whether it is known that nothing drafts, and none of the last drafts is left in the window."""
    now = snapshot.now
    has_drafted = bool(now.drafted) or (now.tokens_per_forward or 0.0) > 1.0
    return snapshot.config is not None and snapshot.config.speculation == "off" and not has_drafted


def _notes(window: Window) -> tuple[Line, ...]:
    a = units.number(window.tokens_per_forward)
    head = (Span("A ", "label"), Span(a, "headline" if a != units.UNKNOWN else "unknown"))
    return ((*head, Span(" tok/forward", "unit")), (*head, Span(" tok", "unit")), head)


def _rates(window: Window, room: int) -> Line:
    items = [figure("rate", units.percent(window.acceptance)), figure("coverage", units.percent(window.coverage))]
    if window.drafted is not None:
        items.append(figure("drafted", f"{units.count(window.drafted)} tok"))
    return flow(items, room)


def _bars(context: Context, positions: tuple[float, ...]) -> list[Line]:
    """A bar for each place of a draft."""
    length = context.size.width - 16
    lines = []
    for place, share in enumerate(positions, 1):
        number, _, unit = units.percent(share).partition(" ")
        head = Span(f"token {place:<2} " if length >= 8 else f"{place:<2} ", "label")
        drawn = bar(share, length, context.look, "part.verify") if length >= 8 else ()
        lines.append((head, *drawn, Span(f"{number:>5}", "value"), Span(f" {unit}", "unit")))
    return lines


def _compact(positions: tuple[float, ...], start: int, room: int) -> Line:
    """The places that have no bar on one line, in per cent; as many as fit."""
    if start >= len(positions):
        return ()
    first = units.count(start + 1)
    name = f"token {first}" if start + 1 == len(positions) else f"tokens {first}–{units.count(len(positions))}"
    items = [(Span(name, "label"),)]
    items += [(Span(units.number(share * 100, places=0), "value"),) for share in positions[start:]]
    line = flow(items, room - 2, 1)
    return (*line, Span(" %", "unit"))


def _wasted(window: Window, room: int) -> Line:
    if window.wasted_rows is None:
        return ()
    share = quantity(units.percent(window.wasted_share))
    per = quantity(units.number(window.wasted_rows))
    return flow(((Span("wasted rows ", "label"), *per), (*share, Span(" of rows", "unit"))), room)


def _break_even(snapshot: Snapshot, room: int) -> Line:
    """A below which drafts lose here, as it is predicted; of the drafts in force, or of those that would be best."""
    known = break_even_tokens(snapshot)
    if known is not None:
        low, high = units.number(known.low), units.number(known.high)
        shown = (
            Span("break-even A ", "label"),
            Span(units.number(known.value), "value"),
            Span(f" [{low}, {high}]", "unit"),
        )
        return shown if width(shown) <= room else shown[:2]
    head = (Span("break-even A ", "label"), Span(units.UNKNOWN, "unknown"))
    reasons = ("cost of steps without drafts not known", "plain steps not known", "not known yet")
    reason = sentence(reasons, room - width(head) - 2)
    return (*head, Span("  "), *reason) if reason else head
