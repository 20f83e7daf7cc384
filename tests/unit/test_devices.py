"""Which devices the library registered, read by the real ctypes path, and which of them a configuration uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from stackscope.engine.devices import Device, registered, used
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = r"""
#include <stddef.h>
#include <string.h>
enum kind { CPU, GPU, IGPU, ACCEL, META };
struct caps { _Bool async, host_buffer, buffer_from_host_ptr, events, mmap_support; };
struct props {
    const char *name, *description; size_t memory_free, memory_total; enum kind type; const char *device_id;
    struct caps caps;
};
static struct props all[] = {
    {"CUDA0", "NVIDIA H100 \xff", 5u << 28, 10u << 28, GPU, "0000:1b:00.0", {1, 1, 1, 1, 1}},
    {"NEW0", "", 0, 0, 17, NULL, {0}},
    {"CPU", "A processor", 7, 9, CPU, NULL, {0}},
};
size_t ggml_backend_dev_count(void) { return 3; }
void *ggml_backend_dev_get(size_t index) { return &all[index]; }
void ggml_backend_dev_get_props(void *device, struct props *into) { memcpy(into, device, sizeof *into); }
"""
"""The part of ggml that is asked, as `ggml-backend.h` declares it."""


def compile_to(target: Path, source: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the tests need a C compiler"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)


def test_what_the_library_says_of_its_devices(tmp_path: Path) -> None:
    compile_to(tmp_path / "libggml-base.so", LIBRARY)
    compile_to(tmp_path / "libggml.so", "int ggml_backend_load_all;")
    (tmp_path / "libggml-cuda.so").touch()  # No library: it is never opened here.
    assert registered(tmp_path) == (
        Device(
            name="CUDA0", description="NVIDIA H100 \N{REPLACEMENT CHARACTER}", type="gpu", pci_id="0000:1b:00.0",
            memory_free=5 << 28, memory_total=10 << 28,
        ),
        Device(name="NEW0", description="", type="unknown"),
        Device(name="CPU", description="A processor", type="cpu", memory_free=7, memory_total=9),
    )  # fmt: skip


def test_a_library_without_a_registry_is_told_of(tmp_path: Path) -> None:
    compile_to(tmp_path / "libggml.so", "int nothing;")
    with pytest.raises(LookupError, match="ggml_backend_dev_count"):
        registered(tmp_path)


def gpu(index: int, pci_id: str | None = None, type: str = "gpu") -> Device:
    return Device(name=f"GPU{index}", description="", type=type, pci_id=pci_id)


CPU = Device(name="CPU", description="", type="cpu")
FIRST, SECOND = gpu(0, "0000:01:00.0"), gpu(1, "0000:02:00.0")


@pytest.mark.parametrize(
    ("devices", "settings", "expected"),
    [
        ((CPU,), {}, ()),
        ((FIRST, SECOND, CPU), {}, (FIRST, SECOND)),
        ((FIRST, CPU), {"gpu_layers": 0}, (FIRST,)),
        ((FIRST, SECOND, CPU), {"split_mode": "none"}, (FIRST,)),
        ((FIRST, SECOND, CPU), {"split_mode": "none", "main_gpu": 1}, (SECOND,)),
        ((FIRST, SECOND, CPU), {"split_mode": "none", "main_gpu": -1}, ()),
        ((FIRST, SECOND, CPU), {"split_mode": "none", "main_gpu": 7}, ()),
        ((FIRST, SECOND, CPU), {"tensor_split": (1.0, 0.0)}, (FIRST,)),
        ((FIRST, SECOND, CPU), {"tensor_split": (0.0, 3.0)}, (SECOND,)),
        ((FIRST, SECOND, CPU), {"tensor_split": (2.0,)}, (FIRST,)),
        ((FIRST, SECOND, CPU), {"tensor_split": (0.0, 0.0)}, (FIRST, SECOND)),
        ((FIRST, gpu(1, "0000:01:00.0"), CPU), {}, (FIRST,)),
        ((gpu(0), gpu(1), CPU), {}, (gpu(0), gpu(1))),
        ((CPU, gpu(0, type="integrated gpu")), {}, (gpu(0, type="integrated gpu"),)),
        ((gpu(0, type="integrated gpu"), SECOND), {}, (SECOND,)),
        ((gpu(0, type="accelerator"), CPU), {}, ()),
    ],
)
def test_which_of_them_a_configuration_uses(
    devices: tuple[Device, ...], settings: dict[str, object], expected: tuple[Device, ...]
) -> None:
    config = EngineConfig(**settings)  # type: ignore[arg-type]
    assert used(devices, config) == expected


@pytest.mark.engine
def test_the_real_library_has_a_processor() -> None:
    from stackscope.engine import llama

    [processor] = [device for device in llama.devices() if device.type == "cpu"]
    assert (processor.pci_id, processor.name) == (None, "CPU")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert processor.memory_total is not None
    assert 0 < processor.memory_total <= total
