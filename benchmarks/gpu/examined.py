"""Stage `doctor`: what `stackscope doctor` says of this machine, for people and as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.gpu.folders import Folders, add_folders, say


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    add_folders(options)
    folders = Folders.of(options.parse_args(arguments))
    command = [sys.executable, "-m", "stackscope", "doctor"]
    subprocess.run(command, env=folders.environment(), check=False)
    told = subprocess.run([*command, "--json"], env=folders.environment(), check=False, capture_output=True, text=True)
    try:
        folders.save("doctor", json.loads(told.stdout))
    except json.JSONDecodeError:
        say(f"stackscope doctor --json says nothing (status {told.returncode}):\n{told.stderr[-3000:]}")
        return 1
    return told.returncode


if __name__ == "__main__":
    sys.exit(main())
