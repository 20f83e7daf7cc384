"""The driver's management library (NVML) through its Python binding: opened with a sentence, asked with reasons.

Facts that shape this: a symbol that the driver lacks raises FUNCTION_NOT_FOUND when it is called, one that the binding
lacks raises AttributeError; a text that is not UTF-8 raises UnicodeDecodeError, which holds the bytes; errors of the
binding compare by value and are not hashable; using the handle of a GPU that fell off the bus may end the process.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from pathlib import Path
from typing import Any, Final, TypeAlias

Handle: TypeAlias = Any
"""Of a GPU or a MIG instance: a pointer that only the library understands."""

NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INVALID_ARGUMENT: Final = 2
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18

PERMANENT: Final = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, None})
"""Refusals that the next second does not change. `None`: the binding does not know the question."""

ABSENT: Final = frozenset({FUNCTION_NOT_FOUND, None})
"""Refusals of a function that the driver or the binding does not have."""

MEANINGS: Final = {
    1: "the driver's library has been shut down",
    INVALID_ARGUMENT: "the driver calls the question invalid",
    NOT_SUPPORTED: "this GPU or its driver does not support it",
    NO_PERMISSION: "it needs more rights",
    NOT_FOUND: "the driver has none",
    DRIVER_NOT_LOADED: "the driver is not loaded",
    LIBRARY_NOT_FOUND: "the driver's library is not there",
    FUNCTION_NOT_FOUND: "the driver is too old for it",
    GPU_IS_LOST: "the GPU fell off the bus",
    RESET_REQUIRED: "the GPU needs a reset",
    17: "the operating system or the container blocks it",
    VERSION_MISMATCH: "driver and library have different versions",
    25: "the driver does not know this version of the question",
    27: "the driver is not ready",
    28: "there is no such GPU",
    999: "the driver reports an unknown error",
}

NOTHING_TO_DO: Final = "Nothing to do: it is shown as unknown, and nothing depends on it."
REMEDIES: Final = {
    NOT_SUPPORTED: NOTHING_TO_DO,
    NO_PERMISSION: "Run Stackscope as root, or ask whoever runs this machine for the rights.",
    NOT_FOUND: NOTHING_TO_DO,
    FUNCTION_NOT_FOUND: "Update the NVIDIA driver.",
    GPU_IS_LOST: "Look for Xid messages in the kernel's log (dmesg); mostly the machine must be restarted.",
    RESET_REQUIRED: "Reset it with nvidia-smi --gpu-reset when nobody uses it, or restart the machine.",
    17: "Give the container the GPU's device files (/dev/nvidia*).",
    999: "See what nvidia-smi says of it and look for Xid messages in the kernel's log (dmesg).",
}
"""What helps against a refusal, by code."""

LIBRARY: Final = "libnvidia-ml.so.1"
OTHER_PLACES: Final = (Path("/usr/lib/wsl/lib"), Path("/run/opengl-driver/lib"))
"""Where the library is on WSL and NixOS, which the loader may not know."""

CHECK: Final = "See what nvidia-smi says."


class UnavailableError(Exception):
    """The library cannot be used at all."""

    def __init__(self, message: str, remedy: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.is_absent = is_absent
        """There is no NVIDIA driver here, rather than one that does not work."""


class RefusalError(Exception):
    """One question that was not answered, and why."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        """The library's. `None`: it was not the library that refused."""

    @classmethod
    def of(cls, code: int) -> RefusalError:
        """The refusal that a code of the library stands for."""
        meaning = MEANINGS.get(code, "the driver refuses")
        kind = LostError if code in (GPU_IS_LOST, RESET_REQUIRED) else cls
        return kind(f"{meaning} (NVML {code})", code)


class LostError(RefusalError):
    """The GPU is gone: none of its handles may be used again."""


class Nvml:
    """The open library."""

    def __init__(self) -> None:
        """Load the binding and the library, and initialise it. Raises `UnavailableError`."""
        self._binding = _binding()
        self.initialise()

    def initialise(self) -> None:
        """Initialise the library, at first or after `shut_down`. Raises `UnavailableError`."""
        try:
            self.ask("nvmlInit")
        except RefusalError as refusal:
            if refusal.code != LIBRARY_NOT_FOUND or not _load_elsewhere():
                raise _unavailable(refusal) from None
            try:
                self.ask("nvmlInit")
            except RefusalError as again:
                raise _unavailable(again) from None

    def shut_down(self) -> None:
        """Let go of the library. Every handle is void afterwards."""
        try:
            self.ask("nvmlShutdown")
        except RefusalError:
            return  # it was not open any more, which is what was wanted

    def ask(self, name: str, *arguments: object) -> Any:
        """Call a function of the binding. Raises `RefusalError`, and `LostError` when the GPU is gone.

        A text comes back as `str` whatever its bytes are.
        """
        try:
            function = getattr(self._binding, name)
        except AttributeError:
            raise RefusalError(f"the installed nvidia-ml-py is too old: it has no {name}") from None
        try:
            answer = function(*arguments)
        except self._binding.NVMLError as error:
            raise RefusalError.of(error.value) from None
        except UnicodeDecodeError as error:
            return _text(error.object)
        except self._mismatch as error:
            raise RefusalError(f"the installed nvidia-ml-py does not match the driver: {error}") from None
        return _text(answer) if isinstance(answer, bytes) else answer

    def new(self, name: str) -> Any:
        """A struct of the binding, or a constant. Raises `RefusalError`."""
        try:
            found = getattr(self._binding, name)
        except AttributeError:
            raise RefusalError(f"the installed nvidia-ml-py is too old: it has no {name}") from None
        return found() if callable(found) else found

    @property
    def _mismatch(self) -> type[Exception]:
        """What newer bindings raise for an unversioned function that the driver lacks."""
        kind: type[Exception] = getattr(self._binding, "NVMLLibraryMismatchError", self._binding.NVMLError)
        return kind


def remedy_for(reason: str) -> str:
    """What to do about a reading that is missing for this reason."""
    if "nvidia-ml-py is too old" in reason:
        return "Update it: pip install --upgrade nvidia-ml-py"
    found = re.search(r"\(NVML (\d+)\)", reason)
    return NOTHING_TO_DO if found is None else REMEDIES.get(int(found[1]), CHECK)


def _binding() -> Any:
    """The module `pynvml` of the package nvidia-ml-py. Raises `UnavailableError` for another, or none."""
    # The shell package of that name warns whoever imports the module, on a screen that is not its own.
    warnings.filterwarnings("ignore", message=".*pynvml package is deprecated.*", category=FutureWarning)
    try:
        import pynvml
    except ImportError:
        raise UnavailableError(
            "GPU readings need the package nvidia-ml-py, which is not installed.",
            "Install it: pip install nvidia-ml-py",
        ) from None
    if Path(pynvml.__file__ or "").name == "__init__.py" or not hasattr(pynvml, "NVMLError"):
        raise UnavailableError(
            "The package pynvml hides the one that GPU readings need, nvidia-ml-py.",
            "Run: pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
        )
    return pynvml


def _load_elsewhere() -> bool:
    """Load the library from where the loader does not look; later loads by name then find it."""
    for folder in OTHER_PLACES:
        if (folder / LIBRARY).exists():
            try:
                ctypes.CDLL(str(folder / LIBRARY))
            except OSError:
                continue
            return True
    return False


def _unavailable(refusal: RefusalError) -> UnavailableError:
    if refusal.code == LIBRARY_NOT_FOUND:
        return UnavailableError(
            f"There is no NVIDIA driver here: {LIBRARY} is not found.",
            "With an NVIDIA GPU, install its driver; in a container, start that with --gpus all.",
            is_absent=True,
        )
    if refusal.code == DRIVER_NOT_LOADED:
        return UnavailableError(
            "The NVIDIA driver is installed but not loaded (NVML 9).", "Load it with modprobe nvidia, or reboot."
        )
    if refusal.code == VERSION_MISMATCH:
        return UnavailableError(
            "The NVIDIA driver was updated while it ran, and its library no longer matches it (NVML 18).", "Reboot."
        )
    return UnavailableError(f"The NVIDIA driver does not answer: {refusal.reason}.", CHECK)


def _text(raw: bytes) -> str:
    """Bytes as text; what is not UTF-8 shows as replacement characters."""
    return raw.decode("utf-8", errors="replace")
