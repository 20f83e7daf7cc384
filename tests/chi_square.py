"""Does a sample of draws follow a distribution? Pearson's test with cells merged until each expects at least 5."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

Outcome = TypeVar("Outcome", bound="Hashable")

MIN_DRAWS: Final = 5_000
MIN_EXPECTED: Final = 5.0
MIN_P: Final = 0.001


def p_value(draws: Iterable[Outcome], expected: Mapping[Outcome, float]) -> float:
    """Probability of a sample as far from `expected` (outcome → probability) as `draws`; 0 for an impossible outcome.

    Outcomes expected fewer than 5 times are merged, the rarest first, into one cell of at least 5.
    """
    counts = Counter(draws)
    n = counts.total()
    assert n >= MIN_DRAWS, f"{n} draws are too few"
    assert abs(sum(expected.values()) - 1.0) < 1e-9, "the expected probabilities do not sum to 1"
    if any(expected.get(outcome, 0.0) <= 0.0 for outcome in counts):
        return 0.0
    cells: list[tuple[float, int]] = []
    rare_expected, rare_count = 0.0, 0
    for outcome, probability in sorted(expected.items(), key=lambda item: item[1]):
        if probability * n < MIN_EXPECTED or 0.0 < rare_expected < MIN_EXPECTED:
            rare_expected += probability * n
            rare_count += counts[outcome]
        else:
            cells.append((probability * n, counts[outcome]))
    if rare_expected > 0.0:
        cells.append((rare_expected, rare_count))
    if len(cells) == 1:
        return 1.0
    assert min(cell[0] for cell in cells) >= MIN_EXPECTED
    test = stats.chisquare([count for _, count in cells], [count for count, _ in cells])
    return float(test.pvalue)
