"""Matching the engine's GPUs with the driver's: by name where there is one, by index only where it cannot deceive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.hardware import gpu_use
from stackscope.hardware.gpu_use import INITIAL_NAMESPACE, EngineUse, Identity

if TYPE_CHECKING:
    from pathlib import Path


def card(index: int, name: str = "NVIDIA A10", instance_of: str | None = None) -> Identity:
    kind = "GPU" if instance_of is None else "MIG"
    return Identity(
        uuid=f"{kind}-{index}{index}-x", name=name, index=index, pci_id=f"0000:0{index}:00.0", instance_of=instance_of
    )


TWINS = (card(0), card(1), card(2))
MIXED = (card(0, "NVIDIA A10"), card(1, "NVIDIA H100 80GB HBM3"), card(2, "NVIDIA A10"))
SLICED = (card(0), card(1, instance_of="GPU-00-x"))


@pytest.mark.parametrize(
    ("gpus", "visible", "order", "answers"),
    [
        (TWINS, None, None, [True, True, True]),
        (TWINS, "", None, [False, False, False]),
        (TWINS, "-1", None, [False, False, False]),
        (TWINS, "NoDevFiles", None, [False, False, False]),
        (TWINS, "1", None, [False, True, False]),
        (TWINS, " 2 , 0 ", None, [True, False, True]),
        # What stands after the first entry that is none is not looked at.
        (TWINS, "0,7,1", None, [True, False, False]),
        (TWINS, "0,-1,1", None, [True, False, False]),
        (TWINS, "GPU-11-x", None, [False, True, False]),
        (TWINS, "GPU-1", None, [False, True, False]),
        # A beginning that several share names none.
        (TWINS, "GPU-", None, [False, False, False]),
        # CUDA's 0 is the fastest, which need not be the driver's 0.
        (MIXED, "0", None, [None, None, None]),
        (MIXED, "0", "FASTEST_FIRST", [None, None, None]),
        (MIXED, "0", "PCI_BUS_ID", [True, False, False]),
        (MIXED, "2,1,0", None, [True, True, True]),
        (MIXED, "GPU-22-x", None, [False, False, True]),
        (SLICED, "MIG-11-x", None, [False, True]),
        (SLICED, "0", None, [None, None]),
    ],
)
def test_what_cuda_shows(
    gpus: tuple[Identity, ...], visible: str | None, order: str | None, answers: list[bool | None]
) -> None:
    found = gpu_use.visible(EngineUse(visible=visible, order=order), gpus)
    assert [found[gpu.uuid] for gpu in gpus] == answers


@pytest.mark.parametrize(
    ("use", "is_visible", "pids", "answer"),
    [
        (EngineUse(offloads=False, pid=7), True, frozenset({7}), False),
        (EngineUse(offloads=True), False, None, False),
        (EngineUse(pci_ids=("0000:00:00.0",)), True, None, True),
        (EngineUse(pci_ids=("0000:05:00.0",), offloads=True), True, None, False),
        (EngineUse(pid=7), True, frozenset({7, 9}), True),
        (EngineUse(pid=7, offloads=True), True, frozenset({9}), False),
        (EngineUse(pid=7), True, None, None),
        (EngineUse(offloads=True), True, None, True),
        (EngineUse(offloads=True), None, None, None),
        (EngineUse(), True, frozenset({9}), None),
    ],
)
def test_whether_the_engine_runs_on_it(
    use: EngineUse, is_visible: bool | None, pids: frozenset[int] | None, answer: bool | None
) -> None:
    assert gpu_use.used(card(0), use, is_visible=is_visible, pids=pids) is answer


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0000000F:01:00", "000f:01:00.0"),
        ("", None),
        ("GPU-1", None),
    ],
)
def test_a_pci_id_has_one_spelling(text: str, id: str | None) -> None:
    assert gpu_use.pci_id(text) == id


def test_process_ids_are_trusted_in_the_first_namespace_alone(tmp_path: Path) -> None:
    folder = tmp_path / "proc/self/ns"
    folder.mkdir(parents=True)
    assert not gpu_use.trusted([], tmp_path)
    (folder / "pid").symlink_to(INITIAL_NAMESPACE)
    (tmp_path / "proc/7").mkdir()
    assert gpu_use.trusted([7], tmp_path)
    assert not gpu_use.trusted([7, 999999], tmp_path)
    (folder / "pid").unlink()
    (folder / "pid").symlink_to("pid:[4026532500]")
    assert not gpu_use.trusted([7], tmp_path)


def test_the_environment_of_the_engine_is_what_counts() -> None:
    use = EngineUse.of({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, pid=5, offloads=True)
    assert use == EngineUse(pid=5, offloads=True, visible="1", order="PCI_BUS_ID")
    assert EngineUse.of({}).visible is None
