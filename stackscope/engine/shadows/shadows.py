"""All shadows of an engine: which there are under a configuration, when they work, and the records that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.engine.shadows.budget import Budget
from stackscope.engine.shadows.guesses import ContextGuesses, open_guesses
from stackscope.engine.shadows.models import ModelShadow
from stackscope.engine.shadows.ngrams import NgramShadow
from stackscope.engine.shadows.prefixes import PrefixShadow
from stackscope.records import DraftShadow, Log
from stackscope.records import PrefixShadow as PrefixRecord

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from stackscope.engine.backend import Backend
    from stackscope.engine.sequence import Sequence
    from stackscope.engine.shadows.budget import Clocks
    from stackscope.engine.shadows.prefixes import Admission
    from stackscope.records import AnyRecord, DraftKind
    from stackscope.toggles import EngineConfig

PERIOD_NS: Final = 1_000_000_000
"""Time between two records of a shadow."""
WEIGHTS: Final = {"ngram": 3.0, "prefix": 2.0, "draft": 5.0}
"""How the shadows share their time."""


class Shadows:
    """The shadows of one backend. Its context, if it has one, is to be closed before the backend's models."""

    def __init__(self, backend: Backend, config: EngineConfig, clocks: Clocks) -> None:
        self._clocks = clocks
        self._config = config
        guesses = open_guesses(backend)
        self._log: str | None = guesses if isinstance(guesses, str) else None
        """Why a shadow is missing, until that was recorded."""
        self._guesses = guesses if isinstance(guesses, ContextGuesses) else None
        names = [name for name in WEIGHTS if name != "draft" or self._guesses is not None]
        self.budget = Budget({name: WEIGHTS[name] for name in names}, share=config.shadow_share)
        purses = self.budget.purses
        self.ngram = NgramShadow(purses["ngram"], clocks, config.ngram_min, config.ngram_max)
        self.prefix: PrefixShadow | None = None
        if backend.trim_refusal is None:  # Else its memory can have no prefix cache.
            self.prefix = PrefixShadow(purses["prefix"], clocks, config, backend.size)
        self.draft = None if self._guesses is None else ModelShadow(self._guesses, purses["draft"], clocks)
        self._recorded_ns = clocks.wall()
        self.budget.fill(self._recorded_ns)

    def observe(
        self,
        admitted: Many[Admission],
        prefilled: Many[Sequence],
        running: Many[Sequence],
        *,
        has_ended: bool,
        epoch: int,
    ) -> tuple[AnyRecord, ...]:
        """Look on at the end of a step, and do what is due. `has_ended`: a request has left its slot."""
        now_ns = self._clocks.wall()
        self.budget.fill(now_ns)
        for admission in admitted:
            self.ngram.offer(admission.sequence, admission.n)
            if self.draft is not None:
                self.draft.offer(admission.sequence, admission.n)
        if self.prefix is not None and (admitted or prefilled or has_ended):
            self.prefix.observe(admitted, prefilled, running)
        if has_ended:
            self.ngram.end()
        self.ngram.work()
        if self.draft is not None:
            self.draft.work()
        return self.take(epoch) if now_ns - self._recorded_ns >= PERIOD_NS else ()

    def take(self, epoch: int) -> tuple[AnyRecord, ...]:
        """Records of all that was counted since the last ones."""
        self.ngram.catch_up()
        now_ns = self._recorded_ns = self._clocks.wall()
        records: list[AnyRecord] = []
        if self._log is not None:
            records.append(Log(at_ns=now_ns, text=self._log))
            self._log = None
        for source, shadow in self._drafting():
            tally = shadow.tally
            if tally.tokens > 0:
                records.append(
                    DraftShadow(
                        at_ns=now_ns,
                        epoch=epoch,
                        source=source,
                        requests=tally.requests,
                        tokens=tally.tokens,
                        lengths=tally.counts(but=self._real_length(source)),
                        cpu_ns=shadow.cpu_ns,
                    )
                )
                tally.clear()
                shadow.cpu_ns = 0
        if self.prefix is not None and self.prefix.has_counted:
            records.append(self._prefix_record(self.prefix, now_ns, epoch))
        return tuple(records)

    def reconfigure(self, config: EngineConfig, epoch: int) -> tuple[AnyRecord, ...]:
        """Follow the live settings; records of what was counted under those before."""
        records = self.take(epoch)
        self._config = config
        self.budget.share = config.shadow_share
        self.ngram.look_up(config.ngram_min, config.ngram_max)
        if self.prefix is not None:
            self.prefix.reconfigure(config)
        return records

    def close(self) -> None:
        """Free the context."""
        if self._guesses is not None:
            self._guesses.close()
            self._guesses = self.draft = None

    def _drafting(self) -> list[tuple[DraftKind, NgramShadow | ModelShadow]]:
        shadows: list[tuple[DraftKind, NgramShadow | ModelShadow]] = [("ngram", self.ngram)]
        if self.draft is not None:
            shadows.append(("draft", self.draft))
        return shadows

    def _real_length(self, source: DraftKind) -> int | None:
        """The length that is really drafted, of which the steps tell more. `None`: none, or now this and now that."""
        config = self._config
        return config.draft_length if config.speculation == source and not config.adaptive_draft else None

    @staticmethod
    def _prefix_record(shadow: PrefixShadow, now_ns: int, epoch: int) -> PrefixRecord:
        record = PrefixRecord(
            at_ns=now_ns,
            epoch=epoch,
            capacity_tokens=shadow.capacity_tokens,
            requests=shadow.requests,
            lookup_tokens=shadow.lookup_tokens,
            hit_tokens=shadow.hit_tokens,
            useful_hit_tokens=shadow.useful_hit_tokens,
            evicted_blocks=shadow.take_evicted(),
            cpu_ns=shadow.cpu_ns,
        )
        shadow.requests = shadow.lookup_tokens = shadow.hit_tokens = shadow.useful_hit_tokens = shadow.cpu_ns = 0
        return record
