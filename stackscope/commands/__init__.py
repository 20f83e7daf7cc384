"""One module per verb of the command line, each with the body that its verb in `cli` calls."""

from __future__ import annotations
