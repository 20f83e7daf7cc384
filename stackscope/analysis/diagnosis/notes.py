"""What has to be said beside a verdict: what looks like a fault and is none, and what is known beforehand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.diagnosis import stalls
from stackscope.analysis.ledger import Ledger
from stackscope.analysis.offload import has_gpu
from stackscope.records import Ubatch

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence
    from stackscope.records import ModelSummary

_HAS_BACKEND: Final = re.compile(r"\bCPU\b")
_ONE: Final = Ubatch(1, 1)
NOTICEABLE: Final = 1.2
"""Times as many expert weights per verification as per token, from which on it is worth saying."""
ALIKE: Final = 0.5
"""A draft model of this share of the target's active weights is near it in size."""


def gpu_note(evidence: Evidence) -> str | None:
    """Of a GPU that the engine does not use: why it is idle. It is never called underused. `None`: nothing to say."""
    machine = evidence.machine
    if not machine.gpus or machine.gpus_used is None or machine.gpus_used > 0:
        return None
    library = evidence.library or ""
    is_cpu_build = bool(_HAS_BACKEND.search(library)) and not has_gpu(library)
    asked = evidence.config is not None and evidence.config.gpu_layers != 0
    if is_cpu_build:
        why = "this build of the inference library computes on the processor only"
        return f"CPU backend; GPU idle is expected: {why}" + (", whatever gpu_layers says" if asked else "")
    return "CPU backend; GPU idle is expected: no layer is on a GPU"


def active_bytes(model: ModelSummary) -> float:
    """Weights that one token's forward reads."""
    ledger = Ledger(model)
    return float(ledger.price(ledger.count_spans([(0, 1)], 1, 1, [_ONE])).weight_bytes)


def moe_note(target: ModelSummary | None, draft: ModelSummary | None, draft_length: int) -> str | None:
    """Verification by a sparse target wakes more experts than one token does: its cost from the metadata alone.

    Independent routing (equation 3) is assumed, the upper value. `None`: the target is dense, or it hardly matters.
    """
    if target is None or target.experts <= target.experts_used or target.experts_used == 0:
        return None
    ledger = Ledger(target)
    rows = draft_length + 1
    factor = ledger.distinct_experts(rows) / ledger.distinct_experts(1)
    if factor < NOTICEABLE:
        return None
    said = (
        f"verifying {units.count(rows)} rows wakes up to {units.number(factor)} times the experts of one row "
        f"({units.count(target.experts_used)} of {units.count(target.experts)} per token)"
    )
    if draft is not None:
        relative = active_bytes(draft) / max(1.0, active_bytes(target))
        if relative >= ALIKE:
            said += f"; the draft model reads {units.percent(relative)} of what the target reads per token"
    return said


def notes(evidence: Evidence) -> tuple[str, ...]:
    """Everything that has to be said of a window, whatever limits."""
    config = evidence.config
    said = [stalls.sentence(evidence.stalls), gpu_note(evidence)]
    if config is not None and config.speculation != "off":
        draft = evidence.draft_model if config.speculation == "draft" else None
        said.append(moe_note(evidence.model, draft, config.draft_length))
    return tuple([line for line in said if line is not None])
