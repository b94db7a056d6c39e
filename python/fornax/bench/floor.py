"""Lower bounds of a task's time."""

from __future__ import annotations

import math

from . import workload as tables

#: The H200's peak rates by its datasheet; what is faster than these was not computed.
PEAK_BYTES_PER_S = 4.8e12
PEAK_TF32_PER_S = 495e12


def floor_ms(task: str, track: str) -> float | None:
    """The time at measured rates in milliseconds, as `baseline_h200.csv` has it; none for unknown tasks.

    Track A counts contractions at the TF32 rate. Track B counts convolutions so, too, since torch computes
    them in TF32, and tasks with matrix products at the rate of three fp16 products.
    """
    known = tables.baseline().get(task, {})
    workload = tables.suite().get(task)
    if "floor_bytes_ms" not in known:
        return None
    products = workload is not None and workload.uses(
        "linear", "matmul", "bmm", "einsum", "scaled_dot_product_attention", "lstm", "gru"
    )
    flops = "floor_fp16x3_ms" if track == "B" and products else "floor_tf32_ms"
    return max(known["floor_bytes_ms"], known.get(flops, 0.0))


def physical_floor_ms(task: str) -> float:
    """The time below which a measurement is a fault, in milliseconds; 0 where nothing is known.

    Bytes and operations that a rewrite saves, as `remarks.json` says, do not count.
    """
    known = tables.baseline().get(task, {})
    remarks = tables.remarks().get(task, {})
    if "trivial" in remarks:
        return 0.0
    moved = known.get("bytes", 0.0) / PEAK_BYTES_PER_S
    computed = 0.0 if "fewer_flops" in remarks else known.get("flops", 0.0) / PEAK_TF32_PER_S
    return 1e3 * max(moved, computed) if math.isfinite(moved) else 0.0
