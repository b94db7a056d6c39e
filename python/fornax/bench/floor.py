"""Lower bounds of a task's time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import workload as tables

#: The H200's peak rates by its datasheet; what is faster than these was not computed. Products are counted at
#: the rate of fp16, which keeps as many bits of a scaled factor as TF32 does.
PEAK_BYTES_PER_S = 4.8e12
PEAK_PRODUCTS_PER_S = 989e12
#: Bytes of a parameter that is packed before the call.
PACKED_BYTES = 2


def floor_ms(task: str, track: str) -> float | None:
    """The time at measured rates in milliseconds, as `baseline_h200.csv` has it; none for unknown tasks.

    Track A counts contractions at the TF32 rate. Track B counts convolutions so, too, since torch computes
    them in TF32, and tasks with matrix products at the rate of three fp16 products.
    """
    known = tables.baseline().get(task, {})
    if "floor_bytes_ms" not in known:
        return None
    workload = tables.suite().get(task)
    products = workload is not None and workload.uses(
        "linear", "matmul", "bmm", "einsum", "scaled_dot_product_attention", "lstm", "gru"
    )
    flops = "floor_fp16x3_ms" if track == "B" and products else "floor_tf32_ms"
    return max(known["floor_bytes_ms"], known.get(flops, 0.0))


def physical_floor_ms(task: str, track: str) -> float:
    """The time below which a measurement is a fault, in milliseconds; 0 where nothing is known.

    Tensors that no output depends on, and operations that a rewrite saves, as `remarks.json` says, do not
    count. In track A parameters may have been packed into two bytes an element before the call: as many bits
    of a scaled factor as TF32 keeps.
    """
    known = tables.baseline().get(task, {})
    remarks = tables.remarks().get(task, {})
    if "trivial" in remarks or "bytes" not in known:
        return 0.0
    moved = (known["bytes"] - _spared_bytes(task, track)) / PEAK_BYTES_PER_S
    computed = 0.0 if "fewer_flops" in remarks else known.get("flops", 0.0) / PEAK_PRODUCTS_PER_S
    return 1e3 * max(moved, computed)


def _spared_bytes(task: str, track: str) -> int:
    """Bytes of inputs and parameters that no output depends on, and in track A those that packing saves."""
    workload = tables.suite().get(task)
    if workload is None:
        return 0
    used = set(_references(workload.outputs))
    for node in reversed(workload.nodes):
        # What is written in place is both a result and an operand.
        if node.name in used or node.op.partition(".default")[0].endswith("_"):
            used.update(_references((node.args, node.kwargs)))
    tensors = (*workload.inputs, *workload.params)
    unused = sum(spec.nbytes for spec in tensors if spec.name not in used)
    if track != "A":
        return unused
    packed = [spec for spec in workload.params if spec.name in used and spec.dtype == "float32"]
    return unused + sum(spec.nbytes - PACKED_BYTES * spec.numel for spec in packed)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "ref" in value:
            yield value["ref"]
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)
