"""Times of single calls, subjects in turn: A B A B.

On a GPU, *cold* is the time between two events around a call, with 256 MB written before it so that
nothing of the task lies in the L2; the write is still running while the call is issued, so that the host's
work for the first launches is hidden as in a busy program. *Warm* is the same without the write, from an
idle GPU, so that it holds the host's work. *Wall* is the host's clock over a warm call until the GPU is
done. On the CPU all three are the host's clock.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

#: Bytes written to push a task's data out of the L2 (60 MB on an H200).
FLUSH_BYTES = 256 << 20
#: A block holds up to so many calls, and about so many milliseconds of them.
BLOCK_CALLS = 8
BLOCK_MS = 8.0
#: A call of so many milliseconds varies by far less than what it is compared for.
SLOW_MS = 200.0

Call = Callable[[], object]


@dataclass(frozen=True)
class Sample:
    """Median and quartiles of single calls, in milliseconds."""

    median: float
    lower: float
    upper: float
    calls: int

    @staticmethod
    def of(times_ms: Sequence[float]) -> Sample:
        """Summarises at least one time."""
        if len(times_ms) == 1:
            return Sample(times_ms[0], times_ms[0], times_ms[0], 1)
        lower, median, upper = statistics.quantiles(times_ms, n=4, method="inclusive")
        return Sample(median, lower, upper, len(times_ms))


@dataclass
class Times:
    """What was measured of a subject; see the module's text."""

    cold: Sample
    warm: Sample
    wall: Sample


@dataclass
class _Raw:
    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


class Clock(Protocol):
    """Times one call."""

    def cold_ms(self, call: Call) -> float:
        """Milliseconds with nothing of the task in the L2."""

    def warm_ms(self, call: Call) -> tuple[float, float]:
        """Milliseconds on the device, and on the host's clock, from idle."""


class HostClock:
    """The host's clock alone, for subjects that run on the CPU."""

    def cold_ms(self, call: Call) -> float:
        """Milliseconds on the host's clock; nothing is flushed."""
        return self.warm_ms(call)[0]

    def warm_ms(self, call: Call) -> tuple[float, float]:
        """Milliseconds on the host's clock, twice."""
        started = time.perf_counter()
        call()
        elapsed = 1e3 * (time.perf_counter() - started)
        return elapsed, elapsed


class CudaClock:
    """Events on torch's current stream."""

    def __init__(self, device: str):
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def cold_ms(self, call: Call) -> float:
        """Milliseconds between events around the call, after the flush."""
        torch.cuda.synchronize()
        self._flush.zero_()
        self._start.record()
        result = call()
        self._end.record()
        torch.cuda.synchronize()
        del result
        return self._start.elapsed_time(self._end)

    def warm_ms(self, call: Call) -> tuple[float, float]:
        """Milliseconds between events around the call, and on the host until the GPU is done."""
        torch.cuda.synchronize()
        started = time.perf_counter()
        self._start.record()
        result = call()
        self._end.record()
        torch.cuda.synchronize()
        wall = 1e3 * (time.perf_counter() - started)
        del result
        return self._start.elapsed_time(self._end), wall


def clock_for(device: str) -> Clock:
    """The clock that fits a device: `cuda:0`, or anything else for the CPU."""
    return CudaClock(device) if device.startswith("cuda") else HostClock()


def measure(
    calls: dict[str, Call], clock: Clock, budget_s: float, most_rounds: int = 20
) -> dict[str, Times]:
    """Times subjects in turn, round after round, until `budget_s` is spent; at least 3 rounds,
    or one where a call takes longer than `SLOW_MS`.

    In a round each subject gets a short block of cold and of warm calls. The first call of a block is not
    counted where the calls are short: the code of the other subjects has pushed its own out of the
    processor's caches, which nothing does in a program that runs one model. Each subject's very first
    call is not counted either.
    """
    raw = {name: _Raw() for name in calls}
    first_ms = {name: clock.cold_ms(call) for name, call in calls.items()}
    blocks = {name: _block(call_ms) for name, call_ms in first_ms.items()}
    least_rounds = 3 if max(first_ms.values()) < SLOW_MS else 1
    started = time.monotonic()
    rounds = 0
    while rounds < least_rounds or (rounds < most_rounds and time.monotonic() - started < budget_s):
        for name, call in calls.items():
            _measure_block(call, clock, blocks[name], raw[name])
        rounds += 1
    return {
        name: Times(Sample.of(times.cold), Sample.of(times.warm), Sample.of(times.wall))
        for name, times in raw.items()
    }


def _measure_block(call: Call, clock: Clock, size: int, raw: _Raw) -> None:
    collecting = gc.isenabled()
    gc.disable()
    try:
        if size > 1:
            clock.cold_ms(call)
        for _ in range(size):
            raw.cold.append(clock.cold_ms(call))
        for _ in range(size):
            warm, wall = clock.warm_ms(call)
            raw.warm.append(warm)
            raw.wall.append(wall)
    finally:
        if collecting:
            gc.enable()


def _block(call_ms: float) -> int:
    """Calls in a block: several short ones, one long one."""
    return max(1, min(BLOCK_CALLS, int(BLOCK_MS / max(call_ms, 1e-3))))
