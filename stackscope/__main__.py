"""`python -m stackscope` is `stackscope`."""

from __future__ import annotations

from stackscope.commands.interrupts import end_at_once


def main() -> None:
    """Run the command line; ends by SystemExit."""
    end_at_once()  # Before the imports that take most of the time until a verb begins.
    from stackscope import cli

    cli.main()


if __name__ == "__main__":
    main()
