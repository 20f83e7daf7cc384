"""The simpler predictors, and how each is set beside ours: where it can differ in kind, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.validate import figures
from benchmarks.validate.pairing import Item, Simpler, compared, compared_names
from benchmarks.validate.score_toggles import GEOMETRIC, MEASURED_PRODUCT, MEMORY, PRODUCT, ROOFLINE
from stackscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.validate.figures import Figure, Judged, Named
    from benchmarks.validate.rows import Row
    from benchmarks.validate.score_time import Predicted
    from benchmarks.validate.score_toggles import Toggle

PHASE: Final = "largest phase"
BASELINES: Final[Mapping[str, str]] = {
    MEMORY: "toggles and names; that a placebo is limited by memory is no false alarm",
    PHASE: "names only, as it predicts nothing",
    PRODUCT: "pairs only, as a single change has nothing to multiply",
    GEOMETRIC: "toggles after which other drafts are tried than before, and τ; elsewhere it is ours",
    ROOFLINE: "toggles and step times; it names nothing",
}
"""What has to be beaten, and the figures in which each can differ from ours."""


def differs(name: str, one: Toggle) -> bool:
    """Whether a predictor of that name can differ from ours about a toggle, for what it is and not for its result."""
    if name in (PRODUCT, MEASURED_PRODUCT):
        return one.is_pair
    return name != GEOMETRIC or one.drafts_otherwise


def of_errors(found: Sequence[Toggle]) -> tuple[Simpler, ...]:
    """By the size of the errors of toggles."""
    return _of(found, figures.median_error, lambda _: True, lambda one: one.error)


def of_signs(found: Sequence[Toggle]) -> tuple[Simpler, ...]:
    """By the signs of toggles that have one."""
    return _of(found, figures.sign_right, figures.has_sign, lambda one: float(not figures.is_sign_right(one)))


def _of(
    found: Sequence[Toggle],
    of: Callable[[Sequence[Judged]], Figure],
    counts: Callable[[Judged], bool],
    loss: Callable[[Judged], float],
) -> tuple[Simpler, ...]:
    made = []
    for name in (MEMORY, GEOMETRIC, PRODUCT, MEASURED_PRODUCT, ROOFLINE):
        both = [
            (one.session, ours, theirs)
            for one in found
            if differs(name, one)
            and (ours := one.judged) is not None
            and (theirs := one.judged_by(name)) is not None
            and counts(ours)
        ]
        if both:
            items = [Item(session, loss(ours), loss(theirs)) for session, ours, theirs in both]
            theirs_found, ours_found = of([theirs for _, _, theirs in both]), of([ours for _, ours, _ in both])
            made.append(Simpler(name, theirs_found, ours_found, compared(items)))
    return tuple(made)


def of_names(ours: Sequence[Named], others: Mapping[str, Sequence[Named]]) -> tuple[Simpler, ...]:
    """By macro-F1."""
    found = figures.naming(ours)
    return tuple(
        Simpler(name, figures.naming(theirs), found, compared_names(ours, theirs)) for name, theirs in others.items()
    )


def of_alarms(ours: Sequence[Named], others: Mapping[str, Sequence[Named]]) -> tuple[Simpler, ...]:
    """By false alarms of placebos."""
    made = []
    for name, theirs in others.items():
        both = [pair for pair in zip(ours, theirs, strict=True) if pair[0].truth == figures.HEALTHY]
        items = [
            Item(str(i), float(our.said != figures.HEALTHY), float(their.said != figures.HEALTHY))
            for i, (our, their) in enumerate(both)
        ]
        made.append(Simpler(name, figures.alarms(theirs), figures.alarms(ours), compared(items)))
    return tuple(made)


def of_steps(blocks: Sequence[tuple[Sequence[Predicted], Sequence[Predicted]]]) -> tuple[Simpler, ...]:
    """By the times of the same steps, (ours, a data sheet's) block by block."""
    both = [(str(i), *pair) for i, block in enumerate(blocks) for pair in zip(*block, strict=True)]
    if not both:
        return ()
    items = [Item(block, ours.log_error, theirs.log_error) for block, ours, theirs in both]
    ours_found = figures.quantile([ours.error for _, ours, _ in both], 0.5)
    theirs_found = figures.quantile([theirs.error for _, _, theirs in both], 0.5)
    return (Simpler(ROOFLINE, theirs_found, ours_found, compared(items)),)


def summary(rows: Sequence[Row], n_missing: int = 0) -> list[str]:
    """Of each simpler predictor, the figures in which it was beaten, was not told apart, or beats ours.

    One that nothing is known against is not judged while sessions are missing.
    """
    lines = []
    for name, where in BASELINES.items():
        by_verdict: dict[str, list[str]] = {}
        for row in rows:
            for one in row.simpler:
                if one.compared is not None and one.name in (name, *((MEASURED_PRODUCT,) if name == PRODUCT else ())):
                    aside = " (of the measured speed-ups of its parts)" if one.name == MEASURED_PRODUCT else ""
                    by_verdict.setdefault(one.compared.verdict, []).append(row.name + aside)
        is_beaten = "beaten" in by_verdict and "beats us" not in by_verdict
        told = "BEATEN in one figure at least, and nowhere better" if is_beaten else "NOT BEATEN"
        if n_missing and not is_beaten and "beats us" not in by_verdict:
            told = f"not judged: {counted(n_missing, 'session')} missing"
        lines.append(f"- {name}: {told if by_verdict else 'not compared'}. Compared in {where}.")
        lines += [f"    {verdict}: {'; '.join(by_verdict[verdict])}" for verdict in sorted(by_verdict)]
    return lines
