"""Memory that was freed goes back to the system, no oftener than it should."""

from __future__ import annotations

import gc
import platform
import weakref
from pathlib import Path

import numpy as np
import pytest
from textual._styles_cache import StylesCache
from textual.color import Color

from stackscope.tui.heap import EVERY_NS, Heap, trimmer


def test_it_is_trimmed_now_and_then() -> None:
    now_ns, trims = [0], []
    heap = Heap(trim=lambda: trims.append(now_ns[0]), clock=lambda: now_ns[0])
    for now_ns[0] in (0, EVERY_NS - 1, EVERY_NS, EVERY_NS + 1, 2 * EVERY_NS - 1, 2 * EVERY_NS):
        heap.tend()
    assert trims == [EVERY_NS, 2 * EVERY_NS]


def test_the_lines_of_widgets_that_are_gone_are_let_go() -> None:
    lines = StylesCache()
    lines.get_inner_outer(Color(1, 2, 3), Color(4, 5, 6))
    gone = weakref.ref(lines)
    del lines
    gc.collect()
    assert gone() is not None  # If this fails, Textual no longer needs our help.
    now_ns = [0]
    heap = Heap(trim=lambda: None, clock=lambda: now_ns[0])
    now_ns[0] = EVERY_NS
    heap.tend()
    gc.collect()
    assert gone() is None


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_glibc_gives_pieces_back() -> None:
    trim = trimmer()
    assert trim is not None
    # Too small to be mapped one by one, and the last stays, so that the heap has no end that could go by itself.
    kept = [np.ones(8_000) for _ in range(2_000)]
    full = resident_pages()
    del kept[:1_999]
    trim()
    assert full - resident_pages() > 20_000  # Of 31,250 pages that were freed.
    assert len(kept) == 1
