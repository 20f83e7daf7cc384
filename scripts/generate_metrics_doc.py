"""Write docs/metrics.md from the metric classes. With --check, say whether it is current and write nothing."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from stackscope.analysis.account import ExactBytes, ExpectedBytes, Flops, ModelledBytes
from stackscope.analysis.metrics.catalogue import SECTIONS

TARGET = Path(__file__).parent.parent / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics

Generated from the metric classes by `scripts/generate_metrics_doc.py`; do not edit.

- A value is `null` in JSON, and a dash on screen, when it is unknown or undefined, never 0.
- Names that end in `_ns` are nanoseconds of one monotonic clock. Wall time runs from the start of the first step to
  the end of the last, idle time between steps included.
- Distributions give `n`, `mean`, `min`, `p50`, `p90`, `p95`, `p99` and `max`. Percentiles interpolate linearly and are
  exact up to 65,536 values; beyond, they come from a histogram and are off by 0.27 % at most (`is_exact` is false).
  `unsupported` lists the percentiles that fewer than one value lies beyond: the p99 of n < 100 is the maximum in
  disguise.
- Latencies are of completed requests (finish reason eos, length, context or stop). Cancelled and failed requests are
  counted, and enter no latency.
- Aborted forwards count in the time and nowhere else: their rows are redone, and count then.
- A token is *emitted* when it enters an output: never past an end-of-sequence token, a stop or a limit.
- Warm-up is left out only when asked for; what was left out is counted apart.
- When the configuration changes during a run, `epochs` has every metric once per configuration. A request is in an
  epoch when it arrived and ran under that configuration alone; the others are `spanning_requests`.
  The idle time in which the configuration changed (a rebuild, for instance) belongs to the run and to no epoch.
- *Needs* names what a source must know; without it the value is `null`. `steps` and `requests` are the records
  themselves, `model` the geometry of the target (and of the draft model, when one runs), `limits` the limits asked for.
"""

ACCOUNT = """\
## Parts of the account

Bytes and FLOPs come from the tensor table, the geometry and the batch, never from labels or peaks. Every forward is
counted first (passes over the weights, rows, cached tokens read, query–key pairs) and priced afterwards.
"""

KINDS = {
    "Exact bytes": ExactBytes,
    "Expected bytes": ExpectedBytes,
    "Modelled bytes": ModelledBytes,
    "FLOPs": Flops,
}


def document() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *[section(name) for name in SECTIONS], ACCOUNT, *[parts(kind) for kind in KINDS]])


def section(name: str) -> str:
    lines = [f"## {name}", ""]
    for metric in SECTIONS[name]:
        kind = type(metric)
        lines += [
            f"### `{kind.tag}`",
            "",
            f"**{kind.header}**, {'a ratio' if kind.unit == '1' else kind.unit}. {prose(kind)}",
            "",
            f"    {kind.formula}",
            "",
            f"Needs: {', '.join(kind.needs)}.",
            "",
        ]
    return "\n".join(lines)


def parts(name: str) -> str:
    kind = KINDS[name]
    return "\n".join(
        [f"### {name}", "", prose(kind), "", ", ".join(f"`{field}`" for field in kind.__struct_fields__) + ".", ""]
    )


def prose(kind: type) -> str:
    """A class's docstring as one paragraph."""
    return " ".join((inspect.getdoc(kind) or "").split())


def main() -> int:
    text = document()
    if "--check" in sys.argv[1:]:
        is_current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print("docs/metrics.md is current." if is_current else f"docs/metrics.md is stale: run {Path(__file__).name}.")
        return 0 if is_current else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
