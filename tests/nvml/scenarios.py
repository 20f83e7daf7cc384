"""GPUs as the fake library plays them. What a scenario does not mention is answered NOT_SUPPORTED."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.nvml.machine import Scenario

GIB = 1 << 30


def driver(gpus: int, *, version: str = "570.86.15") -> Scenario:
    """A library with so many GPUs."""
    return {"library.driver": version, "library.gpus": gpus}


def gpu(index: int, /, **answers: object) -> Scenario:
    """A GPU that answers this."""
    return {f"gpu.{index}.{name}": value for name, value in answers.items()}


def h100(index: int = 0, /, **changes: object) -> Scenario:
    """An H100 SXM at work: everything but a fan, which it does not have."""
    answers: dict[str, object] = {
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd",
        "pci": f"00000000:{0x1B + index:02X}:00.0",
        "bus_bits": 5120,
        "memory_clock_max": 2619,
        "memory_clock": 2619,
        "sm_clock": 1755,
        "gpu_samples": "100;90,80;60",
        "memory_samples": "70;50,40",
        "gpu_percent": 11,
        "memory_percent": 12,
        "memory_total": 80 * GIB,
        "memory_used": 21 * GIB,
        "power_mw": 412_345,
        "power_limit_mw": 700_000,
        "energy_mj": "5000000,5412000",
        "temperature": 47,
        "throttle": "0x1,0x24",
        "processes": "",
        "mig_mode": 0,
        "field_82": 58,
        "field_74": "1000000000,1250000000",
        "field_76": 0,
        "field_269": 5_000_000,
        "field_270": 0,
        "field_271": 0,
        "field_197": "1000000,201000000",
        "field_198": "5000000,8005000000",
        "gpm": 1,
        "gpm_gap_ms": 0,
        "gpm_2": 61.5,
        "gpm_3": 12.25,
        "gpm_5": 3.5,
        "gpm_10": 75.9,
        "gpm_20": 100,
        "gpm_21": 2000,
        "gpm_60": 0,
        "gpm_61": 0,
    }
    return gpu(index, **{**answers, **changes})


def a10(index: int = 0, /, **changes: object) -> Scenario:
    """An Ampere card with a fan and without GPM."""
    answers: dict[str, object] = {
        "name": "NVIDIA A10",
        "uuid": f"GPU-1000000{index}-aaaa-bbbb-cccc-dddddddddddd",
        "pci": f"00000000:{0x41 + index:02X}:00.0",
        "bus_bits": 384,
        "memory_clock_max": 6251,
        "memory_clock": 6251,
        "sm_clock": 1695,
        "gpu_samples": "50",
        "memory_samples": "20",
        "memory_total": 24 * GIB,
        "memory_used": 2 * GIB,
        "power_mw": 150_000,
        "power_limit_mw": 150_000,
        "energy_mj": 1000,
        "temperature": 60,
        "fan_percent": 45,
        "throttle": "0x4",
        "processes": "",
        "gpm": 0,
    }
    return gpu(index, **{**answers, **changes})


def gb10(**changes: object) -> Scenario:
    """A DGX Spark: memory shared with the processor, of which the driver tells nothing."""
    answers: dict[str, object] = {
        "name": "NVIDIA GB10",
        "uuid": "GPU-20000000-aaaa-bbbb-cccc-dddddddddddd",
        "pci": "0000000F:01:00.0",
        "bus_bits": 0,
        "sm_clock": 2405,
        "gpu_samples": "96",
        "memory_samples": "0",
        "power_mw": 35_000,
        "temperature": 55,
        "throttle": "0",
        "processes": "4242:40430000000",
        "gpm": 0,
    }
    return gpu(0, **{**answers, **changes})


def mig(**changes: object) -> Scenario:
    """An H100 that is divided: two instances, and an empty place between them."""
    whole = h100(mig_mode=1, mig_devices=7, nvmlDeviceGetMemoryInfo=4)
    for name in ("gpu_samples", "memory_samples", "gpu_percent", "memory_percent"):
        del whole[f"gpu.0.{name}"]
    for place, number in ((0, 7), (2, 9)):
        one = {
            "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "uuid": f"MIG-0000000{place}-1111-2222-3333-444444444444",
            "gpu_instance": number,
            "memory_total": 10 * GIB,
            "memory_used": (place + 1) * GIB,
            "gpm_2": 30 + place,
            "gpm_10": 20 + place,
        }
        whole |= {f"gpu.0.mig.{place}.{name}": value for name, value in one.items()}
    return {**whole, **{f"gpu.0.{name}": value for name, value in changes.items()}}
