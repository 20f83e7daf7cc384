"""`python -m stackscope` is `stackscope`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; ends by SystemExit."""
    try:
        from stackscope import cli

        cli.main()
    except KeyboardInterrupt:  # while modules are imported: what comes after has answers of its own
        sys.exit(130)


if __name__ == "__main__":
    main()
