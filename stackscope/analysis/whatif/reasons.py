"""A prediction in words: what limits afterwards, and the sentence with the numbers that it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.timing.terms import TERMS
from stackscope.analysis.whatif.evaluate import contributions
from stackscope.analysis.whatif.wording import weight_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.whatif.evaluate import Evaluation
    from stackscope.analysis.whatif.predict import Comparison
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.records import Cause
    from stackscope.toggles import Setting

CAUSES: Final[Mapping[str, Cause]] = {
    "weights": "weight bandwidth",
    "head": "LM head",
    "compute": "compute",
    "attention": "KV and attention",
    "resident": "resident-prefix tax",
    "draft": "draft overhead",
    "sample": "sampling",
    "host": "host scheduling",
    "prefill": "prefill interference",
}
"""What is named when a term is the largest. What a forward takes whatever is in it is no cause."""

NAMES: Final[Mapping[str, str]] = {
    "weights": "weight reads",
    "head": "the output head",
    "compute": "computing",
    "attention": "KV reads",
    "resident": "scanning idle cells",
    "fixed": "fixed overhead",
    "draft": "drafting",
    "sample": "sampling",
    "host": "the host",
    "prefill": "prefill",
}
_SINGULAR: Final = frozenset({"head", "compute", "resident", "fixed", "draft", "sample", "host", "prefill"})
_SMALL: Final = 0.02
"""Share of a step that a term must change by to be told."""

_SPECULATION: Final = frozenset(
    {"speculation", "draft_length", "adaptive_draft", "synthetic_acceptance", "ngram_min", "ngram_max"}
)
_GROUPS: Final = (
    frozenset({"model"}),
    frozenset({"kv_type_k", "kv_type_v"}),
    frozenset({"flash_attention"}),
    frozenset({"unified_kv"}),
    frozenset({"threads"}),
)
"""Settings that are told together, each group with a clause of its own."""
_BATCH: Final = frozenset({"slots", "slots_max", "concurrency", "rate"})
_CACHE: Final = frozenset({"prefix_cache", "cache_tokens"})


def bottleneck(parts: Mapping[str, float]) -> Cause | None:
    """The cause that the largest part stands for. `None`: there is no part, or it is no cause."""
    largest = max(parts, key=parts.__getitem__)
    return CAUSES.get(largest) if parts[largest] > 0.0 else None


def reason(point: WorkingPoint, compared: Comparison, changes: Mapping[str, tuple[Setting, Setting]]) -> str:
    """One sentence with its numbers."""
    if all(before == after for before, after in changes.values()):
        return "Nothing changes."
    told = []
    if compared.is_of_arrivals and not changes.keys() & {"rate"}:
        told.append("requests arrive more slowly than they are served, so tokens/s stay and only latency changes")
    elif compared.is_overrun:
        told.append("requests then arrive faster than they can be served")
    told += _told(point, compared, changes)
    largest = _largest(compared.after)
    if largest is not None:
        told.append(largest)
    sentence = "; ".join(told)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _told(point: WorkingPoint, compared: Comparison, changes: Mapping[str, tuple[Setting, Setting]]) -> list[str]:
    told = []
    names = set(changes)
    if names & _SPECULATION:
        told.append(_speculation(compared))
    if names & _CACHE:
        told.append(_prompts(point, compared))
    if names & _BATCH:
        told.append(_batch(compared))
    if "token_budget" in names:
        before, after = changes["token_budget"]
        told.append(
            f"prompts come in chunks of up to {_number(after)} rather than {_number(before)} rows, and a step with a "
            f"prompt {_changes(*_first(compared))}"
        )
    rest = names - _SPECULATION - _CACHE - _BATCH - {"token_budget"}
    for group in _GROUPS:
        if rest & group:
            told.append(_term_told(point, compared, {name: changes[name][1] for name in rest & group}))
            rest -= group
    if rest or not told:
        told.append(_term_told(point, compared, {name: changes[name][1] for name in rest}))
    return told


def _speculation(compared: Comparison) -> str:
    before, after = compared.before, compared.after
    ms = _step(after), _step(before)
    tokens = float(after.tokens[0]), float(before.tokens[0])
    drafting = after.terms.draft
    cost = f", of which drafting {units.milliseconds(drafting)}" if drafting > _SMALL * after.terms.total else ""
    return (
        f"a forward brings {units.number(tokens[0])} rather than {units.number(tokens[1])} tokens per sequence and "
        f"takes {ms[0]} rather than {ms[1]}{cost}"
    )


def _prompts(point: WorkingPoint, compared: Comparison) -> str:
    before, after = float(compared.before.prefill_ns[0]), float(compared.after.prefill_ns[0])
    tokens = compared.before.whole_tokens
    resident = compared.after.terms.resident - compared.before.terms.resident
    share = point.useful_hit_rate if point.config.prefix_cache else None
    found = "" if share is None else f" ({units.percent(share)} of prompt tokens are found now)"
    if tokens <= 0.0:
        return f"prefill {_changes(before, after)}{found}"
    told = f"prefill {_changes(before / tokens, after / tokens)} per token{found}"
    if abs(resident) > _SMALL * compared.before.terms.total:
        told += f", and idle cells {'add' if resident > 0 else 'no longer take'} {units.milliseconds(abs(resident))}"
    return told


def _batch(compared: Comparison) -> str:
    before, after = compared.before, compared.after
    if before.sequences <= 0.0 or after.sequences <= 0.0:
        return "the batch changes"
    if abs(after.sequences - before.sequences) < 0.01 * before.sequences:
        return "no more requests are in flight than before"
    return (
        f"a forward serves {units.number(after.sequences)} rather than {units.number(before.sequences)} sequences and "
        f"takes {_step(after)} rather than {_step(before)}"
    )


def _first(compared: Comparison) -> tuple[float, float]:
    """Mean duration of a step with a prompt, before and after, for the same prompts in as many steps."""
    before, after = float(compared.before.first_ns[0]), float(compared.after.first_ns[0])
    steps = max(compared.before.first_steps, 1e-9), max(compared.after.first_steps, 1e-9)
    return before / steps[0], after / steps[1]


def _term_told(point: WorkingPoint, compared: Comparison, after: Mapping[str, Setting]) -> str:
    """What some settings do to the term of a step that they are about."""
    subject, is_plural, terms = _subject(point, after)
    was, becomes = compared.before.terms, compared.after.terms
    moves = {name: getattr(becomes, name) - getattr(was, name) for name in terms}
    name = max(moves, key=lambda name: abs(moves[name]))
    if abs(moves[name]) <= _SMALL * max(was.total, 1e-9):
        return f"{subject} {_of_prefill(compared, is_plural)}"
    verb = ("cut" if moves[name] < 0 else "raise") + ("" if is_plural else "s")
    ends = units.milliseconds(getattr(was, name)), units.milliseconds(getattr(becomes, name))
    return f"{subject} {verb} {NAMES[name]} from {ends[0]} to {ends[1]} a step"


def _of_prefill(compared: Comparison, is_plural: bool) -> str:
    """What a change does that leaves the steps without prompts as they are, as a predicate."""
    before, after = compared.before, compared.after
    moved = float(after.prefill_ns[0] - before.prefill_ns[0])
    if abs(moved) <= _SMALL * float(before.total_ns[0]) or before.whole_tokens <= 0.0:
        return f"would hardly change a step of {_step(before)}"
    verb = ("cut" if moved < 0 else "raise") + ("" if is_plural else "s")
    ends = [units.milliseconds(float(one.prefill_ns[0]) / before.whole_tokens) for one in (before, after)]
    return f"{verb} prefill from {ends[0]} to {ends[1]} per token"


def _subject(point: WorkingPoint, after: Mapping[str, Setting]) -> tuple[str, bool, tuple[str, ...]]:
    """What changes, as the subject of a sentence; whether it is a plural; and the terms that it is about."""
    if "model" in after:
        return f"{weight_bits(point, str(after['model']))} weights", True, ("weights", "head")
    if "kv_type_k" in after or "kv_type_v" in after:
        kinds = dict.fromkeys(str(after[name]) for name in ("kv_type_k", "kv_type_v") if name in after)
        return f"a KV cache in {'/'.join(kinds)}", False, ("attention",)
    if "flash_attention" in after:
        return f"attention {'in one fused pass' if after['flash_attention'] else 'not fused'}", False, ("attention",)
    if "unified_kv" in after:
        return ("one KV cache for all" if after["unified_kv"] else "a KV cache for each sequence"), False, TERMS
    if "threads" in after:
        threads = after["threads"]
        if not isinstance(threads, int):
            return "all cores", True, TERMS
        return units.counted(threads, "thread"), threads != 1, TERMS
    return ", ".join(sorted(name.replace("_", " ") for name in after)) or "it", len(after) > 1, TERMS


def _largest(after: Evaluation) -> str | None:
    parts = contributions(after)
    total = sum(parts.values())
    if total <= 0.0:
        return None
    name = max(parts, key=parts.__getitem__)
    verb = "dominates" if name in _SINGULAR else "dominate"
    if name == "prefill":
        return f"{NAMES[name]} then {verb} with {units.percent(parts[name] / total)} of the time"
    return f"{NAMES[name]} then {verb} at {units.milliseconds(getattr(after.terms, name))} a step"


def _step(one: Evaluation) -> str:
    return units.milliseconds(one.terms.total)


def _changes(before: float, after: float) -> str:
    if abs(after - before) <= 0.005 * max(before, after):
        return f"stays at {units.milliseconds(before)}"
    return f"{'falls' if after < before else 'rises'} from {units.milliseconds(before)} to {units.milliseconds(after)}"


def _number(value: Setting) -> str:
    return units.count(value) if isinstance(value, int) else str(value)
