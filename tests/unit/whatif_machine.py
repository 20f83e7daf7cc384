"""A machine with planted parameters and a small engine on it: the truth that what-ifs are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.timing.terms import Terms
from stackscope.analysis.whatif.working_point import Decoding, Round, WorkingPoint
from stackscope.records import (
    DraftForward,
    ModelSummary,
    Ubatch,
)
from stackscope.toggles import EngineConfig
from tests.analysis_builders import attention, dense_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt


MODEL: Final = dense_model(layers=[attention()] * 6)
DRAFT: Final = msgspec.structs.replace(dense_model(layers=[attention()]), path="draft.gguf")
CONFIG: Final = EngineConfig(model="target.gguf", draft_model="draft.gguf", prefix_cache=False, slots=4, threads=2)
FOUR_BITS: Final = "target-Q4_0.gguf"


def in_four_bits(model: ModelSummary) -> ModelSummary:
    """The same model with its matrices at 4.5 instead of 16 bits a weight."""
    tensors = tuple(
        msgspec.structs.replace(t, type="Q4_0", bytes=t.bytes * 9 // 32) if t.is_matrix else t for t in model.tensors
    )
    return msgspec.structs.replace(model, tensors=tensors, path=FOUR_BITS)


def pricing(config: EngineConfig, model: ModelSummary = MODEL) -> Pricing:
    if config.model == FOUR_BITS:
        model = in_four_bits(model)
    kinds = config.kv_type_k, config.kv_type_v
    return Pricing(Ledger(model, *kinds), Ledger(DRAFT, *kinds), config.threads)


@dataclass(frozen=True)
class Machine:
    """Planted parameters. Rates per second, durations in nanoseconds."""

    bandwidth: float = 2e9
    """Reading weights."""
    row_ns: float = 0.25e6
    """What each further row of a forward adds: computing."""
    odd: float = 1.5
    """How much dearer rows beyond a multiple of four are."""
    kv_bandwidth: float = 1e9
    resident_ns: float = 40.0
    """Per idle cell that a unified cache scans."""
    fixed_ns: float = 0.5e6
    sample_ns: float = 0.05e6
    host_ns: float = 0.3e6
    ngram_ns: float = 0.01e6
    cores: int = 2
    spread: float = 0.0
    """Standard deviation of ln of each rate, as far as it is known."""

    def times(self, config: EngineConfig, pricing: Pricing) -> Times:
        return Times(self, config, pricing)


class Times:
    """Exact times of steps on a machine; what `TimeModel` is for the real one."""

    def __init__(self, machine: Machine, config: EngineConfig, pricing: Pricing, residual: float = 0.0) -> None:
        self.machine = machine
        self.conditions = config
        self.pricing = pricing
        self.unknown: Mapping[str, str] = {}
        self.residual = residual
        self.is_calibrated = True

    def terms(self, shape: Shape) -> Terms:
        return self._terms(shape, self.machine)

    def _terms(self, shape: Shape, m: Machine) -> Terms:
        target, threads = self.pricing.target, self.conditions.threads or m.cores
        assert target is not None
        scale = m.cores / threads
        work = target.count_spans(shape.spans, shape.rows, shape.outputs, shape.passes)
        exact = target.price(work).exact
        weights = (exact.weights - exact.head_weights) / m.bandwidth * 1e9
        head = exact.head_weights / m.bandwidth * 1e9
        compute = sum(self._rows_ns(one.rows, m) for one in shape.passes) * scale
        attention_ns = exact.kv_read / m.kv_bandwidth * 1e9 * scale * (1.0 if self.conditions.flash_attention else 1.6)
        held = sum(cached + new for cached, new in shape.spans)
        resident = max(shape.cells - held, 0) * m.resident_ns if self.conditions.unified_kv else 0.0
        drafting = sum(self._draft_ns(one, m) for one in shape.draft)
        if self.conditions.speculation == "ngram":
            drafting += len(shape.spans) * m.ngram_ns
        return Terms(
            weights, head, compute, attention_ns, resident, len(shape.passes) * m.fixed_ns, drafting,
            shape.outputs * m.sample_ns, m.host_ns,
        )  # fmt: skip

    @staticmethod
    def _rows_ns(rows: int, m: Machine) -> float:
        whole, odd = divmod(rows, 4)
        return (4 * whole + m.odd * odd - (m.odd if whole == 0 else 1.0)) * m.row_ns

    def _draft_ns(self, forward: DraftForward, m: Machine) -> float:
        draft = self.pricing.draft
        assert draft is not None
        exact = draft.price(draft.count_draft([forward])).exact
        rows = sum(new for _, new in forward.spans)
        return 0.3 * m.fixed_ns + exact.weights / m.bandwidth * 1e9 + rows * m.row_ns * 0.1

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> npt.NDArray[np.float64]:
        """Each part of the time with a factor of its own, the same for all models of a machine."""
        factors = np.exp(self.machine.spread * np.random.default_rng(seed).standard_normal((n, len(Terms._fields))))
        made: npt.NDArray[np.float64] = factors @ np.array([self.terms(shape) for shape in shapes]).T
        return made

    def under(self, config: EngineConfig, pricing: Pricing) -> Times | str:
        if (config.threads or 2) > self.machine.cores:
            return "More threads than cores were never timed: run stackscope calibrate."
        return Times(self.machine, config, pricing, self.residual)


class StatedTimes:
    """Step times that a test states as a function of shape and ledgers."""

    def __init__(self, state: Callable[[Shape, Pricing], Terms], own: Pricing, spread: float = 0.0) -> None:
        self._state, self._pricing, self._spread = state, own, spread
        self.unknown: Mapping[str, str] = {}
        self.residual = 0.0
        self.is_calibrated = True

    def terms(self, shape: Shape) -> Terms:
        return self._state(shape, self._pricing)

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> npt.NDArray[np.float64]:
        factors = np.exp(self._spread * np.random.default_rng(seed).standard_normal((n, len(Terms._fields))))
        made: npt.NDArray[np.float64] = factors @ np.array([self.terms(shape) for shape in shapes]).T
        return made

    def under(self, config: EngineConfig, pricing: Pricing) -> StatedTimes | str:
        del config
        return StatedTimes(self._state, pricing, self._spread)


def stated_point(
    state: Callable[[Shape, Pricing], Terms],
    config: EngineConfig = CONFIG,
    *,
    sequences: int = 1,
    cached: int = 100,
    spread: float = 0.0,
    **fields: object,
) -> WorkingPoint:
    """A working point of one plain round, at times that the test states."""
    passes = (Ubatch(sequences, sequences),)
    shape = Shape(((cached, 1),) * sequences, sequences, passes, (), sequences * (cached + 1), 0)
    one = Round(shape, tuple(Decoding(cached, 0, slot) for slot in range(sequences)))
    known: dict[str, object] = {
        "times": StatedTimes(state, pricing(config), spread), "rounds": (one,), "tokens_per_round": 1.0,
        "slots_busy": float(sequences), "concurrency": sequences, "model": MODEL, "tokens_per_s": 100.0,
        "variants": {FOUR_BITS: in_four_bits(MODEL)},
    }  # fmt: skip
    return WorkingPoint(config=config, pricing=pricing(config), **(known | fields))  # type: ignore[arg-type]


def weights_only(shape: Shape, own: Pricing) -> Terms:
    """A machine on which nothing takes time but reading the weights, at 1 GB/s."""
    assert own.target is not None
    return Terms(weights=own.target.weights.ffn.bytes * len(shape.passes), host=1e4)
