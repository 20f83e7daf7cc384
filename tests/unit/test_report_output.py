"""What is written to the terminal: nothing out of a recording moves or colours it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from stackscope.report import output
from stackscope.report.layout import visible

if TYPE_CHECKING:
    import pytest


def test_a_recording_cannot_move_or_colour_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts of somebody else's header, marks or models: as long as they were, lines kept."""
    foreign = "\x1b[31mEPYC\x07 über\r\n24\N{NO-BREAK SPACE}cores\x9b2J"
    assert visible(foreign) == "\ufffd[31mEPYC\ufffd über\ufffd\n24\N{NO-BREAK SPACE}cores\ufffd2J"
    output.show(lambda _: Text.assemble(("device ", "bold"), foreign))
    written = capsys.readouterr().out
    assert "EPYC" in written
    assert not set(written) & {"\x1b", "\x07", "\r", "\x9b"}
