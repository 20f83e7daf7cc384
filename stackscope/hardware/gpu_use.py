"""Which GPUs the engine runs on: what it says itself, what the driver's process list says, and what CUDA lets it see.

The driver counts GPUs in PCI order and ignores `CUDA_VISIBLE_DEVICES`; CUDA counts the fastest first unless told
otherwise. Indices of the two are therefore matched only where they cannot differ.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INITIAL_NAMESPACE: Final = "pid:[4026531836]"
"""The namespace that the driver's process ids belong to: its number is fixed in the kernel's source."""

UNTOLD: Final = "neither the engine nor the driver's process list says"


class EngineUse(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the engine's use of GPUs."""

    pid: int | None = None
    """Of the engine process, as this process sees it."""
    offloads: bool | None = None
    """Whether it computes on a GPU at all. `None`: not known."""
    pci_ids: tuple[str, ...] | None = None
    """The GPUs that it names itself. `None`: it names none."""
    visible: str | None = None
    """`CUDA_VISIBLE_DEVICES` of its environment. `None`: not set."""
    order: str | None = None
    """`CUDA_DEVICE_ORDER` of its environment."""

    @classmethod
    def of(cls, environment: Mapping[str, str], *, pid: int | None = None, offloads: bool | None = None) -> EngineUse:
        """The use of an engine that was started with this environment."""
        return cls(
            pid=pid,
            offloads=offloads,
            visible=environment.get("CUDA_VISIBLE_DEVICES"),
            order=environment.get("CUDA_DEVICE_ORDER"),
        )


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU, or a MIG instance of one, is known by."""

    uuid: str
    name: str
    index: int
    pci_id: str | None = None
    instance_of: str | None = None


def pci_id(text: str) -> str | None:
    """A PCI id in one spelling, `0000:01:00.0`. `None`: it is none."""
    found = re.fullmatch(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", text.strip().lower())
    if found is None:
        return None
    domain, bus, device, function = found.groups(default="0")
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def visible(use: EngineUse, all_of_them: Sequence[Identity]) -> dict[str, bool | None]:
    """By UUID: whether CUDA lets the engine see each. `None`: the index that names it may mean another."""
    if use.visible is None:
        return {gpu.uuid: True for gpu in all_of_them}
    whole = [gpu for gpu in all_of_them if gpu.instance_of is None]
    has_instances = len(whole) < len(all_of_them)
    named: set[str] = set()
    indices: set[int] = set()
    for entry in (part.strip() for part in use.visible.split(",")):
        if entry.isdigit() and int(entry) < len(whole):
            indices.add(int(entry))
            continue
        matching = [gpu.uuid for gpu in all_of_them if entry[:4] in ("GPU-", "MIG-") and gpu.uuid.startswith(entry)]
        if len(matching) != 1:
            break  # CUDA takes what stands before the first entry that it cannot make out
        named.add(matching[0])
    answers: dict[str, bool | None] = {gpu.uuid: gpu.uuid in named for gpu in all_of_them}
    is_same_order = use.order == "PCI_BUS_ID" or len({gpu.name for gpu in whole}) == 1
    for gpu in all_of_them if indices else ():
        if has_instances:
            answers[gpu.uuid] = None
        elif len(indices) == len(whole) or (is_same_order and gpu.index in indices):
            answers[gpu.uuid] = True
        elif not is_same_order:
            answers[gpu.uuid] = None
    return answers


def used(gpu: Identity, use: EngineUse, *, is_visible: bool | None, pids: frozenset[int] | None) -> bool | None:
    """Whether the engine runs on a GPU. `None`: nobody can tell.

    `pids` are the processes that the driver lists for it. `None`: the list is not there, or not of this namespace.
    """
    if use.offloads is False or is_visible is False:
        return False
    if use.pci_ids is not None and gpu.pci_id is not None:
        return gpu.pci_id in use.pci_ids
    if use.pid is not None and pids is not None:
        return use.pid in pids
    return True if use.offloads and is_visible else None


def trusted(pids: Sequence[int], root: Path = Path("/")) -> bool:
    """Whether the process ids that the driver lists are those that this process knows.

    In a container they may be the host's, and one of them may by chance be the engine's own id inside. So this process
    must be in the first namespace, and every process listed must be there.
    """
    try:
        namespace = (root / "proc/self/ns/pid").readlink()
    except OSError:
        return False
    return str(namespace) == INITIAL_NAMESPACE and not outside(pids, root)


def outside(pids: Sequence[int], root: Path = Path("/")) -> list[int]:
    """Those of the processes that are not there for this process."""
    return [pid for pid in pids if not (root / f"proc/{pid}").exists()]
