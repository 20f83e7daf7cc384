"""Running the command line in tests as a user does: in a process of its own, piped or on a terminal, with signals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tests.integration.worker_support import wait_ms

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import TracebackType

ROOT: Final = Path(__file__).parent.parent.parent
STACKSCOPE: Final = (sys.executable, "-m", "stackscope")
DEADLINE_S: Final = 120.0
"""Nothing takes nearly as long, unless it hangs."""

SMALL: Final = ("--workload", "unique", "--prompt-tokens", "48", "--concurrency", "3")
"""Traffic that is done in a second on the bundled models."""


def run(*arguments: str | Path, **popen: Any) -> subprocess.CompletedProcess[str]:
    """`stackscope run` to its end, piped."""
    command = [*STACKSCOPE, "run", *map(str, arguments)]
    # The library, once it is loaded in the tests' own process, sets variables of OpenMP behind Python's back.
    popen.setdefault("env", dict(os.environ))
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, **popen)


def run_json(*arguments: str | Path) -> dict[str, Any]:
    """The object that a run prints which succeeds without a word on standard error."""
    done = run("--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def until(holds: Callable[[], bool], *, seconds: float = DEADLINE_S) -> None:
    """Wait for what another process brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it has not come about"
        wait_ms(10)


class Running:
    """A command that runs while the test looks at it. Standard error, and output too when asked, is a terminal."""

    def __init__(
        self, *command: str | Path, output_too: bool = False, columns: int = 80, rows: int = 24, **popen: Any
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._modes = termios.tcgetattr(slave)
        self._slave = slave
        self._shown = bytearray()
        self._printed = bytearray()
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "CI"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=slave,
            stdout=slave if output_too else subprocess.PIPE,
            stderr=slave,
            cwd=ROOT,
            process_group=0,  # Its parent is in another group of the same session: ^Z then stops it, as under a shell.
            env=environment,
            **popen,
        )
        self._readers = [self._read(self._master, self._shown)]
        if self._process.stdout is not None:
            self._readers.append(self._read(self._process.stdout.fileno(), self._printed))

    @staticmethod
    def _read(descriptor: int, into: bytearray) -> threading.Thread:
        def read() -> None:
            try:
                while chunk := os.read(descriptor, 1 << 16):
                    into.extend(chunk)
            except OSError:
                pass  # The other end of a terminal is closed.

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    @property
    def terminal(self) -> str:
        """Everything that came on the terminal so far."""
        return self._shown.decode("utf-8", "replace")

    @property
    def output(self) -> str:
        """Standard output so far, where it is no terminal."""
        return self._printed.decode()

    @property
    def engine_pid(self) -> int | None:
        """The engine's process. `None`: there is none (yet)."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
        return int(children[0]) if children else None

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; when."""
        self._process.send_signal(number)
        return time.monotonic()

    def press(self, keys: str) -> float:
        """Type on the terminal; when."""
        os.write(self._master, keys.encode())
        return time.monotonic()

    def wait(self) -> int:
        """The exit status, once everything it wrote has been read."""
        status = self._process.wait(DEADLINE_S)
        os.close(self._slave)
        for reader in self._readers:
            reader.join(DEADLINE_S)
        return status

    @property
    def is_terminal_sane(self) -> bool:
        """The terminal is as it was: same modes, cursor shown, no other screen, no colour left on. Before `wait`."""
        shown = self.terminal
        is_shown = shown.rfind("\x1b[?25l") <= shown.rfind("\x1b[?25h")
        # Another screen; reports of the mouse, of the focus, of pasting; keys reported in another way.
        pairs = [(f"?{mode}h", f"?{mode}l") for mode in (1049, 1000, 1003, 1006, 1004, 2004)]
        is_main = all(shown.rfind(f"\x1b[{on}") <= shown.rfind(f"\x1b[{off}") for on, off in (*pairs, (">", "<u")))
        return is_shown and is_main and termios.tcgetattr(self._slave) == self._modes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)
        if self._process.stdout is not None:
            self._process.stdout.close()


def start(*arguments: str | Path, **options: Any) -> Running:
    """`stackscope run`, started."""
    return Running(*STACKSCOPE, "run", *arguments, **options)


def start_with(engine: str, *arguments: str | Path, **options: Any) -> Running:
    """The same with another engine in its process: `module:class`."""
    return Running(sys.executable, "-m", "tests.integration.cli_support", engine, "run", *arguments, **options)


def main() -> None:
    """The command line with the engine that the first argument names."""
    from stackscope import cli
    from stackscope.engine.process import EngineProcess

    engine = sys.argv.pop(1)
    start_process = EngineProcess.start

    def start_other(*arguments: Any, **options: Any) -> EngineProcess:
        return start_process(*arguments, **options, engine=engine)

    EngineProcess.start = start_other  # type: ignore[method-assign]
    cli.main()


if __name__ == "__main__":
    main()
