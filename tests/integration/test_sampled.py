"""At a temperature, speculation draws from the target's own distribution: chi-square on the real pair."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from stackscope.engine import choose
from stackscope.engine.sampling import NumpyTruncation, distribution_from_logits, draw
from stackscope.toggles import Sampling
from tests.integration.harness import force, job, lab_config, open_engine, run_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.engine.sampling import Distribution

pytestmark = pytest.mark.engine

N_DRAWS = 6_000
SAMPLING = Sampling(temperature=1.0, top_k=6, top_p=1.0, min_p=0.0)
PROMPT = "import os\nimport sys\n\n\nclass Thing:\n    def __init__(self, name):\n        self.name = name\n\n    def "


class Expected:
    """The exact distribution of the second and third token together, from the plain configuration's logits."""

    def __init__(self) -> None:
        engine = open_engine(lab_config(slots=1, prefix_cache=False))
        try:
            self.prompt = engine.tokenizer.encode(PROMPT)
            first = self._after([[]])[()]
            second = self._after([[a] for a in first])
            third = self._after([[a, b] for a in first for b in second[(a,)]])
        finally:
            engine.close()
        self.pairs: Counter[tuple[int, int]] = Counter()
        for a, p_a in first.items():
            for b, p_b in second[(a,)].items():
                for c, p_c in third[a, b].items():
                    self.pairs[b, c] += p_a * p_b * p_c  # type: ignore[assignment]

    def _after(self, outputs: Sequence[Sequence[int]]) -> dict[tuple[int, ...], dict[int, float]]:
        """The distribution of the token that follows the prompt and each output."""
        histories = {i: [*self.prompt, *output, 0, 0] for i, output in enumerate(outputs)}
        logits = force(lab_config(slots=1, prefix_cache=True), histories, len(self.prompt))
        found = {}
        for i, output in enumerate(outputs):
            row = logits[i, len(self.prompt) + len(output) - 1]
            ids, kept = NumpyTruncation.of(SAMPLING).candidates(row)
            dist = distribution_from_logits(ids, kept, SAMPLING.temperature)
            found[tuple(output)] = dict(zip(dist.ids.tolist(), dist.probs.tolist(), strict=True))
        return found


@pytest.fixture(scope="module")
def expected() -> Expected:
    return Expected()


def p_value(expected: Expected, **settings: object) -> tuple[float, float]:
    """(p of the chi-square test of the drawn pairs against the exact distribution, acceptance rate)."""
    jobs = [job(i, expected.prompt, 4, ignore_eos=True, sampling=SAMPLING) for i in range(N_DRAWS)]
    run = run_jobs(lab_config(slots=16, **settings), jobs)
    seen = Counter((output[1], output[2]) for output in run.outputs.values())
    assert sum(seen.values()) == N_DRAWS
    assert set(seen) <= set(expected.pairs), "a token that truncation excludes"
    cells = sorted(expected.pairs.items(), key=lambda cell: -cell[1])
    large = [(pair, p * N_DRAWS) for pair, p in cells if p * N_DRAWS >= 5]
    observed = [seen[pair] for pair, _ in large]
    wanted = [n for _, n in large]
    rest = N_DRAWS - sum(wanted)
    if rest >= 5:
        observed.append(N_DRAWS - sum(observed))
        wanted.append(rest)
    else:
        observed[-1] += N_DRAWS - sum(observed)
        wanted[-1] += rest
    assert min(wanted) >= 5
    drafted = sum(r.drafted for r in run.requests)
    accepted = sum(r.accepted for r in run.requests)
    wanted_array = np.array(wanted) * (sum(observed) / sum(wanted))
    return float(stats.chisquare(observed, wanted_array).pvalue), accepted / drafted if drafted else -1.0


def test_plain_sampling_follows_the_target(expected: Expected) -> None:
    p, _ = p_value(expected)
    assert p >= 0.001


@pytest.mark.parametrize("settings", [{"draft_length": 1}, {"draft_length": 3}])
def test_a_draft_model_leaves_the_distribution_alone(expected: Expected, settings: dict[str, object]) -> None:
    p, acceptance = p_value(expected, speculation="draft", **settings)
    assert p >= 0.001
    assert 0.05 < acceptance < 0.95  # both branches of the rule were taken often


def test_ngram_drafts_leave_the_distribution_alone(expected: Expected) -> None:
    p, acceptance = p_value(expected, speculation="ngram", draft_length=3, ngram_min=1)
    assert p >= 0.001
    assert 0.01 < acceptance < 0.95


def test_a_rule_without_residual_resampling_is_seen(expected: Expected, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(
        p_rows: Sequence[Distribution],
        drafts: Sequence[int],
        q_rows: Sequence[Distribution | None],
        rng: np.random.Generator,
    ) -> tuple[int, int]:
        for position, (token, q) in enumerate(zip(drafts, q_rows, strict=True)):
            p = p_rows[position]
            assert q is not None
            ratio = _probability(p, token) / _probability(q, token)
            if rng.random() >= ratio:
                return position, draw(p, rng.random())  # from the target itself, not from what the draft lacked
        return len(drafts), draw(p_rows[len(drafts)], rng.random())

    monkeypatch.setattr(choose, "verify", wrong)
    p, _ = p_value(expected, speculation="draft", draft_length=3)
    assert p < 0.001


def _probability(dist: Distribution, token: int) -> float:
    found = dist.probs[dist.ids == token]
    return float(found[0]) if len(found) else 0.0
