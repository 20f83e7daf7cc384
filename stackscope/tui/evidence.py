"""The evidence behind the verdict as lines: where the time goes, what is moved and computed, at what rates, what is
not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.ledger import Ledger, WorkSum
from stackscope.tui import explained
from stackscope.tui.charts import bar, swatch
from stackscope.tui.compose import wrapped
from stackscope.tui.lines import Line, Span, fitted, printable, width
from stackscope.tui.wording import awaited, has_begun, was_busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from stackscope.analysis.account import Account
    from stackscope.analysis.live.snapshot import Part, Snapshot, Verdict, Window
    from stackscope.records import StepRecord
    from stackscope.tui.look import Look

    Text: TypeAlias = Callable[[float | None], str]

DEFINITIONS: Final = {
    "prefill": "prompt rows of the target's forwards, by their share of the rows",
    "decode": "one row of those forwards for each sequence that decodes",
    "verify": "the drafted rows beyond that one",
    "draft": "all that it takes to obtain drafts: look-ups, the draft model's forwards",
    "sample": "logits to tokens, and verification of drafts",
    "schedule": "admitting, building batches, trimming and filing of what was computed",
    "emit": "tokens to text, stop strings, finishing requests",
    "shadow": "watching what an optimisation that is off would have done",
    "idle": "between steps: nothing to do, or a rebuild",
    "unexplained": "the rest of the loop, and forwards that were cut short",
}
COUNTED_STEPS: Final = 120
"""Newest steps whose bytes and operations are counted part by part."""
BYTE_PARTS: Final = {
    "attention_weights": "attention weights", "ffn_weights": "feed-forward weights",
    "expert_weights_expected": "expert weights, expected", "recurrent_weights": "recurrent weights",
    "head_weights": "output matrix", "other_weights": "norms and other weights", "embedding_rows": "embedding rows",
    "kv_read": "KV read", "kv_written": "KV written", "recurrent_state": "recurrent state",
}  # fmt: skip
FLOP_PARTS: Final = {
    "attention_projections": "attention projections", "attention_scores": "attention scores", "ffn": "feed-forward",
    "experts": "experts", "recurrent": "recurrent", "head": "output matrix", "other": "other",
}  # fmt: skip
NO_EXPLAINER: Final = (
    "This comes from the measured phase shares alone: they tell which part of a step is long, not yet why. Naming a"
    " cause, such as bandwidth, compute or overhead, needs the model's geometry and some seconds of steps."
)
_NAME: Final = 26
_BAR: Final = 24


@dataclass(frozen=True)
class Counted:
    """What some steps of one configuration moved and computed."""

    n_steps: int
    target: Account
    draft: Account | None
    """`None`: there were no drafts by a model, or its geometry is not known."""


def counted(snapshot: Snapshot, steps: Sequence[StepRecord]) -> Counted | None:
    """The newest steps under the configuration in force, counted. `None`: the model's geometry is not known."""
    header, config = snapshot.header, snapshot.config
    if header is None or header.model is None or header.config is None or config is None or not steps:
        return None
    if config.model != header.config.model:
        return None  # The weights were exchanged, and a snapshot does not carry the new ones' tensors.
    newest = [step for step in steps[-COUNTED_STEPS:] if step.epoch == steps[-1].epoch and not step.aborted]
    if not newest:
        return None
    ledger = Ledger(header.model, config.kv_type_k, config.kv_type_v)
    work = WorkSum()
    for step in newest:
        work.add(ledger.count(step))
    draft = None
    if header.draft_model is not None and config.draft_model == header.config.draft_model:
        drafts = Ledger(header.draft_model, config.kv_type_k, config.kv_type_v)
        sums = WorkSum()
        for step in newest:
            if step.draft:
                sums.add(drafts.count_draft(step.draft))
        draft = drafts.price(sums.total)
    return Counted(len(newest), ledger.price(work.total), draft)


def evidence(snapshot: Snapshot, found: Counted | None, room: int, look: Look) -> tuple[Line, ...]:
    """Everything, in lines of at most `room` cells."""
    lines: list[Line] = [*_verdict(snapshot, room, look), ()]
    if snapshot.explanation is not None:
        busy = was_busy(snapshot)
        for section in explained.sections(snapshot.explanation, snapshot.score, room, look, was_busy=busy):
            lines += [*section, ()] if section else []
    lines += [*_shares(snapshot, room, look), ()]
    lines += [*_moved(snapshot, found, room, look), ()]
    lines += [*_rates(snapshot, room), ()]
    lines += _unknown(snapshot, found, room, look)
    return tuple(fitted(line, room, look.ellipsis) if width(line) > room else line for line in lines)


def _head(text: str, note: str = "") -> Line:
    return (Span(text, "headline"), Span(f"  {note}", "label"))


_WHOLES: Final = {"queueing": "the time of requests"}
"""What the share of a cause is of, where it is not wall time."""


def _verdict(snapshot: Snapshot, room: int, look: Look) -> list[Line]:
    verdict = snapshot.verdict
    lines: list[Line] = []
    if verdict.name is None:
        lines += [_head("Nothing is named"), *wrapped(_sentence(verdict) or "There is no step yet.", room, "")]
    else:
        since = "" if verdict.since_ns is None else f"since {units.clock(verdict.since_ns)}"
        before = "" if verdict.previous is None else f", before that {printable(verdict.previous)}"
        whole = _WHOLES.get(verdict.name, "wall time")
        share = "" if verdict.share is None else f"  {units.percent(verdict.share)} of {whole}"
        lines.append((*_head(printable(verdict.name)), Span(share, "value"), Span(f"  {since}{before}", "label")))
        lines += wrapped(_sentence(verdict), room, "")
    if snapshot.explanation is not None and verdict.basis == "explainer":
        lines += explained.cause(snapshot.explanation, room, look)
    elif verdict.name is not None and verdict.rejected:
        lines += wrapped(f"Not: {'; '.join(map(printable, verdict.rejected))}.", room)
    if verdict.basis == "phases":
        lines += wrapped(NO_EXPLAINER, room, "warning")
    return lines


def _sentence(verdict: Verdict) -> str:
    text = printable(verdict.sentence).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _shares(snapshot: Snapshot, room: int, look: Look) -> list[Line]:
    """The parts of wall time, with what each is."""
    now, minute = snapshot.now, snapshot.minute
    if not minute.parts and not now.parts:
        why = "This source does not tell the phases of a step."
        if not has_begun(snapshot):
            why = awaited(snapshot, "the parts of its time show here")
        return [_head("Where the time goes"), *wrapped(why, room)]
    before = {part.name: part for part in minute.parts}
    current: dict[str, Part] = {part.name: part for part in now.parts}
    lines: list[Line] = [_head("Where the time goes", "share of wall time: now (2 s), the last minute, time per step")]
    has_text = room >= 84
    for name, definition in DEFINITIONS.items():
        one, other = current.get(name), before.get(name)
        per_step = None if one is None or not now.steps else one.ns / now.steps
        line: Line = (
            swatch(name, look), Span(f" {name:<12}"),
            Span(f"{units.percent(None if one is None else one.share):>8}", "value"),
            Span(f"{units.percent(None if other is None else other.share):>9}", "label"),
            Span(f"{units.duration(per_step):>10}  ", ""),
        )  # fmt: skip
        if has_text:
            first, *rest = wrapped(definition, room - width(line)) or ((),)
            lines.append((*line, *first))
            lines += [(Span(" " * width(line)), *text) for text in rest]
        else:
            share = None if one is None else one.share
            lines.append((*line, *bar(share, max(room - width(line), 0), look, f"part.{name}")))
    return lines


def _moved(snapshot: Snapshot, found: Counted | None, room: int, look: Look) -> list[Line]:
    """Bytes and operations per step, by part where they can be counted."""
    if found is None:
        return _moved_at_least(snapshot, room)
    note = f"per step, counted over the newest {units.counted(found.n_steps, 'step')}"
    lines: list[Line] = [_head("Bytes moved by the target", note)]
    lines += _table(found.target.named_bytes(), BYTE_PARTS, found.n_steps, units.data_size, room, look)
    lines += [(), _head("Operations of the target", note)]
    lines += _table(found.target.flops.named(), FLOP_PARTS, found.n_steps, units.flops, room, look)
    if found.draft is not None and found.draft.total_bytes:
        n = found.n_steps
        size, work = units.data_size(found.draft.total_bytes / n), units.flops(found.draft.flops.total / n)
        lines += [(), *wrapped(f"The draft model moves {size} and computes {work} per step beside that.", room, "")]
    text = (
        "Counted from the tensor table and from who was in each batch: weights once per pass, the KV of each sequence"
        " once per layer. Activations are left out: how often they reach memory is for the kernels to decide."
    )
    return [*lines, *wrapped(text, room)]


def _table(
    parts: Mapping[str, int | float], names: Mapping[str, str], n_steps: int, text: Text, room: int, look: Look
) -> list[Line]:
    """Parts that are not zero, largest first, with their share of the sum."""
    total = sum(parts.values())
    rows = sorted(((value, names.get(name, name)) for name, value in parts.items() if value), reverse=True)
    cells = max(min(_BAR, room - _NAME - 24), 0)
    lines: list[Line] = []
    for value, name in rows:
        share = value / total
        lines.append(
            (Span(f"{name:<{_NAME}}"), Span(f"{text(value / n_steps):>12}", "value"),
             Span(f"{units.percent(share):>9}  ", "label"), *bar(share, cells, look))
        )  # fmt: skip
    lines.append((Span(f"{'together':<{_NAME}}", "label"), Span(f"{text(total / n_steps):>12}", "value")))
    return lines


def _moved_at_least(snapshot: Snapshot, room: int) -> list[Line]:
    """The same from rates, where no step can be counted here."""
    window = snapshot.now if snapshot.now.bytes_per_step is not None else snapshot.minute
    lines: list[Line] = [_head("Bytes moved", "per step, target and draft model")]
    if window.bytes_per_step is None or window.step_ns is None or not window.steps:
        return [*lines, *wrapped("Not known: this source does not tell the model's geometry.", room)]
    per_step = window.wall_ns / window.steps / 1e9
    rows = (
        ("weights", window.weight_bytes_per_s), ("KV read", window.kv_read_bytes_per_s),
        ("KV written", window.kv_write_bytes_per_s),
    )  # fmt: skip
    for name, rate in rows:
        size = None if rate is None else rate * per_step
        lines.append((Span(f"{name:<{_NAME}}"), Span(f"{units.data_size(size):>12}", "value")))
    lines.append((Span(f"{'together':<{_NAME}}", "label"),
                  Span(f"{units.data_size(window.bytes_per_step):>12}", "value")))  # fmt: skip
    return lines


def _rates(snapshot: Snapshot, room: int) -> list[Line]:
    """Rates now and over the last minute, with what they are of."""
    one, other = snapshot.now, snapshot.minute
    lines: list[Line] = [_head("Rates", "now (2 s), the last minute")]
    for name, now, minute, what in (*_speeds(one, other), *_loads(one, other), *_drafting(one, other)):
        line: Line = (
            Span(f"{name:<{_NAME}}"), Span(f"{now:>14}", "unknown" if now == units.UNKNOWN else "value"),
            Span(f"{minute:>15}  ", "label"),
        )  # fmt: skip
        if room - width(line) >= len(what):
            line = (*line, Span(what, "label"))
        lines.append(line)
    for name, rate, ceiling in (
        ("of measured bandwidth", one.forward_bytes_per_s, snapshot.bandwidth_ceiling),
        ("of measured compute", one.forward_flops_per_s, snapshot.compute_ceiling),
    ):
        share = None if rate is None or ceiling is None else rate / ceiling
        if share is not None:
            lines.append((Span(f"{name:<{_NAME}}"), Span(f"{units.percent(share):>14}", "value")))
    return lines


def _speeds(one: Window, other: Window) -> Iterable[tuple[str, str, str, str]]:
    yield _rate("tokens out", units.token_rate, one.tokens_per_s, other.tokens_per_s, "over wall time")
    yield _rate("tokens prefilled", units.token_rate, one.prefill_tokens_per_s, other.prefill_tokens_per_s,
                "over wall time")  # fmt: skip
    yield _rate("bytes in forwards", units.bandwidth, one.forward_bytes_per_s, other.forward_bytes_per_s,
                "the target's bytes over the time of its forwards")  # fmt: skip
    yield _rate("operations in forwards", units.flop_rate, one.forward_flops_per_s, other.forward_flops_per_s,
                "the same of its operations")  # fmt: skip
    yield _rate("bytes", units.bandwidth, one.bytes_per_s, other.bytes_per_s, "target and draft over wall time")


def _loads(one: Window, other: Window) -> Iterable[tuple[str, str, str, str]]:
    yield _rate("threads running", units.percent, one.cpu_share, other.cpu_share,
                "CPU time in forwards over threads times their time; spinning counts")  # fmt: skip
    yield _rate("slots busy", units.percent, one.occupancy, other.occupancy, "over step time")
    yield _rate("rows per forward", units.number, one.batch_rows, other.batch_rows, "")
    yield _rate("useful rows", units.percent, one.useful_row_share, other.useful_row_share,
                "tokens out over the rows of sequences that decode")  # fmt: skip
    yield _rate("useful prefix hits", units.percent, one.useful_hit_rate, other.useful_hit_rate,
                "prompt tokens that were not computed again")  # fmt: skip


def _drafting(one: Window, other: Window) -> Iterable[tuple[str, str, str, str]]:
    yield _rate("A, tokens per forward", units.number, one.tokens_per_forward, other.tokens_per_forward,
                "of sequences that decode")  # fmt: skip
    yield _rate("coverage", units.percent, one.coverage, other.coverage, "forwards that carried a draft")
    yield _rate("acceptance", units.percent, one.acceptance, other.acceptance, "accepted over drafted")
    yield _rate("wasted rows", units.percent, one.wasted_share, other.wasted_share, "verified for nothing")


def _rate(name: str, text: Text, now: float | None, minute: float | None, what: str) -> tuple[str, str, str, str]:
    return name, text(now), text(minute), what


def _unknown(snapshot: Snapshot, found: Counted | None, room: int, look: Look) -> list[Line]:
    """What is missing for a full explanation, and why."""
    missing: list[str] = []
    if was_busy(snapshot):
        missing.append("What this machine can do at most was measured on a busy machine: stackscope calibrate.")
    elif snapshot.bandwidth_ceiling is None or snapshot.compute_ceiling is None:
        missing.append("What this machine can do at most: its bandwidth and compute have not been measured.")
    if found is None and snapshot.n_steps > 0:
        header = snapshot.header
        is_exchanged = header is not None and header.model is not None
        why = "the weights were exchanged" if is_exchanged else "the model's geometry is not told"
        missing.append(f"Bytes and operations part by part: {why}.")
    if snapshot.now.cpu_share is None and snapshot.minute.cpu_share is None:
        missing.append("Whether the threads really ran: their CPU time is not told.")
    if snapshot.hardware is None:
        missing.append("What the hardware counted itself: nobody samples it.")
    else:
        if not snapshot.hardware.gpus:
            missing.append("Bytes as the hardware counted them: only GPUs with such counters tell that.")
        missing += [f"{name}: {why}." for name, why in list(snapshot.hardware.unknown.items())[:4]]
    if snapshot.explanation is not None:
        missing += explained.unknown(snapshot.explanation)
    elif snapshot.verdict.basis != "explainer":
        missing.append("What each change would bring: nobody predicts here.")
    missing += [f"Bytes and operations leave out {what}." for what in snapshot.not_modelled]
    lines: list[Line] = [_head("What is not known")]
    for text in missing:
        first, *rest = wrapped(printable(text), room - 2, "")
        lines.append((Span(f"{look.dot} ", "label"), *first))
        lines += [(Span("  "), *line) for line in rest]
    return lines
