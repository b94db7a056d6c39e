"""Workload tables: a task as facts (tensors and how they are filled, operators in order).

`bench/kernelbench/workloads.json.xz` holds one table per KernelBench task; `baseline_h200.csv` beside
it holds times and floors measured once. Nothing here needs torch.
"""

from __future__ import annotations

import csv
import json
import lzma
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

#: Bytes of an element, by the name that tables use.
ELEMENT_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bool": 1}


class BenchError(Exception):
    """An input or the environment does not allow what was asked; the message says what to do."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a task: an input, or a parameter, buffer or constant of its module.

    `fill` says how values are drawn, as `["uniform", low, high]`; see `fill.py`. `target` is the
    dotted name in the module's state (empty for inputs).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: tuple[Any, ...]
    target: str = ""
    kind: str = "input"

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the contiguous tensor."""
        return self.numel * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class Node:
    """An operator: `args` and `kwargs` hold plain values and `{"ref": name}` for tensors."""

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any


@dataclass(frozen=True)
class Workload:
    """One task: what a module computes and how its tensors are filled."""

    task: str
    inputs: tuple[TensorSpec, ...]
    params: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    source: dict[str, Any] = field(repr=False, compare=False)

    @property
    def slug(self) -> str:
        """The task's name as a file name: `L1/19_ReLU` is `L1_19_ReLU`."""
        return slug(self.task)

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and parameters."""
        return sum(spec.nbytes for spec in (*self.inputs, *self.params))

    def uses(self, *prefixes: str) -> bool:
        """Whether some operator's name starts with `aten.` and one of `prefixes`."""
        starts = tuple(f"aten.{prefix}" for prefix in prefixes)
        return any(node.op.startswith(starts) for node in self.nodes)


def slug(task: str) -> str:
    """A task's name as a file name."""
    return task.replace("/", "_")


def parse(table: dict[str, Any]) -> Workload:
    """A workload from its table.

    `aten.randn` nodes become inputs: a random source inside a module cannot be compared.
    """
    try:
        inputs = [_tensor(entry) for entry in table["inputs"] if "value" not in entry]
        params = [_tensor(entry) for entry in table["params"]]
        nodes = []
        for entry in table["nodes"]:
            if entry["op"] == "aten.randn.default":
                inputs.append(_random_source(entry))
            else:
                nodes.append(
                    Node(
                        entry["name"],
                        entry["op"],
                        tuple(entry["args"]),
                        dict(entry.get("kwargs", {})),
                        entry["out"],
                    )
                )
        return Workload(
            table["task"],
            tuple(inputs),
            tuple(params),
            tuple(nodes),
            tuple(table["outputs"]),
            table,
        )
    except (KeyError, TypeError) as error:
        raise BenchError(f"not a workload table: {error!r} is missing or misplaced") from error


def _tensor(entry: dict[str, Any]) -> TensorSpec:
    return TensorSpec(
        entry["name"],
        tuple(entry["shape"]),
        entry["dtype"],
        tuple(entry["fill"]),
        entry.get("target", ""),
        entry.get("kind", "input"),
    )


def _random_source(entry: dict[str, Any]) -> TensorSpec:
    out = entry["out"]
    return TensorSpec(entry["name"], tuple(out["shape"]), out["dtype"], ("normal", 0.0, 1.0))


def suite_folder() -> Path:
    """The folder `bench/kernelbench` of the checkout this package lies in, or of the current folder."""
    folder = _suite_folder()
    if folder is None:
        raise BenchError(
            "the KernelBench tables are not here: run from a checkout of Fornax, where they lie in "
            "bench/kernelbench/"
        )
    return folder


def _suite_folder() -> Path | None:
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        folder = root / "bench" / "kernelbench"
        if (folder / "workloads.json.xz").exists():
            return folder
    return None


@cache
def suite() -> dict[str, Workload]:
    """All tables of the suite by task, in the order of level and number."""
    with lzma.open(suite_folder() / "workloads.json.xz", "rt", encoding="utf-8") as file:
        tables = [json.loads(line) for line in file]
    return {table["task"]: parse(table) for table in sorted(tables, key=lambda t: order(t["task"]))}


@cache
def baseline() -> dict[str, dict[str, float]]:
    """Bytes, flops, times and floors measured once on an H200, by task; absent numbers are left out.

    Empty where there are no tables: models of one's own are compared without them.
    """
    if _suite_folder() is None:
        return {}
    with open(suite_folder() / "baseline_h200.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        row["task"]: {key: float(text) for key, text in row.items() if key != "task" and text}
        for row in rows
    }


@cache
def remarks() -> dict[str, dict[str, str]]:
    """What is known of single tasks: `trivial`, `fewer_flops`, `no_export`, `needs_fp32`, each with a reason.

    Empty where there are no tables.
    """
    if _suite_folder() is None:
        return {}
    return json.loads((suite_folder() / "remarks.json").read_text(encoding="utf-8"))


def not_exported(task: str) -> str:
    """Why there is no export of a task; empty if there is one."""
    if task not in suite():
        return "the task has no table"
    return remarks().get(task, {}).get("no_export", "")


def precision(task: str, wanted: str) -> str:
    """What a task is compiled with in a suite of precision `wanted`: `fp32` where TF32 leaves too little."""
    too_rough = wanted == "tf32" and "needs_fp32" in remarks().get(task, {})
    return "fp32" if too_rough else wanted


def listed_tasks() -> list[str]:
    """Every task that has a table or a baseline, in the order of level and number."""
    return sorted({*suite(), *baseline()}, key=order)


def order(task: str) -> tuple[str, int]:
    """Sort key of a task: its level, then its number."""
    level, _, rest = task.partition("/")
    return level, int(rest.partition("_")[0])


def select(patterns: list[str]) -> list[str]:
    """The listed tasks that one of `patterns` names: `L1`, `L1/19`, or a whole name; all for none."""
    tasks = listed_tasks()
    if not patterns:
        return tasks
    chosen = []
    for pattern in patterns:
        found = [task for task in tasks if _names(pattern, task)]
        if not found:
            raise BenchError(
                f"no task is called `{pattern}`; names look like L1, L1/19 or L1/19_ReLU"
            )
        chosen += found
    return sorted(set(chosen), key=order)


def _names(pattern: str, task: str) -> bool:
    level, number = order(task)
    return pattern in (task, slug(task), level, f"{level}/{number}")
