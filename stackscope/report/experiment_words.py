"""What the reports of all experiments say in the same words."""

from __future__ import annotations

from stackscope import units


def disturbed(n: int, n_runs: int) -> str | None:
    """That something else ran beside `n` of the runs. `None`: beside none."""
    if n == 0:
        return None
    return (
        f"In {n} of {units.counted(n_runs, 'run')} something else had the engine's cores for more than 3 % of the "
        "time. They are in the figures, and widen the intervals."
    )
