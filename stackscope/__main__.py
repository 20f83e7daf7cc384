"""`python -m stackscope` is `stackscope`."""

from __future__ import annotations

from stackscope.cli import main

if __name__ == "__main__":
    main()
