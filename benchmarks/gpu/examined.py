"""Stage `doctor`: what `stackscope doctor` says of this machine, for people and as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.gpu.folders import Folders, add_folders


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    add_folders(options)
    folders = Folders.of(options.parse_args(arguments))
    command = [sys.executable, "-m", "stackscope", "doctor"]
    subprocess.run(command, env=folders.environment(), check=False)
    told = subprocess.run([*command, "--json"], env=folders.environment(), check=False, capture_output=True, text=True)
    folders.save("doctor", json.loads(told.stdout))
    return told.returncode


if __name__ == "__main__":
    sys.exit(main())
