"""Stage `inflate`: the lab target in a size that no cache holds. It answers the same, so the lab draft fits it."""

from __future__ import annotations

import argparse
import sys

from benchmarks.gpu.folders import Folders, add_folders, say, sentence_of
from stackscope import units
from stackscope.model.catalog import bundled_target
from stackscope.model.inflate import inflate

MEGABYTES = 4_200.0


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    add_folders(options)
    options.add_argument("--megabytes", type=float, default=MEGABYTES)
    given = options.parse_args(arguments)
    folders = Folders.of(given)
    made = inflate(bundled_target(), given.megabytes, output=folders.target, replace=True)
    say(f"{made.path}: {units.data_size(made.plan.bytes)}, feed-forward width {units.count(made.plan.width)}")
    folders.save("inflate", {"bytes": made.plan.bytes, "width": made.plan.width, "source_bytes": made.source_bytes})
    return 0


if __name__ == "__main__":
    sys.exit(sentence_of(main))
