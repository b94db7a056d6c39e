"""Compiles exported tasks to weightless bundles, one program run each, resumable.

The results lie in the output folder: `<task>.fnx`, `compile.csv` with a row per task, and
`failures.txt`, the errors grouped by their text.
"""

from __future__ import annotations

import concurrent.futures
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from . import workload as tables
from .workload import BenchError, not_exported, slug

#: The only target compiled for: the suite's machine.
TARGET = "sm_90a"


@dataclass
class CompileRow:
    """How the compilation of a task ended.

    `compile_s` is wall-clock time, `cpu_s` processor time of all threads, both in seconds; `peak_bytes`
    the program's largest resident set; `status` is `ok`, `failed` or `timeout`.
    """

    task: str
    status: str
    compile_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    kernels: int = 0
    bundle_bytes: int = 0
    precision: str = ""
    error: str = ""


def read_rows(folder: Path) -> dict[str, CompileRow]:
    """The rows of `folder/compile.csv` by task; none if there is no such file."""
    path = folder / "compile.csv"
    if not path.exists():
        return {}
    kinds = {field.name: field.type for field in fields(CompileRow)}
    parse = {"str": str, "int": int, "float": float}
    with open(path, newline="", encoding="utf-8") as file:
        rows = [
            CompileRow(**{key: parse[str(kinds[key])](text) for key, text in row.items()})
            for row in csv.DictReader(file)
        ]
    return {row.task: row for row in rows}


def compile_suite(
    program: Path,
    models: Path,
    out: Path,
    tasks: list[str],
    precision: str,
    timeout_s: float = 300.0,
    processes: int = 2,
    again: bool = False,
) -> list[CompileRow]:
    """Compiles the tasks' exports in `models`; what an earlier call compiled is kept unless `again`.

    A task that fails or runs out of time is a row; nothing stops the rest.
    """
    if not os.access(program, os.X_OK):
        raise BenchError(
            f"{program} is not a program: build one with `cargo build --release -p fornax-compiler`"
        )
    out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(out)
    precisions = {task: tables.precision(task, precision) for task in tasks}
    waiting = [
        task for task in tasks if again or not _done(out, rows.get(task), precisions[task])
    ]
    lock = threading.Lock()

    def work(task: str) -> None:
        model = models / f"{slug(task)}.onnx"
        row = compile_one(program, model, out, task, precisions[task], timeout_s)
        with lock:
            rows[task] = row
            _write(out, rows)
            print(f"{task}: {row.status} {row.compile_s:.1f} s {row.error[:100]}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        for done in [pool.submit(work, task) for task in waiting]:
            done.result()
    chosen = [rows[task] for task in tasks]
    (out / "failures.txt").write_text(grouped_failures(chosen), encoding="utf-8")
    return chosen


def compile_one(
    program: Path, model: Path, out: Path, task: str, precision: str, timeout_s: float
) -> CompileRow:
    """Compiles one export to `out/<task>.fnx`."""
    bundle = out / f"{slug(task)}.fnx"
    if not model.exists():
        reason = not_exported(task) or f"{model} does not exist: export it first"
        return CompileRow(task, "failed", precision=precision, error=reason)
    command = [str(program.resolve()), "compile", str(model), "-o", str(bundle), "--json"]
    # Constants that the export holds are no weights of the module: nobody could give them at load.
    command += ["--weights", "present", "--target", TARGET, "--precision", precision]
    started = time.monotonic()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        killer = threading.Timer(timeout_s, child.kill)
        killer.start()
        _, status, usage = os.wait4(child.pid, 0)
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    row = CompileRow(task, "ok", round(seconds, 2), precision=precision)
    row.cpu_s = round(usage.ru_utime + usage.ru_stime, 2)
    row.peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if child.returncode == 0:
        row.kernels = json.loads(texts[0])["kernels"]
        row.bundle_bytes = bundle.stat().st_size
        return row
    bundle.unlink(missing_ok=True)
    row.status = "timeout" if seconds >= timeout_s else "failed"
    row.error = f"no result in {timeout_s:.0f} s" if row.status == "timeout" else _message(texts[1])
    return row


def grouped_failures(rows: list[CompileRow]) -> str:
    """The failed tasks under their errors, most frequent first; names and numbers do not part groups."""
    groups: dict[str, list[CompileRow]] = defaultdict(list)
    for row in rows:
        if row.status != "ok":
            groups[_pattern(row.error)].append(row)
    lines = [f"{sum(row.status == 'ok' for row in rows)} of {len(rows)} compiled"]
    for members in sorted(groups.values(), key=lambda group: (-len(group), group[0].error)):
        lines += ["", f"{len(members)} x {members[0].error}"]
        lines += [f"    {row.task}" for row in members]
    return "\n".join(lines) + "\n"


def _done(out: Path, row: CompileRow | None, precision: str) -> bool:
    bundle = row is not None and out / f"{slug(row.task)}.fnx"
    return bool(row and row.status == "ok" and row.precision == precision and bundle.exists())


def _write(out: Path, rows: dict[str, CompileRow]) -> None:
    part = out / "compile.csv.part"
    with open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(CompileRow)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows.values())
    part.replace(out / "compile.csv")


def _message(stderr: str) -> str:
    """The error in one line, without progress output; a panic's message if there was one."""
    lines = [
        line.strip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stderr))
    ]
    lines = [line for line in lines if line]
    starts = [
        i for i, line in enumerate(lines) if line.startswith("error") or "panicked at" in line
    ]
    return " ".join(lines[starts[0] :] if starts else lines[-3:])[:600] or "no message"


def _pattern(error: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r'"[^"]*"|`[^`]*`|\S*\.onnx', "X", error))[:160]
