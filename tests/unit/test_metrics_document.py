"""docs/metrics.md says what the metric classes say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stackscope.analysis.metrics.catalogue import METRICS

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    script = ROOT / "scripts" / "generate_metrics_doc.py"
    found = subprocess.run(
        [sys.executable, str(script), "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_metric_says_what_it_is() -> None:
    for metric in METRICS:
        kind = type(metric)
        assert kind.__doc__, kind
        assert kind.__doc__ != kind.__mro__[1].__doc__, f"{kind} has no docstring of its own"
        for text in (kind.tag, kind.header, kind.unit, kind.formula):
            assert text
        assert kind.needs
