"""GPM, the GPU's own performance counters: believed only once two samples have been taken and compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    PERMANENT,
    LostError,
    RefusalError,
)

if TYPE_CHECKING:
    from typing import Any

    from stackscope.hardware.nvml import Handle, Nvml

MIB: Final = 1 << 20
SHORTEST_NS: Final = 105_000_000
"""Between two samples: the counters refresh every 100 ms, and samples must be further apart than that."""
LONGEST_NS: Final = 5_000_000_000
"""A base older than this says too little about now."""
REST_NS: Final = 10_000_000_000
"""After a failure that may pass, counters are left alone for so long."""
MOST_PERCENT: Final = 105.0
"""Ratios of counters read at slightly different times may come out a little above 100."""


class Metric(NamedTuple):
    """One number that GPM offers."""

    field: str
    """Of `GpuSample`."""
    id: int
    """In NVML's enumeration; stable over its versions."""
    is_percent: bool = True
    """Rather than MiB per second."""


METRICS: Final = (
    Metric("sm_active", 2),
    Metric("occupancy", 3),
    Metric("tensor_active", 5),
    Metric("dram_share", 10),
    Metric("pcie_write_bytes_per_s", 20, is_percent=False),
    Metric("pcie_read_bytes_per_s", 21, is_percent=False),
    Metric("nvlink_read_bytes_per_s", 60, is_percent=False),
    Metric("nvlink_write_bytes_per_s", 61, is_percent=False),
)
FIELDS: Final = tuple(metric.field for metric in METRICS)

TOO_OLD: Final = "this GPU has no GPM counters; Hopper and later have, and GeForce from the 50 series on"
HINT: Final = {
    NO_PERMISSION: "GPM needs more rights (NVML 4): those of root, or NVreg_RestrictProfilingToAdminUsers=0",
    FUNCTION_NOT_FOUND: "the driver is too old for GPM (NVML 13)",
}


class Gpm:
    """The counters of one GPU, or of one MIG instance.

    Two samples take turns: the newest is compared with the one before it and is the base of the next. A sample is
    only taken when the base is old enough, so ticks may come as often as they like.
    """

    def __init__(self, nvml: Nvml, handle: Handle, *, instance: int | None = None) -> None:
        """`handle` is the GPU's; `instance` the id of the GPU instance to look at, if it is one."""
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._samples: list[Any] = []
        self._request: Any = None
        self._answers: list[Any] = []
        """The parts of the request that the driver fills in, one for each metric: finding them anew is slow."""
        self._base_ns: int | None = None
        """When `_samples[0]` was taken. `None`: it holds nothing."""
        self._rests_until_ns: int | None = None
        self.is_live: bool | None = None
        """`None`: not known yet. False: refused, and `reason` says why."""
        self.reason = "GPM needs two samples"
        self._values: dict[str, float] = {}
        self._unknown: dict[str, str] = dict.fromkeys(FIELDS, self.reason)

    def read(self, now_ns: int) -> tuple[dict[str, float], dict[str, str]]:
        """(values by field, reasons by field) as of the newest pair of samples. Raises `LostError`."""
        if self._is_resting(now_ns):
            return self._values, self._unknown
        age = None if self._base_ns is None else now_ns - self._base_ns
        if age is not None and age < SHORTEST_NS:
            return self._values, self._unknown
        try:
            self._step(now_ns, is_base_fresh=age is not None and age <= LONGEST_NS)
        except LostError:
            raise
        except RefusalError as refusal:
            self._fail(refusal, now_ns)
        return self._values, self._unknown

    def close(self) -> None:
        """Free the samples. Not to be called for a GPU that was lost."""
        for sample in self._samples:
            try:
                self._nvml.ask("nvmlGpmSampleFree", sample)
            except RefusalError:
                continue  # the driver frees them with the library
        self._samples = []

    def _is_resting(self, now_ns: int) -> bool:
        if self.is_live is False and self._rests_until_ns is None:
            return True
        return self._rests_until_ns is not None and now_ns < self._rests_until_ns

    def _step(self, now_ns: int, *, is_base_fresh: bool) -> None:
        if not self._samples:
            self._prepare()
        older, newer = self._samples
        if not is_base_fresh:
            self._take(older)
            self._base_ns = now_ns
            return
        self._take(newer)
        self._samples = [newer, older]
        self._base_ns = now_ns
        self._compare(older, newer)
        self.is_live, self._rests_until_ns = True, None

    def _prepare(self) -> None:
        """Ask whether there is GPM at all, and make room for two samples."""
        if not self._nvml.ask("nvmlGpmQueryDeviceSupport", self._handle).isSupportedDevice:
            raise RefusalError(TOO_OLD)
        request = self._nvml.new("c_nvmlGpmMetricsGet_t")
        request.version = self._nvml.new("NVML_GPM_METRICS_GET_VERSION")
        request.numMetrics = len(METRICS)
        answers = [request.metrics[place] for place in range(len(METRICS))]
        for answer, metric in zip(answers, METRICS, strict=True):
            answer.metricId = metric.id
        self._request, self._answers = request, answers
        self._samples = [self._nvml.ask("nvmlGpmSampleAlloc"), self._nvml.ask("nvmlGpmSampleAlloc")]

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._nvml.ask("nvmlGpmSampleGet", self._handle, sample)
        else:
            self._nvml.ask("nvmlGpmMigSampleGet", self._handle, self._instance, sample)

    def _compare(self, older: Any, newer: Any) -> None:
        """Turn two samples into values, each with a status of its own."""
        self._request.sample1, self._request.sample2 = older, newer
        for answer in self._answers:
            answer.value = math.nan
        self._nvml.ask("nvmlGpmMetricsGet", self._request)
        self._values, self._unknown = {}, {}
        for answer, metric in zip(self._answers, METRICS, strict=True):
            status, value = answer.nvmlReturn, answer.value
            if status != 0:
                self._unknown[metric.field] = RefusalError.of(status).reason
            elif not math.isfinite(value):
                self._unknown[metric.field] = "GPM has no value for it (NaN)"
            elif value < 0 or (metric.is_percent and value > MOST_PERCENT):
                self._unknown[metric.field] = f"GPM answers {value:g}, which cannot be"
            else:
                self._values[metric.field] = min(value / 100, 1.0) if metric.is_percent else value * MIB

    def _fail(self, refusal: RefusalError, now_ns: int) -> None:
        """Remember why there are no values; ask again later only where that may help."""
        was_claimed = bool(self._samples) and self.is_live is not True
        self.reason = HINT.get(refusal.code or 0, refusal.reason)
        if was_claimed and refusal.code == NOT_SUPPORTED:
            self.reason = f"the driver claims GPM, but a sample fails: {refusal.reason}"
        self.is_live = False
        self._base_ns = None
        self._rests_until_ns = None if refusal.code in PERMANENT else now_ns + REST_NS
        self._values, self._unknown = {}, dict.fromkeys(FIELDS, self.reason)
