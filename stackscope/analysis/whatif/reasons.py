"""A prediction in words: what limits afterwards, and the sentence with the numbers that it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.analysis.timing.terms import TERMS
from stackscope.analysis.whatif.evaluate import contributions
from stackscope.analysis.whatif.wording import weight_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    {
        "speculation", "draft_length", "draft_length_max", "adaptive_draft", "synthetic_acceptance", "ngram_min",
        "ngram_max",
    }
)  # fmt: skip
_BATCH: Final = frozenset({"slots", "slots_max", "concurrency", "rate"})
_FORWARD: Final = _SPECULATION | _BATCH
_CACHE: Final = frozenset({"prefix_cache", "cache_tokens"})
_BUDGET: Final = frozenset({"token_budget"})
_GROUPS: Final = (
    _FORWARD,
    _CACHE,
    _BUDGET,
    frozenset({"model"}),
    # One part: a quantised cache needs the fused pass, so that its type alone may be no configuration.
    frozenset({"kv_type_k", "kv_type_v", "flash_attention"}),
    frozenset({"unified_kv"}),
    frozenset({"threads"}),
)
"""Settings that are told together, in the order in which they are told."""
_LAYOUT_TERMS: Final = ("weights", "head", "compute", "attention", "resident", "fixed", "draft")
"""What the number of passes and the cells that they scan can change: neither sampling nor the host's work."""


class _Move(NamedTuple):
    """The work before and after some of the changes."""

    before: Evaluation
    after: Evaluation


class _Effect(NamedTuple):
    """What some settings do themselves."""

    names: frozenset[str]
    subject: str
    is_plural: bool
    term: str | None
    """The term of a step that they change most, or `prefill`. `None`: they hardly change anything."""
    move: _Move


def bottleneck(parts: Mapping[str, float]) -> Cause | None:
    """The cause that the largest part stands for. `None`: there is no part, or it is no cause."""
    largest = max(parts, key=parts.__getitem__)
    return CAUSES.get(largest) if parts[largest] > 0.0 else None


def reason(
    point: WorkingPoint,
    compared: Comparison,
    changes: Mapping[str, tuple[Setting, Setting]],
    under: Callable[[frozenset[str]], Evaluation | str],
) -> str:
    """One sentence with its numbers. `under` evaluates only those of the changes that it is given the names of: each
    part of a combination is told by what it does itself, and what several do to one term is told once."""
    if all(before == after for before, after in changes.values()):
        return "Nothing changes."
    told = []
    if compared.is_of_arrivals and not changes.keys() & {"rate"}:
        told.append("requests arrive more slowly than they are served, so tokens/s stay and only latency changes")
    elif compared.is_overrun:
        told.append("requests then arrive faster than they can be served")
    told += _Telling(point, compared, changes, under).clauses()
    largest = _largest(compared.after)
    if largest is not None:
        told.append(largest)
    sentence = "; ".join(told)
    return f"{sentence[:1].upper()}{sentence[1:]}."


class _Telling:
    """Tells the parts of a change."""

    def __init__(
        self,
        point: WorkingPoint,
        compared: Comparison,
        changes: Mapping[str, tuple[Setting, Setting]],
        under: Callable[[frozenset[str]], Evaluation | str],
    ) -> None:
        self._point, self._changes, self._under = point, changes, under
        self._whole = _Move(compared.before, compared.after)
        self._parts = _parts(frozenset(changes))

    def clauses(self) -> list[str]:
        moves = {part: self._move(part) for part in self._parts}
        known = {part: move for part, move in moves.items() if move is not None}
        if len(known) < len(moves):
            return [f"together the changes make {_step_takes(self._whole)}"]
        effects: dict[str | None, list[_Effect]] = {}
        for part, move in known.items():
            if not part & (_FORWARD | _CACHE | _BUDGET):
                effect = self._effect(part, move)
                effects.setdefault(effect.term, []).append(effect)
        told = []
        for part, move in known.items():
            if part & _FORWARD:
                told.append(self._forward(part, move))
            elif part & _CACHE:
                told.append(self._prompts(part, effects.pop("prefill", []), is_idle_told="resident" in effects))
            elif part & _BUDGET:
                told.append(self._chunks(move))
        told += [self._term(term, alike) for term, alike in effects.items()]
        if len(known) > 1 and any(part & _FORWARD for part in known):
            told.append(f"together the changes make {_step_takes(self._whole)}{self._drafting(self._whole)}")
        return told

    def _move(self, names: frozenset[str]) -> _Move | None:
        """What only these changes do. `None`: not known."""
        if names == self._changes.keys():
            return self._whole
        after = self._under(names)
        return None if isinstance(after, str) else _Move(self._whole.before, after)

    def _forward(self, names: frozenset[str], move: _Move) -> str:
        before, after = move
        does, is_idle = [], False
        if names & _SPECULATION:
            tokens = units.number(float(after.tokens[0])), units.number(float(before.tokens[0]))
            does.append(f"brings {tokens[0]} rather than {tokens[1]} tokens per sequence")
        if names & _BATCH:
            if before.sequences <= 0.0 or after.sequences <= 0.0:
                does = does or ["serves another batch"]
            elif abs(after.sequences - before.sequences) < 0.01 * before.sequences:
                is_idle = True
            else:
                sequences = units.number(after.sequences), units.number(before.sequences)
                does.append(f"serves {sequences[0]} rather than {sequences[1]} sequences")
        idle = "no more requests are in flight than before"
        if not does:
            return idle
        if len(self._parts) == 1:
            does.append(f"takes {_step(after)} rather than {_step(before)}{self._drafting(move)}")
        told = f"a forward {_listed(does)}"
        return f"{idle}; {told}" if is_idle else told

    def _drafting(self, move: _Move) -> str:
        terms = move.after.terms
        is_told = self._changes.keys() & _SPECULATION and terms.draft > _SMALL * terms.total
        return f", of which drafting {units.milliseconds(terms.draft)}" if is_told else ""

    def _prompts(self, names: frozenset[str], alike: list[_Effect], *, is_idle_told: bool) -> str:
        """What becomes of prefill, with those other parts that are told by it as well."""
        move = self._move(names.union(*(one.names for one in alike)))
        who = _listed([*(one.subject for one in alike), "the change of the prefix cache"])
        if move is None:
            return f"{who} change prefill" if alike else f"{who} changes prefill"
        before, after = move
        told, of_all = _prefill_changes(move), _prefill_changes(self._whole)
        alone = _alone(told, of_all)
        with_what = f"with {who}{alone}, " if alike or alone else ""
        share = self._point.useful_hit_rate if self._point.config.prefix_cache else None
        found = "" if share is None else f" ({units.percent(share)} of prompt tokens are found now)"
        told = f"{with_what}prefill {told}{found}"
        resident = after.terms.resident - before.terms.resident
        if not is_idle_told and before.whole_tokens > 0.0 and abs(resident) > _SMALL * before.terms.total:
            told += (
                f", and idle cells {'add' if resident > 0 else 'no longer take'} {units.milliseconds(abs(resident))}"
            )
        return told

    def _chunks(self, move: _Move) -> str:
        before, after = self._changes["token_budget"]
        told, of_all = _changes(*_first(move)), _changes(*_first(self._whole))
        alone = f"with that{_alone(told, of_all)} " if told != of_all else ""
        return (
            f"prompts come in chunks of up to {_number(after)} rather than {_number(before)} rows, and {alone}a step "
            f"with a prompt {told}"
        )

    def _effect(self, names: frozenset[str], move: _Move) -> _Effect:
        """What some settings do to the term of a step that they are about."""
        after = {name: self._changes[name][1] for name in sorted(names)}
        subject, is_plural, terms = _subject(self._point, after)
        was, becomes = move.before.terms, move.after.terms
        moves = {name: abs(getattr(becomes, name) - getattr(was, name)) for name in terms}
        term: str | None = max(moves, key=moves.__getitem__)
        if moves[str(term)] <= _SMALL * max(was.total, 1e-9):
            prefill = abs(float(move.after.prefill_ns[0] - move.before.prefill_ns[0]))
            is_small = prefill <= _SMALL * float(move.before.total_ns[0]) or move.before.whole_tokens <= 0.0
            term = None if is_small else "prefill"
        return _Effect(names, subject, is_plural, term, move)

    def _term(self, term: str | None, alike: list[_Effect]) -> str:
        """One clause for all that change one term most, or that hardly change any."""
        subject = _listed([one.subject for one in alike])
        is_only = len(self._parts) == 1
        if term is None:
            word = "" if is_only else " each" if len(alike) > 1 else " alone"
            return f"{subject} would{word} hardly change a step of {_step(self._whole.before)}"
        move = alike[0].move if len(alike) == 1 else self._move(frozenset().union(*(one.names for one in alike)))
        if move is None:
            return f"{subject} together change {NAMES[term]}"
        was, becomes = (_duration(one, term) for one in move)
        ends, all_ends = _ends(move, term), _ends(self._whole, term)
        per = "per token" if term == "prefill" else "a step"
        both = " together" if len(alike) > 1 or alike[0].names >= {"kv_type_v", "flash_attention"} else ""
        alone = _alone(ends[1], all_ends[1])
        if ends[0] == ends[1]:
            return f"{subject}{both}{alone} leave{_s(alike)} {NAMES[term]} at {ends[0]} {per}"
        verb = "cut" if becomes < was else "raise"
        return f"{subject}{both}{alone} {verb}{_s(alike)} {NAMES[term]} from {ends[0]} to {ends[1]} {per}"


def _parts(names: frozenset[str]) -> list[frozenset[str]]:
    parts = [names & group for group in _GROUPS if names & group]
    rest = names.difference(*_GROUPS)
    return [*parts, rest] if rest else parts


def _alone(told: str, of_all: str) -> str:
    """The word that is due where all changes together make another number than the one that is told."""
    return "" if told == of_all else " alone"


def _listed(several: list[str]) -> str:
    *first, last = several
    return f"{', '.join(first)} and {last}" if first else last


def _s(alike: list[_Effect]) -> str:
    return "" if len(alike) > 1 or alike[0].is_plural else "s"


def _duration(one: Evaluation, term: str) -> float:
    """Nanoseconds a step; of prefill, per token."""
    if term == "prefill":
        return float(one.prefill_ns[0]) / one.whole_tokens
    return float(getattr(one.terms, term))


def _ends(move: _Move, term: str) -> tuple[str, str]:
    # Prompts are shared out over the tokens that all configurations have to produce.
    return units.milliseconds(_duration(move.before, term)), units.milliseconds(_duration(move.after, term))


def _prefill_changes(move: _Move) -> str:
    tokens = move.before.whole_tokens
    before, after = float(move.before.prefill_ns[0]), float(move.after.prefill_ns[0])
    if tokens <= 0.0:
        return _changes(before, after)
    return f"{_changes(before / tokens, after / tokens)} per token"


def _first(move: _Move) -> tuple[float, float]:
    """Mean duration of a step with a prompt, before and after, for the same prompts in as many steps."""
    before, after = (float(one.first_ns[0]) / max(one.first_steps, 1e-9) for one in move)
    return before, after


def _step_takes(move: _Move) -> str:
    return f"a step take {_step(move.after)} rather than {_step(move.before)}"


def _subject(point: WorkingPoint, after: Mapping[str, Setting]) -> tuple[str, bool, tuple[str, ...]]:
    """What changes, as the subject of a sentence; whether it is a plural; and the terms that it is about."""
    if "model" in after:
        return f"{weight_bits(point, str(after['model']))} weights", True, ("weights", "head")
    if after.keys() & {"kv_type_k", "kv_type_v", "flash_attention"}:
        kinds = dict.fromkeys(str(after[name]) for name in ("kv_type_k", "kv_type_v") if name in after)
        named = [f"a KV cache in {'/'.join(kinds)}"] if kinds else []
        if "flash_attention" in after:
            named.append(f"attention {'in one fused pass' if after['flash_attention'] else 'not fused'}")
        return " and ".join(named), len(named) > 1, ("attention",)
    if "unified_kv" in after:
        return ("one KV cache for all" if after["unified_kv"] else "a KV cache for each sequence"), False, _LAYOUT_TERMS
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
