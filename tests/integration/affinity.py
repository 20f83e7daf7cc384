"""The engine in the tests' own process waits and is bound to cores as it is in a process of its own.

OpenMP reads its environment when the inference library is loaded, and binds the loading thread at once. Here that is
the main thread, from which tests and the processes they start inherit: so it is bound only while it runs an engine.
"""

from __future__ import annotations

import os
from typing import Final

from stackscope.engine.openmp import child_environment, usable_cores

CAN_BIND: Final = hasattr(os, "sched_setaffinity")

usable_cores()  # The first answer stays; this is before there is less to count.
ALL: Final = frozenset(os.sched_getaffinity(0)) if CAN_BIND else frozenset()
os.environ.update(child_environment(os.environ))

import llama_cpp  # noqa: E402, F401 - after the environment is set

BOUND: Final = frozenset(os.sched_getaffinity(0)) if CAN_BIND else frozenset()


def bind() -> None:
    """Be where OpenMP put the main thread, which it does once."""
    if CAN_BIND:
        os.sched_setaffinity(0, BOUND)


def release() -> None:
    """Use all cores again."""
    if CAN_BIND:
        os.sched_setaffinity(0, ALL)


release()
