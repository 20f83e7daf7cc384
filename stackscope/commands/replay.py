"""`stackscope replay`: a recording on the live screen, or without a terminal its summary."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from stackscope.characters import harmless
from stackscope.commands.wrong_keys import tell_wrong_keys
from stackscope.tui.terminal import why_no_screen

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.config import RunOptions


def replay(path: Path, options: RunOptions) -> int:
    """Play a recording; the exit status. Raises `SessionFileError`."""
    why = why_no_screen(os.environ, sys.stdin, sys.stdout)
    if why is not None:
        return _summarise(path, options, why)
    from stackscope.commands.screen import play, show_all

    return show_all(play(path, options), options)


def _summarise(path: Path, options: RunOptions, why: str) -> int:
    """Print what `run` printed at the end of it, and `why` there is no screen."""
    from stackscope.analysis.comparing.loads import LoadsSeen, described
    from stackscope.analysis.explainer import Explainer, unhurried
    from stackscope.analysis.scorecard import Scorer
    from stackscope.analysis.summary import RunSummary
    from stackscope.engine.allowances import Allowances
    from stackscope.records import StepRecord
    from stackscope.report import output
    from stackscope.report.text import RunReport, summary
    from stackscope.session.reader import SessionReader

    reader = SessionReader(path)  # First of all: what is no recording is one sentence, and no summary.
    print(f"stackscope: no live screen, because {harmless(why)}; this is the summary.", file=sys.stderr)
    tell_wrong_keys(options)
    run = RunSummary(limits=options.limits.service)
    explainer = Explainer(rules=Allowances(reader.header.cores), cpu_ns=unhurried)
    scorer, loads = Scorer(), LoadsSeen(reader.header)
    last_ns = 0
    for record in reader:
        run.write(record)
        explainer.write(record)
        scorer.write(record)
        loads.write(record)
        if isinstance(record, StepRecord):
            last_ns = record.end_ns
    scorer.close()
    report = RunReport(
        result=run.result(),
        header=reader.header,
        workload=described(reader.header, loads.loads),
        recording=path,
        notes=tuple(told for told in (reader.truncated, reader.left_out) if told is not None),
        explanation=explainer.final(last_ns),
        score=scorer.card.score().told,
    )
    output.show(partial(summary, report))
    return 0
