"""Explains a recording that is played: what is said of a moment does not depend on how one came there.

Each second of the session is named as its records come, as `report` and a replay without a screen do it, however many
of them come between two looks. What is predicted is of the moment at which time stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.analysis.explainer import NAMING_NS, RANKING_NS, Explainer
from stackscope.records import StepRecord

if TYPE_CHECKING:
    from stackscope.analysis.explainer import Explanation
    from stackscope.records import AnyRecord, ConfigEvent, TrafficEvent


class Played(Explainer):
    """The explainer of a recording on the screen. Each second that is gone through costs 2 to 3 ms for its name: in an
    hour of a million steps 6 to 10 s, where the rest of it takes 13 to 16 s."""

    def _begin(self) -> None:
        super()._begin()
        self._last_ns = 0
        """The end of the last step."""
        self._settled_ns = 0
        """Until then the last change keeps anything from being predicted."""
        self._looked_ns: int | None = None
        self._standing_ns: int | None = None
        """The moment at which time stands still, or stood last."""

    def write(self, record: AnyRecord) -> None:
        super().write(record)
        if isinstance(record, StepRecord):
            self._last_ns = record.end_ns
            self._name_when_due(record.end_ns)

    def _name_when_due(self, at_ns: int) -> None:
        if at_ns >= self._name_from_ns:
            self._name(at_ns)
            self._name_from_ns = at_ns + NAMING_NS[0]

    def follow(self, at_ns: int) -> Explanation:  # noqa: ARG002 - a look makes no difference.
        return self._explanation

    def explanation(self, at_ns: int) -> Explanation:
        looked_ns, self._looked_ns = self._looked_ns, at_ns
        if looked_ns is not None and at_ns - looked_ns <= RANKING_NS[0]:
            return super().explanation(at_ns)
        # On the way to another moment nothing is predicted, and what was is of another one.
        self._predict_anew()
        if self._has_steps:
            self._explanation = msgspec.structs.replace(
                self._explanation, ranking=None, why_no_ranking=self._why_not_yet(at_ns), ranked_at_ns=None, drafts=()
            )
        return self._explanation

    def rest(self, at_ns: int, *, is_over: bool = False) -> bool:
        if is_over and not self._is_over:
            self._end()
        if self._standing_ns != at_ns:
            self._standing_ns = at_ns
            self._predict_anew()
        return self._has_steps and at_ns >= self._rank_from_ns

    def _predict_anew(self) -> None:
        self._ranking = self._break_evens = None
        self._rank_from_ns = self._settled_ns

    def _change(self, event: ConfigEvent | TrafficEvent) -> None:
        before_ns = self._rank_from_ns
        super()._change(event)
        if self._rank_from_ns != before_ns:
            self._settled_ns = self._rank_from_ns
            self._explanation = msgspec.structs.replace(self._explanation, drafts=())

    def _end(self) -> None:
        super()._end()
        self._settled_ns, self._standing_ns = 0, None
        if self._has_steps:
            self._name(self._last_ns)
