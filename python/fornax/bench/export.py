"""Weightless ONNX exports of the suite, made with fake tensors: no GPU and next to no memory.

Each export is `<task>.onnx` whose initializers without a value name their data in `weights.bin`, a file
that never exists: the compiler leaves these weights external and they are bound by name at load.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import io
import logging
import math
import multiprocessing
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from . import workload as tables
from .workload import Workload

#: The operator set that exports are written in.
OPSET = 20
#: The operator set of exports with a cumulative product, which ONNX has had since.
CUMPROD_OPSET = 26
#: What an importer of a weightless model must not look for.
WEIGHTS_FILE = "weights.bin"


def export_suite(tasks: list[str], out: Path, processes: int = 2) -> list[dict[str, Any]]:
    """Exports tasks into `out`; those already there are left alone. Returns a row per task.

    Rows hold `task`, `status` (`ok`, `there`, `failed`), `seconds`, `bytes` and `note`; they are also
    written to `out/export.csv`.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for task in tasks:
        reason = tables.not_exported(task)
        path = out / f"{tables.slug(task)}.onnx"
        if reason:
            rows[task] = _row(task, "failed", note=reason)
        elif path.exists():
            rows[task] = _row(task, "there", size=path.stat().st_size)
    waiting = sorted((task for task in tasks if task not in rows), key=_cost)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        for row in pool.map(_export_row, [(task, str(out)) for task in waiting]):
            rows[row["task"]] = row
            print(
                f"{row['task']}: {row['status']} {row['seconds']:.1f} s {row['note']}", flush=True
            )
    ordered = [rows[task] for task in tasks]
    with open(out / "export.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ordered[0].keys())
        writer.writeheader()
        writer.writerows(ordered)
    return ordered


def export(workload: Workload, path: Path) -> None:
    """Writes the task as ONNX without the values of its weights; small folded constants stay inline."""
    import onnx_ir
    import onnxscript.optimizer
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    from . import build

    opset = CUMPROD_OPSET if workload.uses("cumprod") else OPSET
    with FakeTensorMode(), torch.no_grad():
        module = build.build(workload, "cpu")
        inputs = tuple(build.empty_inputs(workload, "cpu"))
        program = torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            optimize=False,
            verbose=False,
            opset_version=opset,
            input_names=[spec.name for spec in workload.inputs],
            custom_translation_table=_translations(),
        )
        model = program.model
        absent = []
        for value in model.graph.initializers.values():
            held = getattr(value.const_value, "raw", None)
            if isinstance(held, FakeTensor):
                absent.append((value.name, value.const_value.dtype, value.const_value.shape))
                value.const_value = None
        onnxscript.optimizer.optimize(model)
    for name, dtype, shape in absent:
        value = model.graph.initializers.get(name)
        if value is not None:
            length = math.prod((round(dtype.itemsize), *map(int, shape)))
            value.const_value = onnx_ir.ExternalTensor(
                WEIGHTS_FILE, 0, length, dtype, shape=onnx_ir.Shape(shape), name=name
            )
    for node in model.graph:
        node.metadata_props.clear()
    model.opset_imports[""] = opset  # the exporter leaves 18 where it found nothing to convert
    _write(model, path)


def _translations() -> dict[Any, Any]:
    """What torch's exporter lacks: ATen operators by functions that write them as ONNX."""
    import onnx
    import torch
    from onnxscript import opset18
    from onnxscript.values import Op, Opset

    schema = onnx.defs.get_schema("CumProd", CUMPROD_OPSET)
    operator = Op(Opset("", CUMPROD_OPSET), schema.name, schema)

    def cumprod(self, dim: int, dtype: int = -1):  # type: ignore[no-untyped-def]
        return operator(self, opset18.Constant(value_int=dim))

    return {torch.ops.aten.cumprod.default: cumprod}


def _write(model: Any, path: Path) -> None:
    import onnx
    import onnx_ir

    proto = onnx_ir.serde.serialize_model(model)
    part = path.with_suffix(".part")
    onnx.save(proto, part)
    part.replace(path)


def _export_row(work: tuple[str, str]) -> dict[str, Any]:
    task, out = work
    started = time.monotonic()
    path = Path(out) / f"{tables.slug(task)}.onnx"
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            export(tables.suite()[task], path)
    except Exception as error:  # whatever the exporter raises becomes the task's row
        lines = traceback.format_exception_only(error)
        return _row(task, "failed", time.monotonic() - started, note=" ".join(lines).strip()[:400])
    return _row(task, "ok", time.monotonic() - started, path.stat().st_size)


def _row(
    task: str, status: str, seconds: float = 0.0, size: int = 0, note: str = ""
) -> dict[str, Any]:
    note = " ".join(note.split())
    return {
        "task": task,
        "status": status,
        "seconds": round(seconds, 1),
        "bytes": size,
        "note": note,
    }


def _cost(task: str) -> tuple[bool, int]:
    workload = tables.suite()[task]
    return workload.uses("lstm", "gru"), len(workload.nodes)
