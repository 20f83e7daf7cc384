"""Hand-made models and records for the tests of `stackscope.analysis`, small enough for arithmetic on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.records import (
    Emission,
    LayerSummary,
    ModelSummary,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
    TensorClass,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import FinishReason

MS = 1_000_000


def dense_model(
    *,
    layers: Sequence[LayerSummary],
    width: int = 256,
    ffn: int = 768,
    vocabulary: int = 4096,
    architecture: str = "llama",
    tied_head: bool = True,
) -> ModelSummary:
    """A dense gated transformer in F16 with F32 norms: two norms per block and one in front of the head."""
    tensors = [matrix("embedding", None, vocabulary * width), norms(None, width)]
    if not tied_head:
        tensors.append(matrix("head", None, vocabulary * width))
    for i, layer in enumerate(layers):
        queries = layer.heads * layer.key_length
        keys, values = layer.kv_heads * layer.key_length, layer.kv_heads * layer.value_length
        attention = width * (queries + keys + values) + layer.heads * layer.value_length * width
        tensors += [matrix("attention", i, attention), matrix("ffn", i, 3 * width * ffn), norms(i, 2 * width)]
    size = sum(t.bytes for t in tensors)
    return ModelSummary(
        name="hand-made",
        path="hand-made.gguf",
        architecture=architecture,
        file_bytes=size,
        tensor_bytes=size,
        parameters=sum(t.elements for t in tensors),
        vocabulary=vocabulary,
        context=2048,
        embedding=width,
        layers=tuple(layers),
        tensors=tuple(tensors),
        tied_head=tied_head,
    )


def sparse_model(*, experts: int = 4, used: int = 2, expert_elements: int = 3000) -> ModelSummary:
    """Two blocks with 4 experts of 3,000 elements each beside the dense matrices, F16."""
    dense = dense_model(layers=[attention()] * 2)
    routed = [
        TensorClass(role="expert", type="F16", layer=i, elements=experts * expert_elements, bytes=8 * expert_elements)
        for i in range(2)
    ]
    return msgspec.structs.replace(dense, tensors=(*dense.tensors, *routed), experts=experts, experts_used=used)


def matrix(role: str, layer: int | None, elements: int) -> TensorClass:
    return TensorClass(role=role, type="F16", layer=layer, elements=elements, bytes=2 * elements)  # type: ignore[arg-type]


def norms(layer: int | None, elements: int) -> TensorClass:
    return TensorClass(role="norm", type="F32", layer=layer, elements=elements, bytes=4 * elements, is_matrix=False)


def attention(
    *, heads: int = 4, kv_heads: int = 2, head: int = 64, window: int | None = None, shares_kv: bool = False
) -> LayerSummary:
    return LayerSummary(
        heads=heads, kv_heads=kv_heads, key_length=head, value_length=head, window=window, shares_kv=shares_kv
    )


def lab_target() -> ModelSummary:
    """The geometry of the bundled target: width 256, 6 layers, 4 heads on 2, head 64, feed-forward 768, tied head."""
    return dense_model(layers=[attention()] * 6)


def prefill(request: int, *, new: int, cached: int = 0, outputs: int = 0, emitted: int = 0) -> SlotWork:
    return SlotWork(
        request=request, slot=request, phase="prefill", new=new, cached=cached, outputs=outputs, emitted=emitted
    )


def decode(request: int, *, cached: int, emitted: int = 1) -> SlotWork:
    return SlotWork(request=request, slot=request, phase="decode", new=1, cached=cached, outputs=1, emitted=emitted)


def verify(request: int, *, cached: int, drafted: int, accepted: int, emitted: int | None = None) -> SlotWork:
    return SlotWork(
        request=request,
        slot=request,
        phase="verify",
        new=drafted + 1,
        cached=cached,
        drafted=drafted,
        accepted=accepted,
        emitted=accepted + 1 if emitted is None else emitted,
        outputs=drafted + 1,
    )


def step(*work: SlotWork, n: int = 0, start_ns: int = 0, phases: Phases | None = None, **fields: object) -> StepRecord:
    phases = Phases(decode=MS) if phases is None else phases
    return StepRecord(n=n, start_ns=start_ns, phases=phases, work=work, **fields)  # type: ignore[arg-type]


def request(
    *emissions: tuple[int, int],
    id: int = 0,
    arrived_ns: int = 0,
    admitted_ns: int | None = 0,
    finished_ns: int | None = None,
    finish_reason: FinishReason = "length",
    prompt_tokens: int = 10,
    **fields: object,
) -> RequestRecord:
    """A request from its emissions, given as (at_ns, tokens); it finishes with the last one unless said otherwise."""
    if finished_ns is None:
        finished_ns = emissions[-1][0] if emissions else arrived_ns
    return RequestRecord(
        id=id,
        arrived_ns=arrived_ns,
        admitted_ns=admitted_ns,
        finished_ns=finished_ns,
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        emissions=tuple(Emission(i, at, tokens) for i, (at, tokens) in enumerate(emissions)),
        **fields,  # type: ignore[arg-type]
    )
