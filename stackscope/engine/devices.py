"""The devices that the inference library can compute on, and which of them a configuration makes it use."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.toggles import EngineConfig

TYPES: Final = {0: "cpu", 1: "gpu", 2: "integrated gpu", 3: "accelerator", 4: "meta"}
"""`ggml_backend_dev_type` in `ggml-backend.h`."""


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device that ggml registered."""

    name: str
    """As ggml counts, e.g. `CUDA0`."""
    description: str
    type: str
    """One of `TYPES`, or `unknown`."""
    pci_id: str | None = None
    """As `0000:01:00.0`. `None`: it is no PCI device, or its backend does not tell."""
    memory_free: int | None = None
    """Bytes. `None`: not told."""
    memory_total: int | None = None

    @property
    def is_gpu(self) -> bool:
        return self.type in ("gpu", "integrated gpu")


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`, with room behind what is read for capabilities that later versions add."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 64),
    )


def registered(folder: Path) -> tuple[Device, ...]:
    """Every device of the library in `folder`, whose backends are initialised. Asking a GPU for its memory wakes it."""
    # The registry lives in libggml, the accessors of a device in libggml-base.
    names = ("libggml.", "ggml.", "libggml-base.", "ggml-base.")
    libraries = [ctypes.CDLL(str(path)) for path in sorted(folder.iterdir()) if path.name.startswith(names)]

    def function(name: str, answer: object, arguments: list[object]) -> Any:
        for library in libraries:
            if hasattr(library, name):
                found: Any = getattr(library, name)
                found.restype, found.argtypes = answer, arguments
                return found
        raise LookupError(name)

    count = function("ggml_backend_dev_count", ctypes.c_size_t, [])
    get = function("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
    describe = function("ggml_backend_dev_get_props", None, [ctypes.c_void_p, ctypes.POINTER(_Properties)])
    found = []
    for index in range(count()):
        told = _Properties()
        describe(get(index), ctypes.byref(told))
        found.append(
            Device(
                name=_text(told.name) or f"device {index}",
                description=_text(told.description) or "",
                type=TYPES.get(told.type, "unknown"),
                pci_id=_text(told.device_id),
                memory_free=told.memory_free if told.memory_total else None,
                memory_total=told.memory_total or None,
            )
        )
    return tuple(found)


def used(devices: Sequence[Device], config: EngineConfig) -> tuple[Device, ...]:
    """The GPUs that a configuration computes on; empty: the processor does it all.

    As `llama_prepare_model_devices` in `src/llama.cpp` chooses them. With no layers offloaded the library still sends
    large products to the GPUs (`op_offload`), so they count. One whose share of the tensors is 0 does not.
    """
    gpus: list[Device] = []
    for device in devices:
        is_told_before = device.pci_id is not None and device.pci_id in {gpu.pci_id for gpu in gpus}
        if device.type == "gpu" and not is_told_before:
            gpus.append(device)
    found = gpus or [device for device in devices if device.type == "integrated gpu"]
    if config.split_mode == "none":
        return tuple(found[config.main_gpu : config.main_gpu + 1]) if config.main_gpu >= 0 else ()
    shares = config.tensor_split
    has_shares = any(share > 0 for share in shares)
    return tuple(
        gpu for index, gpu in enumerate(found) if not has_shares or (index < len(shares) and shares[index] > 0)
    )


def _text(raw: bytes | None) -> str | None:
    return raw.decode(errors="replace") if raw else None
