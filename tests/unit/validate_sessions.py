"""Made-up recordings for the tests of the validation: a machine whose times are known to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.validate.reading import MARK
from stackscope.records import (
    CacheCounters,
    ConfigEvent,
    DraftShadow,
    LengthCounts,
    Mark,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
    Ubatch,
)
from stackscope.toggles import EngineConfig, changed_fields
from tests.unit.record_builders import ORIGIN_NS, make_header, make_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.records import AnyRecord, Header

MS: Final = 1_000_000
CONFIG: Final = EngineConfig(model="/models/synthetic-F16.gguf", threads=2, slots=8)


class Session:
    """Builds a session, block by block."""

    def __init__(self, config: EngineConfig = CONFIG, **header: Any) -> None:
        self.config = config
        self.header: Header = make_header(config=config, model=make_model(), workload={"concurrency": 1}, **header)
        self.records: list[AnyRecord] = [self.header]
        self.now_ns = ORIGIN_NS
        self._n = self._blocks = self._epoch = 0

    def block(self, **settings: Any) -> None:
        """Begin a block, with other settings where some are given."""
        self.records.append(Mark(at_ns=self.now_ns, label=f"{MARK} {self._blocks}"))
        self._blocks += 1
        config = msgspec.structs.replace(CONFIG, **settings)
        changes = changed_fields(self.config, config)
        if changes:
            self._epoch += 1
            self.config = config
            self.records.append(
                ConfigEvent(at_ns=self.now_ns, epoch=self._epoch, kind="live", changes=changes, config=config)
            )

    def steps(
        self,
        n: int,
        ns: Callable[[int], int] | int,
        *,
        batch: int = 1,
        phases: Phases | None = None,
        work: Sequence[SlotWork] | None = None,
        **fields: Any,
    ) -> None:
        """Steps without a gap, a token for each sequence; `ns` is how long each takes, by its number."""
        for i in range(n):
            took = ns(i) if callable(ns) else ns
            done = tuple(
                work or (SlotWork(request=s, slot=s, phase="decode", new=1, cached=100 + i, emitted=1, outputs=1)
                for s in range(batch))
            )  # fmt: skip
            spent = phases if phases is not None else Phases(decode=took)
            self.records.append(
                StepRecord(
                    n=self._n, start_ns=self.now_ns, phases=spent, work=done, slots=8, slots_busy=len(done),
                    epoch=self._epoch, kv_cells=200, cpu_ns=2 * spent.decode, **fields,
                )
            )  # fmt: skip
            self._n += 1
            self.now_ns += spent.total

    def request(self, **fields: Any) -> None:
        """A request ends now."""
        done = {"id": 0, "arrived_ns": ORIGIN_NS, "finished_ns": self.now_ns, "finish_reason": "length"}
        self.records.append(RequestRecord(**{"prompt_tokens": 100, **done, **fields}))


def wide() -> Session:
    """A step with everything that a wrong ledger forgets: two passes, a prompt, a verification, several sequences."""
    session = Session()
    session.block()
    work = (
        SlotWork(request=0, slot=0, phase="prefill", new=300, cached=20, outputs=1),
        SlotWork(request=1, slot=1, phase="verify", new=4, cached=50, drafted=3, accepted=2, emitted=3, outputs=4),
        SlotWork(request=2, slot=2, phase="decode", new=1, cached=100, emitted=1, outputs=1),
    )
    session.steps(4, 10 * MS, work=work, ubatches=(Ubatch(256, 2), Ubatch(49, 4)))
    return session


def put_back() -> Session:
    """A request that found half of its prompt, was pre-empted, and found all of it when it came again."""
    session = Session()
    session.block()
    session.steps(1, MS, cache=CacheCounters(lookups=1, lookup_tokens=1000, hit_tokens=500, useful_hit_tokens=500))
    session.steps(1, MS, cache=CacheCounters(lookups=1, lookup_tokens=1000, hit_tokens=990), preempted=1)
    session.request(prompt_tokens=1000, hit_tokens=500, preemptions=1)
    return session


GUESSES: Final = "xxx" + "+" * 9 + "xx" + "+" * 14 + "x"
"""Whether a drafter is right at each token, over and over: survival depends on where in a run one begins."""


def rounds(length: int, tokens: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of rounds with drafts of a length over that drafter."""
    made, at = [], 0
    while at < tokens:
        accepted = 0
        while accepted < length and GUESSES[(at + accepted) % len(GUESSES)] == "+":
            accepted += 1
        made.append((length, accepted))
        at += accepted + 1
    return made


def drafting(length: int, tokens: int = 4000) -> list[AnyRecord]:
    """A session with drafts of a length."""
    session = Session()
    session.block()
    for drafted, accepted in rounds(length, tokens):
        work = SlotWork(
            request=0, slot=0, phase="verify", new=1 + drafted, cached=10, drafted=drafted, accepted=accepted,
            emitted=accepted + 1, outputs=1 + drafted,
        )  # fmt: skip
        session.steps(1, MS, work=(work,))
    return session.records


def shadowed(lengths: Sequence[int], tokens: int = 4000) -> list[AnyRecord]:
    """The same without drafts, while shadows guess."""
    session = Session()
    session.block()
    session.steps(tokens, MS)
    counts = []
    for length in lengths:
        made = rounds(length, tokens)
        accepted = sum(kept for _, kept in made)
        counts.append(LengthCounts(length, len(made), len(made), length * len(made), accepted))
    shadow = DraftShadow(
        at_ns=session.now_ns, epoch=0, source="ngram", requests=1, tokens=tokens, lengths=tuple(counts)
    )
    return [*session.records, shadow]
