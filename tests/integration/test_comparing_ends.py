"""What a comparison that is killed leaves behind."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import psutil

from tests.integration.worker_support import is_gone_within

SCRIPT = """
import os, time
from stackscope.experiments.comparing import reading_processes

with reading_processes(1) as pool:
    pool.submit(os.getpid).result()
    print("begun", flush=True)
    pool.submit(time.sleep, 60).result()
"""
ALLOWED_S = 1.0
START_S = 30.0
"""For interpreters to start on a busy machine."""


def test_the_processes_that_read_end_with_the_one_that_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"begun\n"
        left = psutil.Process(process.pid).children(recursive=True)
        assert len(left) == 2  # One that reads, and the one with which Python keeps track of what they share.
        process.kill()
        process.wait(START_S)
    ended = [is_gone_within(one.pid, ALLOWED_S) for one in left]
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    assert ended == [True, True]
