"""Learns the time model from ceilings and steps as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.offload import computes_on_gpu, has_gpu
from stackscope.analysis.timing.design import Design, times_of
from stackscope.analysis.timing.learning import Learned, learn, learned_before, priors, seen_by
from stackscope.analysis.timing.model import Source, TimeModel, conditions_of, origin_of
from stackscope.analysis.timing.sampled import Kept, Sampled, kind_of, packed
from stackscope.analysis.timing.separating import unknown_of
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.timing.solving import FEW
from stackscope.records.ceilings import placement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stackscope.analysis.timing.solving import Data, Prior
    from stackscope.records import Ceilings, Header, StepRecord
    from stackscope.toggles import EngineConfig

MOST_CONDITIONS: Final = 12
"""Configurations that are remembered; the one that was left longest ago is forgotten first."""

REFIT_SHARE: Final = 0.1
"""New steps ÷ steps seen from which on it is worth fitting again."""
REFIT_NS: Final = 8_000_000_000
"""Time of steps between two fits at least, once there are many: a fit takes about 10 ms."""
EAGER: Final = 400
"""Until so many steps were seen, every tenth more is worth a fit."""


class Fit:
    """Takes steps in their order, in bounded memory; what it knows at any time is a `TimeModel`."""

    def __init__(
        self, ceilings: Ceilings | None, others: Sequence[Ceilings] = (), *, is_gpu: bool | None = None
    ) -> None:
        """`ceilings` are those of the first configuration, `others` those of other conditions of the same machine.

        `is_gpu`: the model is computed on a GPU. `None`: as the ceilings' library says, else it is not.
        """
        self._all = (*(() if ceilings is None else (ceilings,)), *others)
        self._is_gpu = is_gpu
        self._known: dict[tuple[object, ...], _Conditions] = {}
        self._current: _Conditions | None = None
        self._config: EngineConfig | None = None

    @classmethod
    def of(cls, header: Header) -> Fit:
        """For a session, before its first step; `begin` is still to be called."""
        return cls(header.ceilings, header.other_ceilings, is_gpu=has_gpu(header.library))

    def begin(self, config: EngineConfig | None, pricing: Pricing) -> None:
        """The configuration that the steps from here on ran under. `None`, or no geometry: they teach nothing."""
        before = self._current
        self._config, self._current = config, None
        if config is None or pricing.target is None:
            return
        key = conditions_of(config)
        known = self._known.pop(key, None)
        if known is None or not _same_models(known.pricing, pricing):
            known = self._begun(config, pricing, before)
        if before is not None and before is not known:
            before.leave()
        known.config = config
        self._known[key] = self._current = known
        while len(self._known) > MOST_CONDITIONS:
            del self._known[next(iter(self._known))]

    def _begun(self, config: EngineConfig, pricing: Pricing, before: _Conditions | None) -> _Conditions:
        """A configuration that no steps were seen of: what its own calibration says, else what others can say of it."""
        is_gpu = self._on_gpu(config)
        ceilings = self._ceilings(config)
        base = None
        if ceilings is None and before is not None and before.is_useful:
            base = before.model(self._models, self._all)
        elif ceilings is None:
            near = next((one for one in self._all if one.conditions.names_model(config)), None)
            base = None if near is None else _calibrated(near, config, pricing, is_gpu=is_gpu)
        rates = next(iter(self._all), None)
        return _Conditions(config, pricing, ceilings, base, rates=rates, is_gpu=is_gpu)

    def add(self, steps: Iterable[StepRecord]) -> None:
        """Learn from steps of the configuration in force, but for those aborted, delayed, or without a forward."""
        current = self._current
        if current is None or self._config is None:
            return
        speculation = self._config.speculation
        for step in steps:
            if step.work and not step.aborted and step.delay is None:
                current.take(step, speculation)

    def model(self) -> TimeModel | None:
        """What is known now. `None`: no configuration, no geometry, or nothing was ever timed."""
        if self._current is None:
            return None
        return self._current.model(self._models, self._all)

    @property
    def n_kept(self) -> int:
        """Steps that are kept to learn from, of all configurations."""
        return sum([len(known.sampled) for known in self._known.values()])

    def _models(self) -> dict[tuple[object, ...], TimeModel]:
        """What steps taught of each configuration, the present one left out.

        Without what those know of others: else each model would keep all that were ever made.
        """
        return {
            key: known.alone
            for key, known in self._known.items()
            if known.alone is not None and known is not self._current and known.is_useful
        }

    def _ceilings(self, config: EngineConfig) -> Ceilings | None:
        return next((one for one in self._all if one.conditions.hold_for(config)), None)

    def _on_gpu(self, config: EngineConfig) -> bool:
        if self._is_gpu is not None:
            return self._is_gpu and config.gpu_layers != 0
        return any(computes_on_gpu(one.conditions.library, config) for one in self._all)


class _Conditions:
    """Steps of one configuration, and the model made of them."""

    def __init__(
        self, config: EngineConfig, pricing: Pricing, ceilings: Ceilings | None, base: TimeModel | None = None, *,
        rates: Ceilings | None = None, is_gpu: bool,
    ) -> None:  # fmt: skip
        """`base` says something of another configuration, `rates` of the machine."""
        self.config = config
        self.pricing = pricing
        self.last: TimeModel | None = None
        self._alone: tuple[TimeModel, TimeModel] | None = None
        """A model that `last` was, and the same without what it knows of others."""
        self._was_left = False
        """`last` knows of no others since."""
        self._ceilings = ceilings
        self._rates = rates
        self._is_gpu = is_gpu
        self._design = Design(config, pricing, is_gpu=is_gpu)
        self.sampled = Sampled()
        self._n = self._n_fitted = 0
        self._since_ns = 0
        self._base = None
        if ceilings is None and base is not None:
            derived = base.under(config, pricing)
            self._base = None if isinstance(derived, str) else derived.with_live(config, {})

    @property
    def alone(self) -> TimeModel | None:
        """The newest model without what it knows of others, the same as long as there is no newer. `None`: none yet."""
        if self.last is None:
            return None
        if self._alone is None or self._alone[0] is not self.last:
            self._alone = self.last, self.last.with_live(self.config, {})
        return self._alone[1]

    def leave(self) -> None:
        """Other conditions are in force. What others taught by now is not kept with these: it is asked for again."""
        alone = self.alone
        if alone is not None:
            self.last, self._alone, self._was_left = alone, (alone, alone), True

    @property
    def is_useful(self) -> bool:
        """There is something that another configuration can begin with."""
        return self._n > 0 or self._ceilings is not None

    def take(self, step: StepRecord, speculation: str) -> None:
        """Learn from one step."""
        self._n += 1
        self._since_ns += step.duration_ns
        kind = kind_of(step)
        if not self.sampled.wants(kind, step.phases.decode):
            return
        shape = Shape.of(step)
        threads = self.pricing.threads or self.config.threads
        share = None
        if step.cpu_ns is not None and threads and step.phases.decode > 0 and not self._is_gpu:
            share = step.cpu_ns / (threads * step.phases.decode)
        where, values = packed(self._design.columns(shape, speculation))
        target_ns, draft_ns, sample_ns, host_ns = times_of(step)
        self.sampled.keep(
            kind,
            Kept(
                where=where,
                values=values,
                target_ns=target_ns,
                draft_ns=draft_ns,
                sample_ns=sample_ns,
                host_ns=host_ns,
                share=share,
                at_ns=step.start_ns,
                rows=tuple([one.rows for one in shape.passes]),
                outputs=tuple([one.outputs for one in shape.passes]),
                deepest=max([cached for cached, _ in shape.spans]),
                cells=step.kv_cells,
            ),
        )

    def model(
        self, known: Callable[[], dict[tuple[object, ...], TimeModel]], ceilings: tuple[Ceilings, ...] = ()
    ) -> TimeModel | None:
        """The model of what was seen so far; the one of before while little is new. `known` says what is of others."""
        if self._n == 0 and self._ceilings is None and self._base is None:
            return None
        new = self._n - self._n_fitted
        is_due = self.last is None or (
            new > REFIT_SHARE * self._n_fitted and (self._n_fitted < EAGER or self._since_ns >= REFIT_NS)
        )
        if is_due:
            self.last = self._made(known(), ceilings)
            self._n_fitted, self._since_ns = self._n, 0
        assert self.last is not None
        if self._was_left and not is_due:
            self.last = self.last.with_live(self.config, known())
        self._was_left = False
        if self.last.conditions != self.config:
            self.last = self.last.with_live(self.config)
        return self.last

    def _made(self, known: dict[tuple[object, ...], TimeModel], ceilings: tuple[Ceilings, ...]) -> TimeModel:
        origin = origin_of(self.config)
        given: tuple[tuple[Prior, Data], ...]
        seen = seen_by(self._ceilings)
        if self._base is not None:
            given, origin = learned_before(self._base.beliefs), self._base.beliefs[0].origin
            seen = self._base.seen
        else:
            given = priors(self._design, self.config, self._ceilings, rates=self._rates)
        learned: Learned = learn(given, self.sampled.all(), origin=origin, seen=seen)
        unknown = unknown_of(learned, self._ceilings)
        if self._base is not None and len(learned.unstarved) < FEW:
            unknown = {**unknown, **self._base.unknown}
        return TimeModel(
            self.config, self.pricing, beliefs=learned.beliefs, seen=learned.seen, errors=learned.errors,
            source=Source(self._ceilings, ceilings, known, self._level(learned)), is_gpu=self._is_gpu,
            is_calibrated=self._ceilings is not None, unknown=unknown, starved=learned.starved,
        )  # fmt: skip

    def _level(self, learned: Learned) -> float:
        """Steps ÷ what the calibration says that all began with, be it of another configuration."""
        if self._base is not None:
            return learned.level * self._base.source.level
        return 1.0 if self._ceilings is None else learned.level


def _same_models(known: Pricing, other: Pricing) -> bool:
    """Whether two ledgers' models are the same, be they of one session or of two."""
    return all(
        one is another or (one is not None and another is not None and one.model == another.model)
        for one, another in zip(known[:2], other[:2], strict=True)
    )


def _calibrated(ceilings: Ceilings, config: EngineConfig, pricing: Pricing, *, is_gpu: bool) -> TimeModel | None:
    """What ceilings of the same model under other conditions say by themselves. `None`: they contradict it."""
    c = ceilings.conditions
    theirs = msgspec.structs.replace(
        config, kv_type_k=c.kv_type_k, kv_type_v=c.kv_type_v, flash_attention=c.flash_attention,
        unified_kv=c.unified_kv, swa_full=c.swa_full, threads=c.threads,
    )  # fmt: skip
    if placement(theirs) != c.placement or pricing.target is None:
        return None
    try:
        target, draft = (
            None if ledger is None else Ledger(ledger.model, theirs.kv_type_k, theirs.kv_type_v)
            for ledger in (pricing.target, pricing.draft)
        )
    except ValueError:
        return None
    made = _Conditions(theirs, Pricing(target, draft, c.threads), ceilings, is_gpu=is_gpu)
    return made.model(dict, (ceilings,))
