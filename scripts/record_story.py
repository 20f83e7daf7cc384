"""Record the story that README's pictures tell: baseline, speculation, a larger batch, a smaller KV cache.

One session of a target that is bound by weight bandwidth: the bundled target inflated to 600 MB, which answers the same
at the cost of a model of that size, with the bundled draft. What the machine does at most with it is measured first,
and what each change is predicted to do is recorded before it is made.
What happens is what happens on this machine: nothing here knows how it should come out.

    python scripts/record_story.py profiles/story.jsonl.zst
    python scripts/record_story.py profiles/story.jsonl.zst --seconds 20 --megabytes 300
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, cast

from stackscope import units
from stackscope.analysis.explainer import Explainer
from stackscope.commands.calibrate import calibrate
from stackscope.engine import wire
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.engine.process import EngineProcess
from stackscope.launch import header_of, start_sampler, with_models
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.model.inflate import inflate
from stackscope.session.paths import Destination
from stackscope.session.writer import open_recording
from stackscope.toggles import EngineConfig
from stackscope.workload import check
from stackscope.workload.spec import WorkloadSpec, parse_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.engine.wire import AnyCommand
    from stackscope.toggles import Setting

STORY: Final[tuple[tuple[str, AnyCommand], ...]] = (
    ("speculation on", wire.reconfigure({"speculation": "draft"}, by="user")),
    ("batch 8", wire.SetConcurrency(concurrency=8)),
    ("speculation off", wire.reconfigure({"speculation": "off"}, by="user")),
    ("KV quantised", wire.reconfigure({"kv_type_k": "q8_0", "kv_type_v": "q8_0"}, by="user")),
)
"""What is changed after each stretch, and the name of the stretch that it begins. The first one is `baseline`."""


def follow(process: EngineProcess, explainer: Explainer, until_ns: int) -> bool:
    """Read what the engine says until a time of the session. False: it has ended."""
    while (left_ns := until_ns - process.now_ns()) > 0:
        is_read = process.is_read
        item = process.next_item(left_ns / 1e9)
        if item is None and is_read:
            return False
        if item is not None and not isinstance(item, wire.Message):
            explainer.write(item)
    return True


def predict(process: EngineProcess, explainer: Explainer, change: AnyCommand) -> None:
    """Put into the session what a change is predicted to do, as the live screen does."""
    settings: Mapping[str, Setting] = {}
    if isinstance(change, wire.Reconfigure):
        settings = cast("Mapping[str, Setting]", change.changes)
    elif isinstance(change, wire.SetConcurrency):
        settings = {"concurrency": change.concurrency}
    prediction = explainer.predict(settings, process.now_ns())
    if prediction is not None:
        process.inject(prediction)
        tokens = prediction.tokens
        told = "-" if tokens is None else units.change(tokens.value - 1, tokens.low - 1, tokens.high - 1)
        print(f"         predicted {told}: {prediction.reason}", flush=True)


def record(config: EngineConfig, destination: Path, seconds: float) -> None:
    """Run the story, and record it."""
    length = parse_length("128..192")
    workload = WorkloadSpec(
        name="code", concurrency=1, prompt_tokens=length, output_tokens=parse_length("96"), duration_s=3600.0
    )
    facts = check.check(workload)
    with EngineProcess.start(config, workload) as process:
        process.wait_ready()
        header = header_of(process, workload, facts)
        recorder = open_recording(Destination(destination, is_chosen=True), header)
        explainer = Explainer(rules=Allowances(usable_cores()))
        explainer.write(header)
        process.begin(header, recorder)
        with contextlib.closing(start_sampler(process, recorder_cpu_ns=lambda: recorder.cpu_ns)):
            tell(process, explainer, seconds)
            process.stop()
            with contextlib.suppress(StopIteration):
                list(process.items())


def tell(process: EngineProcess, explainer: Explainer, seconds: float) -> None:
    """One stretch after the other, each begun by its mark, and then by what is changed."""
    stretches: Sequence[tuple[str, AnyCommand | None]] = (("baseline", None), *STORY)
    for name, change in stretches:
        process.send(wire.SetMark(label=name))
        print(f"{process.now_ns() / 1e9:6.1f} s  {name}", flush=True)
        if change is not None:
            predict(process, explainer, change)
            process.send(change)
        if not follow(process, explainer, process.now_ns() + round(seconds * 1e9)):
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each stretch")
    parser.add_argument("--megabytes", type=float, default=600.0, help="size of the inflated target")
    parser.add_argument("--no-calibration", action="store_true", help="measure no ceilings")
    args = parser.parse_args()
    if args.recording.exists():
        sys.exit(f"{args.recording} is there already.")
    with TemporaryDirectory() as folder:
        target = Path(folder) / f"lab-target-{args.megabytes:.0f}mb.gguf"
        inflate(bundled_target(), args.megabytes, output=target)
        config = with_models(EngineConfig(model=str(target), draft_model=str(bundled_draft()), slots=8, draft_length=3))
        if not args.no_calibration:
            calibrate(config)
        record(config, args.recording, args.seconds)


if __name__ == "__main__":
    main()
