"""Which ledger prices which epoch."""

from __future__ import annotations

import msgspec

from stackscope.analysis.ledgers import UNPRICED, Ledgers, Pricing
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.metrics.cost import BytesPerToken
from stackscope.analysis.metrics.counts import OutputTokens
from stackscope.analysis.summary import RunSummary
from stackscope.records import ConfigEvent, Header, StepRecord, TensorClass
from stackscope.toggles import EngineConfig
from tests.analysis_builders import attention, decode, dense_model, lab_target, step

CONFIG = EngineConfig(model="target.gguf", draft_model="./draft.gguf", threads=2)
DRAFT = dense_model(layers=[attention()])
HEADER = Header(stackscope="0", started="", host="", device="", model=lab_target(), draft_model=DRAFT, config=CONFIG)


def change(config: EngineConfig | None, **fields: object) -> ConfigEvent:
    return ConfigEvent(at_ns=0, epoch=1, kind="rebuild", config=config, **fields)  # type: ignore[arg-type]


def test_what_needs_the_same_ledger_shares_it() -> None:
    ledgers = Ledgers()
    first = ledgers.begin(HEADER)
    assert first.target is not None
    assert first.draft is not None
    quantised = ledgers.change(change(msgspec.structs.replace(CONFIG, kv_type_k="q8_0")))
    assert quantised.target is not first.target
    back = ledgers.change(change(msgspec.structs.replace(CONFIG, threads=4)))
    assert back == Pricing(first.target, first.draft, 4)


def test_a_draft_model_is_known_by_its_name() -> None:
    ledgers = Ledgers()
    ledgers.begin(HEADER)
    other = msgspec.structs.replace(CONFIG, draft_model="other.gguf")
    assert ledgers.change(change(other)).draft is None
    changes = {"draft_model": ("./draft.gguf", "other.gguf")}
    assert ledgers.change(change(other, changes=changes, draft_model=DRAFT)).draft is not None


def test_without_a_configuration_nothing_is_priced() -> None:
    ledgers = Ledgers()
    assert ledgers.begin(msgspec.structs.replace(HEADER, config=None)) == UNPRICED
    assert ledgers.change(change(None)) == UNPRICED


def test_a_model_that_contradicts_itself_has_no_cost_and_says_so() -> None:
    """It comes from a file, which anybody may have written: tokens are counted all the same."""
    expert = TensorClass(role="expert", type="F16", layer=0, elements=4, bytes=8)
    odd = msgspec.structs.replace(lab_target(), tensors=(*lab_target().tensors, expert))
    run, view = RunSummary(), LiveView()
    for record in (msgspec.structs.replace(HEADER, model=odd), step(decode(0, cached=3))):
        assert isinstance(record, Header | StepRecord)
        run.write(record)
        view.write(record)
    result, shown = run.result(), view.snapshot(10**7)
    assert (result[OutputTokens], result[BytesPerToken]) == (1, None)
    assert (shown.n_tokens, shown.now.bytes_per_s) == (1, None)
    assert result.not_modelled == shown.not_modelled
    assert "without experts" in shown.not_modelled[0]
