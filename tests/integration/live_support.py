"""The live screen in tests: on a terminal of its own, with the fake engine behind it, read or not read."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from tests.integration.cli_support import ROOT, Running

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from stackscope.engine.process import EngineProcess

STRAY: Final = "STRAYOUTPUT"
"""What is written past the screen, when the model's name asks for it."""


def live(model: str, *arguments: str | Path, columns: int = 120, rows: int = 40) -> Running:
    """`stackscope live` with the fake engine, on a terminal that is read."""
    return Running(*command(model, *arguments), output_too=True, columns=columns, rows=rows)


def command(model: str, *arguments: str | Path) -> list[str]:
    """The command line of that."""
    return [sys.executable, "-m", "tests.integration.live_support", model, "live", *map(str, arguments)]


def replay(path: Path) -> Running:
    """`stackscope replay` on a terminal that is read."""
    return Running(sys.executable, "-m", "stackscope", "replay", path, output_too=True, columns=120, rows=40)


class Unread:
    """A command on a terminal that nobody reads until `read` is called."""

    def __init__(self, *command: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
        environment |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, process_group=0, env=environment
        )
        os.close(slave)
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 1 << 16):
                self._shown.extend(chunk)
        except OSError:
            pass  # The other end of a terminal is closed.

    def read(self) -> None:
        """Read from now on."""
        self._reader.start()

    @property
    def n_bytes(self) -> int:
        """What waits to be read."""
        return int.from_bytes(fcntl.ioctl(self._master, termios.FIONREAD, bytes(4)), sys.byteorder)

    @property
    def terminal(self) -> str:
        return self._shown.decode("utf-8", "replace")

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        """Its exit status. `None`: it runs."""
        return self._process.poll()

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)


def stray() -> None:
    """Write wherever Python lets one write."""
    print(STRAY)  # noqa: T201
    sys.stderr.write(f"{STRAY}\n")
    logging.getLogger("somebody").error(STRAY)
    warnings.warn(STRAY, stacklevel=1)
    threading.excepthook(threading.ExceptHookArgs((ValueError, ValueError(STRAY), None, None)))


def main() -> None:
    """The command line with the fake engine that the first argument describes."""
    from stackscope import cli
    from stackscope.engine.process import EngineProcess
    from tests.unit.fake_engine import ENGINE, TRAFFIC

    model = sys.argv.pop(1)
    start = EngineProcess.start

    def start_fake(config: Any, workload: Any, **options: Any) -> EngineProcess:
        if model.endswith("#stray"):
            stray()
        config = msgspec.structs.replace(config, model=model.removesuffix("#stray"), threads=1)
        return start(config, workload, **options, engine=ENGINE, traffic=TRAFFIC)

    EngineProcess.start = start_fake  # type: ignore[method-assign]
    cli.main()


if __name__ == "__main__":
    main()
